"""What a pass is: a named function over one kernel, with a context for choices and remarks.

A pass changes the kernel in place through ``ctx.rewrite``, or by rebuilding its body. One that
makes several kernels of one returns them, in the order in which they are launched. A pass never
reads the command line, never prints, and raises ``Refused`` (with a reason) when it declines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tilec.ir import rewrite
from tilec.ir.core import Kernel, Op, Region
from tilec.ir.facts import Facts, Remark, Schedule
from tilec.targets.base import Target


@dataclass
class Context:
    """What a pass may consult, and where it leaves its choices."""

    target: Target
    facts: Facts = field(default_factory=Facts)
    schedule: Schedule = field(default_factory=Schedule)
    remarks: list[Remark] = field(default_factory=list)
    current: str = ""

    def remark(self, op: Op | None, text: str, **data: object) -> None:
        """Explain a choice of the running pass at an op's place in the source, once."""
        loc = op.loc if op is not None else None
        line, column = (loc.line, loc.column) if loc is not None else (0, 0)
        made = Remark(self.current, line, text, dict(data), column)
        if made not in self.remarks:
            self.remarks.append(made)

    def rewrite(self, region: Region, *rules: rewrite.Rule) -> bool:
        """Apply rules until none fires any more; True if any did."""
        changed = False
        for _ in range(100):
            fired = [rewrite.apply(region, rule) for rule in rules]
            if not any(fired):
                return changed
            changed = True
        raise RuntimeError(f"the rules of {self.current} do not settle")


Step = Callable[[Kernel, Context], Sequence[Kernel] | None]


@dataclass(frozen=True)
class Pass:
    """A step of the pipeline: it takes a kernel at ``level`` and leaves it at ``produces``."""

    name: str
    level: str
    produces: str
    run: Step
    doc: str


def tile_pass(name: str, *, level: str, produces: str | None = None) -> Callable[[Step], Pass]:
    """Declare a pass; the function's docstring says in one sentence what it ensures."""

    def declare(function: Step) -> Pass:
        return Pass(name, level, produces or level, function, (function.__doc__ or "").strip())

    return declare
