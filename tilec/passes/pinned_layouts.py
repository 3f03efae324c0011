"""Register layouts that the author pinned: which tile they are for, and whether it can have them.

A pin names the layout of the CTA's tile over all warps that compute, or of one group's part over
the warps of the group, as the dump prints it; the extents tell the two apart. Where nothing else
fixes the frame of the pinned tile, the pin becomes the frame: all tiles along the same axes lie so,
and nothing moves. Beside a product, or beside another pin, the tile alone lies as pinned: it is
converted where it is made and where others use it, and each conversion says its price.

A tile that a loop carries lies in the loop as its initial value, or else its next one, is pinned.
What a pin cannot be is refused at its line, with what was found, what is needed, and a layout that
would do.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilec.ir.core import Region, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import author, flow, tile
from tilec.layout.fragments import packed_registers
from tilec.layout.linear import Digit, Layout, LayoutError
from tilec.layout.teams import team_a, team_result
from tilec.passes.axes import Axes
from tilec.passes.base import Context
from tilec.passes.frames import Frames, Team
from tilec.passes.refusal import refused

Pins = dict[Value[Any], author.Home]
LANES = 32
MOST_REGISTERS = 255
"""Registers of a thread (CUDA C programming guide, technical specifications)."""


def team_of_pins(team: Team, axes: Axes, pins: Pins) -> Team:
    """The team, in one group if it is free to be and a pinned layout mixes what groups hold."""
    if team.multiplies or team.groups == 1:
        return team
    for value, pin in pins.items():
        if pin.layout is not None and of_group(pin.layout, value, axes, team) is None:
            return Team(team.warps * team.groups, 1, None, 0)
    return team


def of_group(layout: Layout, value: Value[Any], axes: Axes, team: Team) -> Layout | None:
    """What a pinned layout says of one group's part; None where it is of another tile or team."""
    whole, own = _extents(value, axes, team)
    if layout.shape == own and layout.size("warp") <= team.warps:
        return _padded(layout, team.warps)
    if layout.shape != whole or layout.size("warp") > team.warps * team.groups:
        return None
    kept: list[Digit] = []
    inside = 1
    for digit in layout.spaces.get("warp", ()):
        if inside < team.warps:
            kept.append(digit)
            inside *= digit.extent
    if inside > team.warps:
        return None
    split = axes.all_of(value).index(team.split) if whole != own else -1
    for group in range(team.groups):
        first = [0] * len(whole)
        if split >= 0:
            first[split] = group * team.rows
        at = group * team.warps
        if layout(warp=at if at < layout.size("warp") else 0) != tuple(first):
            return None
    spaces = {name: list(digits) for name, digits in layout.digits}
    spaces["warp"] = kept
    part = Layout.make(spaces, layout.rank)
    return _padded(part, team.warps) if part.shape == own else None


