"""The rows of the instruction table, a family a file."""
