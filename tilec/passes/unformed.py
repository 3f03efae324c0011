"""What level ``tile`` can say and this version does not compile: refused early, at its line.

The interpreter runs all of it. Each entry goes when ``form-ctas`` can give the op to a CTA.
"""

from __future__ import annotations

from tilec.ir.core import Kernel, Op
from tilec.ir.levels import author, tile
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
        if isinstance(op, tile.Dot) and op.a.type.dtype.name == "f64":
            what = "a product of f64"
        if what is not None:
            raise NotInThisVersion(
                f"{place_of(op)}{what} runs on the interpreter, and cannot be compiled by this "
                "version",
                _elsewhere(what),
            )


def _elsewhere(what: str) -> str:
    """What to do about an op that only the interpreter has."""
    if "product" in what:
        return "convert the operands to `f32`, or run it with `tilec run --on interp`"
    return "run it with `tilec run --on interp`, or leave it away"
