"""Computed places, updates in memory and Philox on the GPU at hand, in a supervised child.

python -m tests.gpu.test_places
"""

from __future__ import annotations

import sys

from tests.gpu.test_programs import _ended

LIMIT_S = 400.0


def test_places_and_updates() -> None:
    """Every check of ``places_child`` holds."""
    assert _ended([sys.executable, "-m", "tests.gpu.places_child"], LIMIT_S) == ""


if __name__ == "__main__":
    said = _ended([sys.executable, "-m", "tests.gpu.places_child"], LIMIT_S)
    print(said or "computed places and updates: all checks hold")
    sys.exit(bool(said))
