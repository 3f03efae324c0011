"""``python -m tilec`` is the command line."""

from tilec.cli import main

main()
