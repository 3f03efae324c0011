"""Measurements against the best peers and against the hand-written reference kernels."""
