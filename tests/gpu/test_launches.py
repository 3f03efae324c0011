"""Several launches of a call on the GPU at hand, in a supervised child.

python -m tests.gpu.test_launches
"""

from __future__ import annotations

import sys

from tests.gpu.test_programs import _ended

LIMIT_S = 300.0


def test_launches_and_workspace() -> None:
    """Every check of ``launches_child`` holds."""
    assert _ended([sys.executable, "-m", "tests.gpu.launches_child"], LIMIT_S) == ""


if __name__ == "__main__":
    said = _ended([sys.executable, "-m", "tests.gpu.launches_child"], LIMIT_S)
    print(said or "several launches: all checks hold")
    sys.exit(bool(said))
