"""What a kernel of level ``cta`` takes of the machine, and rules about it as a whole.

Warps, registers, named barriers and shared memory are each given out once; a ring has one role
that fills it and some that empty it. ``part_offsets`` and ``shared_spans`` say how shared memory is
laid out, for whoever places it or computes addresses. What happens in which order is not looked
at here (see ``order``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.levels import cta, flow, memory
from tilec.ir.types import Ring, Shared
from tilec.ir.verify import Fault
from tilec.layout.shared import swizzle_of
from tilec.targets.base import Target

WARP = 32
WARPGROUP = 4 * WARP
MBARRIER_BYTES = 8
SWIZZLED_ALIGNMENT = 1024
"""Swizzles exchange bits of absolute addresses, the widest within blocks of 1024 bytes."""
PLAIN_ALIGNMENT = 128
"""TMA's alignment of a shared address."""


# --- shared memory -----------------------------------------------------------------------------


def shared_bytes(type: Shared) -> int:
    """Bytes of a shared tile, as its layout spreads it."""
    return type.layout.size("off") * type.dtype.bytes


def alignment(type: Shared) -> int:
    """Bytes that the address of a shared tile must be a multiple of."""
    return SWIZZLED_ALIGNMENT if swizzle_of(type.layout) else PLAIN_ALIGNMENT


def part_offsets(ring: Ring) -> tuple[tuple[int, ...], int]:
    """Byte offset of each part within a stage, and the bytes from one stage to the next.

    Parts start on multiples of 1024 bytes, so that any of them may be swizzled.
    """
    offsets, at = [], 0
    for part in ring.parts:
        if not isinstance(part, Shared):
            raise TypeError(f"a ring's part is a shared tile, not {part}")
        offsets.append(at)
        at += _up(shared_bytes(part), SWIZZLED_ALIGNMENT)
    return tuple(offsets), at


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@dataclass(frozen=True)
class SharedSpan:
    """Bytes of shared memory that something placed occupies."""

    op: Op
    what: str
    start: int
    size: int
    alignment: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.start + self.size


def shared_spans(kernel: Kernel) -> list[SharedSpan]:
    """Everything that the placement has put into shared memory, in text order."""
    spans: list[SharedSpan] = []
    for op in kernel.body.walk():
        if isinstance(op, cta.Buffer) and op.offset >= 0 and isinstance(op.type, Shared):
            name = f"the buffer %{op.out.name}"
            spans.append(SharedSpan(op, name, op.offset, shared_bytes(op.type), alignment(op.type)))
        elif isinstance(op, cta.MakeRing) and isinstance(op.type, Ring):
            if op.offset >= 0:
                size = op.type.stages * part_offsets(op.type)[1]
                what = f"the ring %{op.out.name}"
                spans.append(SharedSpan(op, what, op.offset, size, SWIZZLED_ALIGNMENT))
            if op.barriers >= 0:
                size = 2 * op.type.stages * MBARRIER_BYTES
                what = f"the barriers of %{op.out.name}"
                spans.append(SharedSpan(op, what, op.barriers, size, MBARRIER_BYTES))
    return spans


def _shared_faults(kernel: Kernel, limit: int | None) -> Iterator[Fault]:
    """One fault a span: what is misplaced may well overlap too, and what overlaps end too far."""
    spans = shared_spans(kernel)
    faulty: set[SharedSpan] = set()
    for span in spans:
        if span.start % span.alignment:
            faulty.add(span)
            yield Fault(
                span.op,
                f"{span.what} begins at byte {span.start}, no multiple of {span.alignment}",
            )
    ordered = sorted(spans, key=lambda s: s.start)
    for before, after in pairwise(ordered):
        if after.start < before.end and not faulty & {before, after}:
            faulty |= {before, after}
            yield Fault(
                after.op,
                f"{after.what} begins at byte {after.start} inside {before.what} "
                f"({before.start} to {before.end})",
            )
    claimed = kernel.attributes.get("shared_bytes")
    for span in ordered if not faulty else ():
        if limit is not None and span.end > limit:
            yield Fault(span.op, f"{span.what} ends at byte {span.end}, a CTA has {limit}")
        elif claimed is not None and span.end > claimed:
            yield Fault(span.op, f"{span.what} ends at byte {span.end}, shared_bytes is {claimed}")
    placed = {span.op for span in spans}
    for op in kernel.body.walk() if spans else ():
        if isinstance(op, cta.Buffer | cta.MakeRing) and (
            op not in placed or (isinstance(op, cta.MakeRing) and min(op.offset, op.barriers) < 0)
        ):
            yield Fault(op, "other shared objects have a place, this one has none")


# --- warps and registers -----------------------------------------------------------------------


