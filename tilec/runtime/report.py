"""``tilec.report``: a call on the emulator, and what each of its launches did and when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilec.emulator.report.report import Report, as_json, as_svg, as_text
from tilec.runtime.emulated import Emulator
from tilec.runtime.kernel import Kernel


@dataclass(frozen=True)
class CallReport:
    """The launches of a call."""

    launches: tuple[Report, ...]

    def text(self) -> str:
        """For reading."""
        return as_text(self.launches)

    def as_json(self) -> dict[str, Any]:
        """Plain data; docs/emulator.md describes it."""
        return as_json(self.launches)

    def svg(self) -> str:
        """The timelines, drawn."""
        return as_svg(self.launches)


def report(
    kernel: Kernel, *args: Any, emulator: Emulator | None = None, **named: Any
) -> CallReport:
    """Call a kernel on the emulator with arrays in host memory, and say what it did and when.

    Arrays and faults are as in any call: outputs that are given are written, faults are raised.
    """
    found: list[Report] = []
    kernel.using(on=replace(emulator or Emulator(), told=found.append))(*args, **named)
    return CallReport(tuple(found))
