"""The NumPy meaning of level ``cta``: roles take turns, strict about who touches what when."""
