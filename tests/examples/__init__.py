"""The example programs, each with its sizes, its inputs and what NumPy says in float64."""
