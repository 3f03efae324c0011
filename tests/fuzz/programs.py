"""Random well-typed programs from a seed, with what is known of each result.

Idea: a kernel is a row of ``parallel`` loops; each body is a row of statements, each of which ends
in a named value; the values are stored into arrays of their own. Statements stand in
``statements.py``, expressions in ``expressions.py``. What they keep to: a result depends on no
tile size, iterations write different elements, and every subscript is in range.

Never: runs or compiles anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tests.fuzz.statements import Statements
from tests.fuzz.values import DTYPES, Axis, TooLarge, Value

_SIZES = (1, 2, 5, 15, 16, 17, 31, 33, 40, 48, 64, 65)
_RESULTS = (*DTYPES, "f32", "f32", "f32", "f32", "s32")
_MARGIN = 4.0
"""Executors may round alike or not: what both may be off, and a little."""


@dataclass(frozen=True)
class Program:
    """One program, the sizes to run it with, and how exact each array that it writes is."""

    seed: int
    text: str
    dims: Mapping[str, int]
    errors: Mapping[str, float]
    used: Counter[tuple[str, str]]


class _Writer(Statements):
    """Puts statements together to a kernel."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.errors: dict[str, float] = {}
        self.dims = {d: self.chance.choice(_SIZES) for d in "MNK"}
        self.dims["B"] = self.chance.randint(1, 3)
        if self.chance.random() < 0.04:
            self.dims[self.chance.choice("MNK")] = 0
        self.body: list[str] = []

    def write(self) -> None:
        """All launches of the kernel."""
        temps: list[tuple[str, Value]] = []
        for _ in range(self.chance.choice((1, 1, 1, 2, 3))):
            temps += self._launch(temps)

    def _launch(self, temps: list[tuple[str, Value]]) -> list[tuple[str, Value]]:
        self.batch = None
        self.known = []
        grid, sources = [], []
        shape = self.chance.choice(("i", "i", "ij", "ij", "bi", "bij", "b"))
        tag = self.fresh("")
        if "b" in shape:
            extent = self.chance.choice(("B", "2"))
            self.batch = Axis(f"b{tag}", extent, 3)
            sources.append(extent)
            grid.append(self.batch)
        for letter, dim in zip("ij", self.chance.sample("MNK", 2), strict=True):
            if letter in shape:
                axis = Axis(f"{letter}{tag}", dim, self.dims[dim])
                pin = self.chance.choice(("", "", ", 16", ", 32"))
                sources.append(f"tiles({dim}{pin})")
                grid.append(axis)
        self.note("parallel", "any")
        self.note("tiles", "any")
        names = ", ".join(a.index for a in grid)
        self.lines = [f"    for {names} in parallel({', '.join(sources)}):"]
        self.depth = 2
        tiles = tuple(a for a in grid if a.is_tile and a is not self.batch)
        self._inputs(temps, tiles)
        made = [self._stored(tiles) for _ in range(self.chance.randint(1, 3))]
        self.body += self.lines
        return [m for m in made if m is not None]

    def _inputs(self, temps: list[tuple[str, Value]], tiles: tuple[Axis, ...]) -> None:
        """What earlier launches left in workspace, where it has these axes."""
        for name, value in temps:
            if [a.extent for a in value.axes] == [a.extent for a in tiles]:
                said = f"{name}[{', '.join(a.index for a in tiles)}]"
                self.known.append(value.said(said, axes=tiles))

    def _stored(self, tiles: tuple[Axis, ...]) -> tuple[str, Value] | None:
        """Some statements, and a store of what the last one gives."""
        axes = tiles
        if len(tiles) < 2 and self.chance.random() < 0.5:
            extent = self.chance.choice(("7", "16", "20", *"MNK"))
            most = self.dims.get(extent) or (int(extent) if extent.isdigit() else 0)
            axes = (*tiles, Axis(":", extent, most))
        dtype = self.chance.choice(_RESULTS)
        for _ in range(self.chance.choice((1, 2, 2))):
            found = self.statement(self.chance.choice(_RESULTS), axes)
            if found is not None:
                self.known.append(found)
        value = self.statement(dtype, axes) or self.value(dtype, axes, 2)
        self.note("store", value.dtype)
        outer = (self.batch,) if self.batch else ()
        if not outer and axes == tiles and self.chance.random() < 0.4:
            name = self.fresh("w")
            extents = ", ".join(a.extent for a in axes)
            self.note("temp", value.dtype)
            self.body.insert(0, f"    {name} = temp[{value.dtype}]({extents})")
            self.line(f"{name}[{', '.join(a.index for a in axes)}] = {value.text}")
            self._keep(axes, value)
            return name, value
        self._keep(axes, value)
        return None

    def _keep(self, axes: tuple[Axis, ...], value: Value) -> None:
        outer = (self.batch,) if self.batch else ()
        name = self.array(value.dtype, (*outer, *axes), "out ")
        self.errors[name] = value.error * _MARGIN
        places = ", ".join(a.index for a in (*outer, *axes))
        self.line(f"{name}[{places}] = {value.text}")

    def text(self) -> str:
        """The whole file."""
        parameters = ", ".join(f"{n}: {k}" for n, k in self.parameters.items())
        head = f"kernel k({parameters}):"
        return "\n".join([*self.imports, *self.functions, head, *self.body]) + "\n"


def generate(seed: int) -> Program:
    """The program of a seed."""
    for attempt in range(100):
        writer = _Writer(seed * 100 + attempt)
        try:
            writer.write()
        except TooLarge:
            continue
        writer.errors.update(dict.fromkeys(writer.updated, 0.0))
        return Program(seed, writer.text(), writer.dims, writer.errors, writer.used)
    raise AssertionError(f"no program of seed {seed} keeps its values small")
