"""The NumPy meaning of level ``tile``: the oracle against which every lowering is judged."""
