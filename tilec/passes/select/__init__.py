"""The ways to lower each ``cta`` op to ``ptx`` ops, one family of ops a file."""
