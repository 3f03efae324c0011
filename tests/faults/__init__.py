"""Faulty programs and calls by class, and the whole message that each gets."""
