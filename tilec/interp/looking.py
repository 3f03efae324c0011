"""How ``print`` and ``assert`` show what they show, whoever ran the kernel.

Only text is made here: the interpreter gives the values that it has, a launcher those that a GPU
or the emulator wrote down, and both say the same of the same values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilec.interp.memory import InterpretError
from tilec.interp.numbers import Data
from tilec.ir.checks import UNNAMED


class AssertError(InterpretError):
    """An assertion of the program does not hold."""


def text_of(points: Sequence[int]) -> str:
    """A text from its code points."""
    return "".join(map(chr, points))


def printed(text: str, ranges: Sequence[tuple[int, int]], data: Data) -> str:
    """What ``print`` shows of a value whose axes have these indices."""
    place = f"[{', '.join(f'{low}:{high}' for low, high in ranges)}]" if ranges else ""
    shown = np.array2string(data, threshold=64, edgeitems=3) if data.ndim else str(data[()])
    return f"{text}{place}:" + ("\n" if data.ndim > 1 else " ") + shown + "\n"


def loops_at(names: Sequence[str], values: Sequence[int]) -> str:
    """Where the loops around a scalar stand."""
    pairs = zip(names, values, strict=True)
    return ", ".join(f"{name} = {value}" for name, value in pairs if name != UNNAMED)


def failed(text: str, element: Sequence[int] | None, more: int, beside: str = "") -> str:
    """What an assertion says that does not hold, at an element and so many others."""
    found = []
    if element:
        found.append(f"element [{', '.join(map(str, element))}]")
    if beside:
        found.append(beside)
    if more:
        found.append(f"and {more} more")
    where = f" ({', '.join(found)})" if found else ""
    return f"assert: {text or 'this does not hold'}{where}"
