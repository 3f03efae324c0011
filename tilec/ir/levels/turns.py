"""Family `turns`: groups of one role that take the work of a ring in turns.

Each group goes through a ring on its own. Where the groups of a role take whole stretches of it
alternately, a group passes over the stretches of the others; a stage is then released by the one
group that it was filled for (``alternation``).
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.ir.core import Op, Value
from tilec.ir.declare import Effects, operand
from tilec.ir.types import Ring, Scalar, Type


class Skip(Op, name="turns.skip", effects=Effects.ORDERS):
    """Pass over the next ``count`` stages of a ring: other groups of the role wait for those."""

    ring: Value[Ring] = operand()
    count: Value[Scalar] = operand()

    def infer(self) -> Sequence[Type]:
        """Nothing."""
        return []
