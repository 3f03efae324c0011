"""Tests of tilec; a package, so that no other installed `tests` answers to its name."""
