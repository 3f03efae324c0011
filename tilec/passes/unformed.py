"""What level ``tile`` can say and this version does not compile: refused early, at its line.

The interpreter runs all of it. Each entry goes when ``form-ctas`` can give the op to a CTA.
"""

from __future__ import annotations

from tilec.ir.core import Kernel, Op
from tilec.ir.levels import author
from tilec.passes.refusal import NotInThisVersion, place_of

UNFORMED: dict[type[Op], str] = {
    author.Assert: "`assert`",
    author.Print: "`print`",
}
"""Op classes and what the author calls them."""


def refuse_unformed(kernel: Kernel) -> None:
    """Raise ``NotInThisVersion`` for the first thing in a kernel that cannot be compiled."""
    for op in kernel.body.walk():
        what = UNFORMED.get(type(op))
        if what is not None:
            raise NotInThisVersion(
                f"{place_of(op)}{what} runs on the interpreter, and cannot be compiled by this "
                "version",
                "run it with `tilec run --on interp`, or leave it away",
            )
