"""Runs PTX text on NumPy, and says what is wrong with it: races, hangs, use before a wait.

It reads text, as a GPU does, and shares nothing with the compiler that wrote it.
"""