def _roles(kernel: Kernel) -> list[cta.Role]:
    return [op for op in kernel.body.ops if isinstance(op, cta.Role)]


def _nesting_faults(kernel: Kernel) -> Iterator[Fault]:
    """Roles stand at the top; what a group does stands in a role."""
    anywhere = (
        cta.ExtentOf,
        cta.Grid,
        cta.TensorMapOf,
        cta.CtaIndex,
        cta.CtaCount,
        cta.MakeRing,
        cta.Buffer,
        cta.Turns,
        cta.Role,
    )
    for op in kernel.body.ops:
        if op.name.startswith("cta.") and not isinstance(op, anywhere):
            yield Fault(op, "this op is done by a role and must stand in one")
        for region in op.regions:
            for inner in region.walk():
                if isinstance(inner, cta.Role | cta.MakeRing | cta.Buffer | cta.Turns | cta.Grid):
                    yield Fault(inner, "this op must stand at the top of the kernel")


def _share_warps(one: cta.Role, other: cta.Role) -> bool:
    return one.first < other.first + other.warps and other.first < one.first + one.warps


def _warp_faults(kernel: Kernel) -> Iterator[Fault]:
    roles = _roles(kernel)
    meeting = [(o, r) for n, r in enumerate(roles) for o in roles[:n] if _share_warps(o, r)]
    for other, role in meeting:
        yield Fault(role, f"its warps overlap with those of role {other.label}")
    if not roles or meeting:
        return
    last = max(roles, key=lambda r: r.first + r.warps)
    end = last.first + last.warps
    threads = kernel.attributes.get("threads")
    if not isinstance(threads, int) or threads % WARP:
        yield Fault(last, "the kernel's attribute threads must give its threads, whole warps")
    elif not end * WARP <= threads <= _up(end * WARP, WARPGROUP):
        yield Fault(
            last, f"the roles have {end} warps, the kernel's threads = {threads} do not fit them"
        )


