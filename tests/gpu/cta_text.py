"""Writes small kernels of level ``cta`` as text, op by op.

Idea: a test says which ops it wants; names, layout aliases and the frame of the kernel are written
here.  The text is all that leaves this module, so a kernel that fails can be read, edited and
compiled as any dump.

Never: knows what an op means, or corrects what a test asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilec.layout.linear import Layout


def _attribute(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"({', '.join(map(_attribute, value))}{',' * (len(value) == 1)})"
    return repr(value) if isinstance(value, float) else str(value)


def _attributes(values: dict[str, Any]) -> str:
    listed = ", ".join(f"{key} = {_attribute(value)}" for key, value in values.items())
    return f" {{{listed}}}" if listed else ""


class Text:
    """One kernel; ops go to the kernel's body, or to the role that is open."""

    def __init__(self, threads: int = 128, shared_bytes: int = 0) -> None:
        self.threads, self.shared_bytes = threads, shared_bytes
        self.layouts: dict[Layout, str] = {}
        self.parameters: list[str] = []
        self.facts: list[tuple[str, int, int]] = []
        self.lines: list[str] = []
        self._count = 0
        self._constants: dict[tuple[Any, str], str] = {}
        self.zero, self.one = self.constant(0), self.constant(1)

    # --- names and types ------------------------------------------------------------------------

    def fresh(self) -> str:
        """A value's name that no other has."""
        self._count += 1
        return f"%v{self._count}"

    def layout(self, layout: Layout) -> str:
        """The alias of a layout."""
        return "#" + self.layouts.setdefault(layout, f"l{len(self.layouts)}")

    def _tile(self, home: str, dtype: str, layout: Layout, shape: Sequence[int]) -> str:
        extents = " x ".join(map(str, shape or layout.shape))
        return f"{home}<{dtype}, {extents}, {self.layout(layout)}>"

    def reg(self, dtype: str, layout: Layout) -> str:
        """A register tile's type."""
        return self._tile("reg", dtype, layout, ())

    def flight(self, dtype: str, layout: Layout) -> str:
        """An accumulator's type while its product is unfinished."""
        return self._tile("flight", dtype, layout, ())

    def shared(self, dtype: str, layout: Layout, shape: Sequence[int] = ()) -> str:
        """A shared tile's type; ``shape`` of a window if that is less than the whole."""
        return self._tile("shared", dtype, layout, shape)

    # --- the frame ------------------------------------------------------------------------------

    def array(
        self,
        name: str,
        dtype: str,
        shape: Sequence[int | str],
        mode: str = "in",
        unit: int | None = None,
        alignment: int = 16,
    ) -> str:
        """A parameter; ``unit`` is the axis promised to have stride one (the last by default)."""
        self.parameters.append(f"%{name}: array<{dtype}, {' x '.join(map(str, shape))}, {mode}>")
        self.facts.append((name, len(shape) - 1 if unit is None else unit, alignment))
        return f"%{name}"

    def constant(self, value: Any, dtype: str = "s32") -> str:
        """A literal of the kernel's body or of the open role."""
        return str(self.op("math.constant", type=dtype, value=value))

    @contextmanager
    def role(
        self, label: str = "all", first: int = 0, warps: int = 4, group: int = 0
    ) -> Iterator[str]:
        """What some warps do; gives the group's number."""
        head = _attributes(
            {"label": label, "first": first, "warps": warps, "group": group or warps}
        )
        number = self.fresh()
        self.lines.append(f"cta.role(){head} {{ |{number}: s32|")
        yield number
        self.lines.append("}")

    def __str__(self) -> str:
        head: dict[str, Any] = {"threads": self.threads, "shared_bytes": self.shared_bytes}
        if self.facts:
            head["arrays"] = tuple(self.facts)
        return "\n".join(
            [
                "tir 1 level cta target sm_90a",
                *(f"#{name} = {layout}" for layout, name in self.layouts.items()),
                f"kernel @k{_attributes(head)} {{ |{', '.join(self.parameters)}|",
                *self.lines,
                "}",
                "",
            ]
        )

    # --- ops ------------------------------------------------------------------------------------

    def op(
        self, name: str, *operands: str, type: str | Sequence[str] = (), **attributes: Any
    ) -> Any:
        """Any op without regions; the name of its result, a tuple of them, or an empty one."""
        types = [type] if isinstance(type, str) else list(type)
        results = [self.fresh() for _ in types]
        given = f"{', '.join(results)} = " if results else ""
        text = f"{given}{name}({', '.join(operands)}){_attributes(attributes)}"
        self.lines.append(text + (f" : {', '.join(types)}" if types else ""))
        return results[0] if isinstance(type, str) else tuple(results)

    def yields(self, *values: str) -> None:
        """End a region."""
        self.op("flow.yield", *values)

    @contextmanager
    def loop(
        self, lower: str, upper: str, step: str, init: Sequence[tuple[str, str]] = ()
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """A loop that carries ``init`` (value and type): its index, its arguments, its results."""
        index, arguments = self.fresh(), [self.fresh() for _ in init]
        results = [self.fresh() for _ in init]
        given = f"{', '.join(results)} = " if results else ""
        operands = ", ".join([lower, upper, step, *(value for value, _ in init)])
        types = [type for _, type in init]
        listed = "".join(f", {a}: {t}" for a, t in zip(arguments, types, strict=True))
        self.lines.append(f"{given}flow.for({operands}) {{ |{index}: s32{listed}|")
        yield index, arguments, results
        self.lines.append("}" + (f" : {', '.join(types)}" if types else ""))

    @contextmanager
    def branch(self, condition: str, types: Sequence[str] = ()) -> Iterator[list[str]]:
        """A branch; ``otherwise`` parts its two regions. Gives the names of its results."""
        results = [self.fresh() for _ in types]
        given = f"{', '.join(results)} = " if results else ""
        self.lines.append(f"{given}flow.if({condition}) {{")
        yield results
        self.lines.append("}" + (f" : {', '.join(types)}" if types else ""))

    def otherwise(self) -> None:
        """The second region of a branch begins."""
        self.lines.append("} {")

    @contextmanager
    def weave(self, types: Sequence[str], woven: bool = True) -> Iterator[list[str]]:
        """Ops to run element by element; with ``woven`` false they stand as they are."""
        results = [self.fresh() for _ in types] if woven else []
        if woven:
            self.lines.append(f"{', '.join(results)} = cta.weave() {{")
        yield results
        if woven:
            self.lines.append(f"}} : {', '.join(types)}")

    # --- global memory --------------------------------------------------------------------------

    def read(
        self, array: str, type: str, origin: Sequence[str], axes: Sequence[int], **more: Any
    ) -> str:
        """A register tile from global memory."""
        return str(self.op("cta.read", array, *origin, type=type, axes=tuple(axes), **more))

    def write(
        self, array: str, value: str, origin: Sequence[str], axes: Sequence[int], **more: Any
    ) -> None:
        """A register tile to global memory."""
        self.op("cta.write", array, value, *origin, axes=tuple(axes), **more)
