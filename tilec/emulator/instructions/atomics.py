"""Atomic updates of memory by threads: red and atom (PTX ISA 9.7.13.4 to 9.7.13.6).

Lanes update one after another, in the order of their numbers: one of the orders that hardware may
take. Floats are added with one rounding each; 16-bit floats are rounded after each addition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.emulator.gang import VIEWS
from tilec.emulator.instructions.arithmetic import narrowed, widen
from tilec.emulator.instructions.memory import (
    address_of,
    aligned,
    in_global,
    in_shared,
    observe,
    space_of,
)
from tilec.emulator.memory import gather, scatter
from tilec.emulator.program import WIDTH
from tilec.emulator.table import Bind, Step, lanes_of, row

Update = Callable[[Any, Any, Any], Any]
"""From what is there, the operand, and what ``cas`` compares with, to what is there afterwards."""


def _increment(old: Any, most: Any, _: Any) -> Any:
    return np.where(old >= most, 0, old + 1).astype(old.dtype)


def _decrement(old: Any, most: Any, _: Any) -> Any:
    return np.where((old == 0) | (old > most), most, old - 1).astype(old.dtype)


_UPDATES: dict[str, Update] = {
    "add": lambda old, x, _: old + x,
    "min": lambda old, x, _: np.fmin(old, x),
    "max": lambda old, x, _: np.fmax(old, x),
    "and": lambda old, x, _: old & x,
    "or": lambda old, x, _: old | x,
    "xor": lambda old, x, _: old ^ x,
    "exch": lambda old, x, _: x,
    "cas": lambda old, x, wanted: np.where(old == wanted, x, old),
    "inc": _increment,
    "dec": _decrement,
}


def _update(bind: Bind) -> Update:
    name = next((p for p in bind.at.parts[1:] if p in _UPDATES), None)
    if name is None:
        raise bind.fail("no update that the emulator knows")
    return _UPDATES[name]


def _narrow(update: Update, type: str) -> Update:
    """An update of 16-bit floats: made wide, rounded once."""
    pair, base = type.endswith("x2"), type.removesuffix("x2")

    def run(old: Any, x: Any, wanted: Any) -> Any:
        there, given = (widen(np.ascontiguousarray(v).reshape(-1), base, pair) for v in (old, x))
        found = narrowed(update(there, given, None), base, pair)
        return found.view(old.dtype).reshape(old.shape)

    return run


@row("red", "atom", effect="writes")
def _atomic(bind: Bind) -> Step:
    type = bind.types()[-1]
    count = next((int(p[1:]) for p in bind.at.parts if p in ("v2", "v4", "v8")), 1)
    operands, space = list(bind.operands), space_of(bind)
    result = operands.pop(0) if bind.at.parts[0] == "atom" else None
    address, held = address_of(bind, operands[0]), operands[1:]
    update = _update(bind)
    as_type = type
    if type.removesuffix("x2") in ("f16", "bf16"):
        update, as_type = _narrow(update, type), "b32" if type.endswith("x2") else "b16"
    wanted = bind.read(held.pop(0), as_type) if "cas" in bind.at.parts else None
    reads = [bind.read(v, as_type) for v in bind.many(held[0])]
    if len(reads) != count:
        raise bind.fail(f"{count} registers are needed, there are {len(reads)}")
    writes = [bind.write(r, as_type) for r in (bind.many(result) if result is not None else ())]
    kind = np.dtype(VIEWS[as_type][1])
    width = WIDTH[type] * count

    def run(g: Any) -> None:
        places = address(g)
        values = np.stack([lanes_of(r(g), g) for r in reads], axis=1).astype(kind)
        compared = None if wanted is None else lanes_of(wanted(g), g).reshape(-1, 1)
        olds = np.zeros((g.lanes, count), kind)
        lanes = aligned(bind, g, places, width)
        for data, offsets, which in _memories(bind, g, space, places, width, lanes):
            for turn in _turns(offsets, which):
                old = gather(data, offsets[turn], width).view(kind).reshape(-1, count)
                olds[turn] = old
                other = None if compared is None else compared[turn]
                new = np.ascontiguousarray(update(old, values[turn], other).astype(kind))
                scatter(data, offsets[turn], new.view(np.uint8).reshape(len(new), width))
        for number, write in enumerate(writes):
            write(g, olds[:, number])

    return run


def _memories(bind: Bind, g: Any, space: str, places: Any, width: int, lanes: Any) -> Any:
    """The memories that are updated: their bytes, offsets there, and lanes; watched."""
    if space == "shared":
        inside = in_shared(bind, g, places, width, lanes)
        observe(bind, g, "shared", None, places, width, inside, writes=True)
        yield g.cta.shared, places, inside
        return
    for buffer, which in in_global(bind, g, places, width, lanes):
        offsets = places - buffer.address
        observe(bind, g, "global", buffer, offsets, width, which, writes=False)
        observe(bind, g, "global", buffer, offsets, width, which, writes=True)
        yield buffer.data, offsets, which


def _turns(offsets: Any, which: Any) -> Any:
    """Lanes in groups whose places differ: the first lane of each place, then the second, ..."""
    left = np.flatnonzero(which)
    while len(left):
        _, first = np.unique(offsets[left], return_index=True)
        yield left[first]
        left = np.delete(left, first)