def _extents(value: Value[Any], axes: Axes, team: Team) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The extents of a tile, and of the part of it that one group holds."""
    whole = tuple(int(extent) for extent in value.type.shape)
    split = [c is not None and c is team.split for c in axes.all_of(value)]
    own = tuple(team.rows if s else e for e, s in zip(whole, split, strict=True))
    return whole, own


def _padded(layout: Layout, warps: int) -> Layout:
    """With copies in the lanes and warps that the author left out."""
    spaces = {name: list(digits) for name, digits in layout.digits}
    for space, count in (("lane", LANES), ("warp", warps)):
        missing = count // layout.size(space)
        spaces.setdefault(space, []).extend([Digit()] * (missing.bit_length() - 1))
    return Layout.make(spaces, layout.rank)


def pin_layouts(ctx: Context, frames: Frames, body: Region, pins: Pins) -> None:
    """Give pinned tiles their layouts, and frames that are free to those along the same axes."""
    for value, pin in pins.items():
        if pin.layout is None and not pin.arrangement:
            continue
        frames.pinned[value] = layout = _layout(frames, value, pin)
        count = packed_registers(layout, value.type.dtype.bits)
        if count > MOST_REGISTERS:
            raise refused(
                pin,
                f"{_said(value, layout)} takes {count} registers of a thread, which has "
                f"{MOST_REGISTERS}; {_instead(frames, value)}",
            )
        if frames.adopt(value, layout):
            names = ", ".join("1" if c is None else c.name for c in frames.axes.all_of(value))
            ctx.remark(
                pin, f"%{value.name} and all tiles along ({names}) lie as pinned: nothing moves"
            )
        elif layout == frames.frame(value).layout:
            ctx.remark(pin, f"%{value.name} lies so without the pin")
        else:
            ctx.remark(pin, f"%{value.name} alone lies as pinned: it is converted for other uses")
    _carry(frames, body)


def _carry(frames: Frames, body: Region) -> None:
    """Tiles that loops carry, and that branches give, lie as what goes into them is pinned."""
    for op in body.walk():
        if isinstance(op, tile.ForTiles | flow.For):
            rounds = zip(op.init, flow.yielded(op.body), op.body.args[1:], op.finals, strict=True)
        elif isinstance(op, flow.While):
            rounds = zip(op.init, flow.yielded(op.body), op.body.args, op.finals, strict=True)
        elif isinstance(op, flow.If):
            ends = (flow.yielded(op.then), flow.yielded(op.otherwise))
            rounds = zip(*ends, op.out, op.out, strict=True)
        else:
            continue
        for first, next, inside, after in rounds:
            layout = frames.pinned.get(first, frames.pinned.get(next))
            if layout is not None:
                frames.pinned.setdefault(inside, layout)
                frames.pinned.setdefault(after, layout)


def _layout(frames: Frames, value: Value[Any], pin: author.Home) -> Layout:
    if pin.layout is None:
        try:
            return _by_name(frames, value, pin.arrangement)
        except (LayoutError, Refused) as error:
            text = f"%{value.name} has no layout `{pin.arrangement}`: {error}"
            raise refused(pin, f"{text}; {_instead(frames, value)}") from None
    team = frames.team
    found = of_group(pin.layout, value, frames.axes, team)
    if found is not None:
        return found
    whole, own = _extents(value, frames.axes, team)
    warps = team.warps * team.groups
    reason = (
        f"the layout is of {_size(pin.layout.shape)} elements, %{value.name} has {_size(whole)}"
    )
    if own != whole:
        reason += f", {_size(own)} in each of {team.groups} groups"
    if pin.layout.shape in (whole, own):
        held = pin.layout.size("warp")
        reason = f"the layout has {held} warps, and {warps} compute %{value.name}"
        if held <= warps:
            reason = (
                f"groups of {team.warps} warps have {_size(own)} elements of %{value.name} each, "
                "one after the other, and the layout mixes them"
            )
    raise refused(pin, f"{reason}; {_instead(frames, value)}")


def _by_name(frames: Frames, value: Value[Any], name: str) -> Layout:
    """The layout that a name means for a tile: see ``docs/language.md``, Homes."""
    _, own = _extents(value, frames.axes, frames.team)
    classes, warps = frames.axes.all_of(value), frames.team.warps
    if name in ("accumulator", "operand"):
        if len(own) != 2:
            raise Refused(f"a product's tiles have 2 axes, this one {len(own)}")
        if name == "accumulator":
            return team_result(*own, warps)
        bits = value.type.dtype.bits
        if bits not in (8, 16, 32):
            raise Refused(f"no product reads elements of {bits} bits")
        return team_a(bits, own[0], 8, own[1], warps)
    if None in classes:
        raise Refused("it has an axis of extent 1")
    return frames.free(classes, rowwise=name == "rows")


def _instead(frames: Frames, value: Value[Any]) -> str:
    try:
        return f'a layout that would do is "{frames.frame(value).layout}"'
    except Refused:
        return "leave the layout away"


def _said(value: Value[Any], layout: Layout) -> str:
    held = prod(layout.shape)
    return (
        f"%{value.name}, {held} elements over {layout.size('lane') * layout.size('warp')} threads,"
    )


def _size(extents: tuple[int, ...]) -> str:
    return " x ".join(map(str, extents))