def _register_faults(kernel: Kernel, limit: int | None) -> Iterator[Fault]:
    """Registers are set for whole warpgroups (PTX ISA, setmaxnreg)."""
    by_warpgroup: dict[int, cta.Role] = {}
    for role in _roles(kernel):
        if role.registers and (role.registers % 8 or not 24 <= role.registers <= 256):
            yield Fault(
                role, f"registers = {role.registers}: a multiple of 8 from 24 to 256 is needed"
            )
        for warpgroup in range(role.first // 4, -(-(role.first + role.warps) // 4)):
            other = by_warpgroup.setdefault(warpgroup, role)
            if other is not role and _share_warps(other, role):
                return  # said already, and whose the registers are is open
            if other.registers != role.registers:
                yield Fault(
                    role,
                    f"role {other.label} in the same warpgroup has registers = "
                    f"{other.registers}, this one {role.registers}",
                )
                break
    total = sum(role.registers for role in by_warpgroup.values()) * WARPGROUP
    if limit is not None and total > limit:
        most = max(by_warpgroup.values(), key=lambda r: r.registers)
        yield Fault(most, f"the roles ask for {total} registers in all, there are {limit}")


# --- named barriers ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Named:
    """A range of named barriers, and what it is used for."""

    op: Op
    user: Any
    what: str
    first: int
    count: int


def _named_barriers(kernel: Kernel) -> Iterator[_Named]:
    for op in kernel.body.ops:
        if isinstance(op, cta.Turns):
            yield _Named(op, op, f"the turns %{op.out.name}", op.barrier, op.groups)
    for role in _roles(kernel):
        groups = role.warps // role.group
        for op in role.body.walk():
            if isinstance(op, cta.Sync | cta.Exchange | memory.Share):
                user = (role, op.barrier)
                yield _Named(op, user, f"role {role.label}", op.barrier, groups)


def _barrier_faults(kernel: Kernel, limit: int) -> Iterator[Fault]:
    """Barrier 0 orders the set-up before the roles start."""
    taken: dict[int, _Named] = {}
    told: set[Any] = set()
    for use in _named_barriers(kernel):
        if use.first < 1 or use.first + use.count > limit:
            yield Fault(
                use.op,
                f"it uses named barriers {use.first} to {use.first + use.count - 1}; "
                f"1 to {limit - 1} may be used",
            )
        for number in range(use.first, use.first + use.count):
            other = taken.setdefault(number, use)
            if other.user != use.user and use.user not in told:
                told.add(use.user)
                yield Fault(use.op, f"named barrier {number} is also used by {other.what}")
                break


def _group_faults(kernel: Kernel) -> Iterator[Fault]:
    """Ops that name their group or its size agree with the role."""
    for role in _roles(kernel):
        groups, number = role.warps // role.group, role.body.args[0]
        for op in role.body.walk():
            if isinstance(op, cta.Sync) and op.threads != role.group * WARP:
                yield Fault(
                    op, f"threads = {op.threads}, a group of the role has {role.group * WARP}"
                )
            if isinstance(op, cta.Sync | cta.WaitTurn | cta.PassTurn) and op.group is not number:
                yield Fault(op, "its operand must be the group's number, the role's argument")
            if isinstance(op, cta.Product) and role.group != 4:
                yield Fault(op, f"a product needs a group of 4 warps, the role has {role.group}")
            if isinstance(op, cta.WaitTurn | cta.PassTurn) and op.turns.type.groups != groups:
                yield Fault(
                    op, f"the turns are among {op.turns.type.groups} groups, the role has {groups}"
                )


def _reaches(value: Value[Any], wanted: Value[Any]) -> bool:
    """Whether ``value`` is computed from ``wanted``."""
    seen: set[Value[Any]] = set()
    waiting = [value]
    while waiting:
        at = waiting.pop()
        if at is wanted:
            return True
        if at not in seen and isinstance(at.owner, Op):
            waiting.extend(at.owner.operands)
        seen.add(at)
    return False


def _own_place(value: Value[Any], group: Value[Any]) -> bool:
    """Whether a shared tile is seen through a window that depends on the group's number."""
    made = value.owner
    if isinstance(made, cta.Window):
        return _reaches(made.block, group) or _own_place(made.x, group)
    if isinstance(made, cta.TransposeView):
        return _own_place(made.x, group)
    return False


def _place_faults(kernel: Kernel) -> Iterator[Fault]:
    """Groups run one body at the same time: each writes to rows of its own.

    Where turns or a branch set one group apart, it is left to them.
    """
    for role in _roles(kernel):
        ordered = any(isinstance(op, cta.WaitTurn) for op in role.body.walk())
        if role.warps == role.group or ordered:
            continue
        for op in role.body.walk():
            if (
                isinstance(op, cta.Put)
                and not _own_place(op.target, role.body.args[0])
                and not _in_branch(role.body, op)
            ):
                yield Fault(
                    op,
                    f"{role.warps // role.group} groups write the same tile: "
                    "a cta.window by the group's number gives each its own rows",
                )


# --- who fills a ring and who empties it -------------------------------------------------------


def _in_branch(region: Region, op: Op) -> bool:
    """Whether ``op`` stands in some branch of ``region``."""
    for outer in region.walk():
        if isinstance(outer, flow.If):
            for nested in outer.regions:
                if any(inner is op for inner in nested.walk()):
                    return True
    return False


def _ring_faults(kernel: Kernel) -> Iterator[Fault]:
    users: dict[Value[Any], dict[str, list[tuple[cta.Role, Op]]]] = defaultdict(
        lambda: {"acquire": [], "wait": [], "release": []}
    )
    turns: dict[Value[Any], cta.Role] = {}
    for role in _roles(kernel):
        for op in role.body.walk():
            if isinstance(op, cta.Acquire | cta.Wait | cta.Release):
                users[op.ring][op.name.removeprefix("cta.")].append((role, op))
            if isinstance(op, cta.WaitTurn | cta.PassTurn):
                other = turns.setdefault(op.turns, role)
                if other is not role:
                    yield Fault(op, f"role {other.label} takes the same turns")
    for ring in kernel.body.ops:
        if isinstance(ring, cta.MakeRing):
            yield from _one_ring_faults(ring, users[ring.out])


def _one_ring_faults(
    ring: cta.MakeRing, users: dict[str, list[tuple[cta.Role, Op]]]
) -> Iterator[Fault]:
    if not users["acquire"]:
        yield Fault(ring, "no role acquires stages of this ring, so nothing is ever loaded")
    if not users["wait"] or not users["release"]:
        yield Fault(ring, "no role waits for stages of this ring and releases them")
    for role, op in users["acquire"]:
        first = users["acquire"][0][0]
        if role is not first:
            yield Fault(op, f"role {first.label} fills this ring already: one role fills a ring")
        elif role.warps > role.group and not _in_branch(role.body, op):
            yield Fault(
                op,
                f"{role.warps // role.group} groups would each fill this stage: "
                "one group fills a ring",
            )


def resource_faults(kernel: Kernel, target: Target | None) -> list[Fault]:
    """Everything that is given out twice, not at all, or beyond the target's limits."""
    return [
        *_nesting_faults(kernel),
        *_warp_faults(kernel),
        *_register_faults(kernel, target.registers_per_sm if target else None),
        *_barrier_faults(kernel, target.named_barriers if target else 16),
        *_group_faults(kernel),
        *_place_faults(kernel),
        *_ring_faults(kernel),
        *_shared_faults(kernel, target.shared_per_cta if target else None),
    ]
