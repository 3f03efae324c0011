"""The state of one selection: what stands for each ``cta`` value, and where ops go.

Rules for single ops are functions registered with ``@lowers``; each file beside this one holds
one family of them. A value at level ``cta`` stands for a tuple of ``ptx`` values (most for one;
views of shared memory and rings for a Python record and none). Loop-invariant facts about the
thread are computed once, at the entry of the role or of the kernel (``at_entry``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from tilec.ir.core import Builder, Kernel, Op, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import ptx
from tilec.ir.types import Bits, DType, Register, Scalar, Type
from tilec.layout.index_map import IndexMap, ShiftTerm
from tilec.passes.base import Context
from tilec.passes.ranges import Ranges
from tilec.passes.refusal import within

PtxValue = Value[Bits]
RuleT = TypeVar("RuleT", bound=Callable[..., None])
R = TypeVar("R")
_RULES: dict[type[Op], Callable[..., None]] = {}


def lowers(*classes: type[Op]) -> Callable[[RuleT], RuleT]:
    """Register the way to lower op classes (and subclasses without a rule of their own)."""

    def register(rule: RuleT) -> RuleT:
        _RULES.update(dict.fromkeys(classes, rule))
        return rule

    return register


def register_kind(dtype: DType) -> str:
    """PTX register kind of an unpacked element."""
    if dtype.name == "bool":
        return "pred"
    if dtype.is_float:
        return {64: "f64", 32: "f32", 16: "b16", 8: "b16"}[dtype.bits]
    return {64: "b64", 32: "b32", 16: "b16", 8: "b16"}[dtype.bits]


def is_packed(dtype: DType) -> bool:
    """Whether register tiles of this element type put several elements in a 32-bit register."""
    return dtype.bits < 32 and dtype.name != "bool"


def bits_of(type: Type) -> Bits:
    """The registers that stand for a scalar or register value."""
    if isinstance(type, Scalar):
        return Bits(register_kind(type.dtype), 1)
    if isinstance(type, Register):
        count = type.layout.size("reg")
        if is_packed(type.dtype):
            return Bits("b32", -(-count * type.dtype.bits // 32))
        return Bits(register_kind(type.dtype), count)
    raise Refused(f"{type} does not live in registers")


@dataclass(frozen=True)
class RoleState:
    """Who the running threads are: facts that ops of a role need."""

    label: str
    first: int
    group_warps: int
    groups: int
    producer: bool


class Selector:
    """Lowers one kernel; see the module's docstring."""

    def __init__(self, kernel: Kernel, ctx: Context) -> None:
        self.kernel = kernel
        self.ctx = ctx
        self.ranges = Ranges(kernel.body)
        self.body = Region()
        self.build = Builder(self.body)
        self.values: dict[Value[Any], tuple[PtxValue, ...]] = {}
        self.records: dict[Value[Any], Any] = {}
        self.parameters: list[tuple[Any, ...]] = []
        self.role: RoleState | None = None
        self.entry: Builder = self.build
        self.entry_memo: dict[Hashable, PtxValue] = {}
        self.kernel_entry = Builder(Region())
        self.kernel_memo: dict[Hashable, PtxValue] = {}
        self.cursors: dict[Value[Any], tuple[PtxValue, PtxValue]] = {}
        self.keeps: dict[Value[Any], tuple[PtxValue, ...]] = {}

    # --- walking --------------------------------------------------------------------------------

    def region(self, region: Region) -> None:
        """Lower all ops of a region but its terminator, into the current region."""
        for op in region.ops:
            if not op.is_terminator:
                self.op(op)

    def op(self, op: Op) -> None:
        """Lower one op by the rule of its class or its nearest base that has one."""
        for cls in type(op).__mro__:
            rule = _RULES.get(cls)
            if rule is not None:
                # What a rule adds behind nested ops is its own op's again, not the last one's.
                with self.build.at(op.loc or self.build.loc):
                    try:
                        rule(self, op)
                    except Refused as refusal:
                        raise within(op, refusal) from None
                return
        raise Refused(f"no way to lower {op.name} is known")

    # --- values ---------------------------------------------------------------------------------

    def get(self, value: Value[Any]) -> PtxValue:
        """The one ``ptx`` value that stands for a value."""
        (one,) = self.values[value]
        return one

    def set(self, value: Value[Any], *stand: PtxValue) -> None:
        """Say what stands for a value; names are handed on."""
        for item in stand:
            if not item.name:
                item.name = value.name
        self.values[value] = stand

    def stand_alike(self, value: Value[Any], like: Value[Any]) -> None:
        """Let a carried value stand for as much as the one it is carried from."""
        self.values[value] = self.values[like]
        if like in self.records:
            self.records[value] = self.records[like]

    def constant(self, value: int | float | bool, kind: str = "b32") -> PtxValue:
        """A literal."""
        return self.build.add(ptx.Constant(value=value, type=Bits(kind, 1))).out

    def alu(
        self, opcode: str, *inputs: PtxValue | int | float, kind: str = "b32", count: int = 1
    ) -> PtxValue:
        """One instruction a register; Python numbers become literals of the result's kind."""
        return self.alu_on(self.build, opcode, *inputs, kind=kind, count=count)

    def alu_on(
        self,
        build: Builder,
        opcode: str,
        *inputs: PtxValue | int | float,
        kind: str = "b32",
        count: int = 1,
    ) -> PtxValue:
        """As ``alu``, in another place."""
        values = []
        for item in inputs:
            if isinstance(item, Value):
                values.append(item)
            else:
                literal_kind = "f32" if isinstance(item, float) else "b32"
                if kind in ("b64", "f64") and isinstance(item, float) == (kind == "f64"):
                    literal_kind = kind
                literal = ptx.Constant(value=item, type=Bits(literal_kind, 1))
                values.append(build.add(literal).out)
        return build.add(ptx.Alu(tuple(values), opcode=opcode, type=Bits(kind, count))).out

    def pick(self, value: PtxValue, *picks: int) -> PtxValue:
        """Some registers of a value."""
        if picks == tuple(range(value.type.count)):
            return value
        return self.build.add(ptx.Pick(value, picks=picks)).out

    def join(self, parts: list[PtxValue]) -> PtxValue:
        """Several values as one."""
        return parts[0] if len(parts) == 1 else self.build.add(ptx.Join(tuple(parts))).out

    def at_entry(self, key: Hashable, make: Callable[[Builder], PtxValue]) -> PtxValue:
        """Compute a fact about the thread once for the role."""
        if key not in self.entry_memo:
            self.entry_memo[key] = make(self.entry)
        return self.entry_memo[key]

    def at_kernel(self, key: Hashable, make: Callable[[Builder], PtxValue]) -> PtxValue:
        """Compute a fact once for the kernel, before the roles part."""
        if key not in self.kernel_memo:
            self.kernel_memo[key] = make(self.kernel_entry)
        return self.kernel_memo[key]

    # --- facts about the thread -----------------------------------------------------------------

    def thread(self) -> PtxValue:
        """Number of the thread in its CTA."""
        return self.at_kernel(
            "thread", lambda b: b.add(ptx.Special(register="tid.x"), "thread").out
        )

    def warp(self) -> PtxValue:
        """Number of the warp in its CTA, in a form that ptxas sees to be uniform."""

        def make(build: Builder) -> PtxValue:
            number = self.alu_on(build, "shr.u32", self.thread(), 5)
            out = self.alu_on(build, "shfl.sync.idx.b32", number, 0, 31, 0xFFFFFFFF)
            out.name = "warp"
            return out

        return self.at_kernel("warp", make)

    def lane(self) -> PtxValue:
        """Number of the lane in its warp."""
        return self.at_kernel("lane", lambda b: self.alu_on(b, "and.b32", self.thread(), 31))

    def shared_base(self) -> PtxValue:
        """Address of dynamic shared memory."""
        return self.at_kernel("shared", lambda b: b.add(ptx.SharedBase(), "shared").out)

    def need_role(self) -> RoleState:
        """The current role; refuses outside one."""
        if self.role is None:
            raise Refused("this op belongs inside a role")
        return self.role

    def warp_in_group(self) -> PtxValue:
        """Number of the warp within its group."""
        role = self.need_role()

        def make(build: Builder) -> PtxValue:
            warps = role.group_warps
            if warps & (warps - 1) == 0 and role.first % warps == 0:
                return self.alu_on(build, "and.b32", self.warp(), warps - 1)
            offset = self.alu_on(build, "sub.u32", self.warp(), role.first)
            return self.alu_on(build, "rem.u32", offset, warps)

        return self.at_entry("warp_in_group", make)

    def group(self) -> PtxValue:
        """Number of the group within its role."""
        role = self.need_role()

        def make(build: Builder) -> PtxValue:
            offset = self.alu_on(build, "sub.u32", self.warp(), role.first)
            out = self.alu_on(build, "div.u32", offset, role.group_warps)
            out.name = "group"
            return out

        return self.at_entry("group", make)

    def lane_zero(self) -> PtxValue:
        """True in lane 0 of each warp."""
        return self.at_kernel(
            "lane_zero", lambda b: self.alu_on(b, "setp.eq.u32", self.lane(), 0, kind="pred")
        )

    def elected(self) -> PtxValue:
        """True in one lane of the warp, chosen by the hardware once for the role."""
        if not self.ctx.target.has_elect:
            return self.lane_zero()
        return self.at_entry("elected", lambda b: b.add(ptx.Elect()).out)

    def leader(self) -> PtxValue:
        """True in lane 0 of the group's first warp."""

        def make(build: Builder) -> PtxValue:
            number = self.alu_on(build, "shl.b32", self.warp_in_group(), 5)
            both = self.alu_on(build, "or.b32", number, self.lane())
            return self.alu_on(build, "setp.eq.u32", both, 0, kind="pred")

        return self.at_entry("leader", make)

    def index_map(self, index: IndexMap, constant: int = 0) -> PtxValue:
        """Evaluate a map of (lane, warp) for this thread, XOR ``constant``; at the role's entry."""

        def make(build: Builder) -> PtxValue:
            total: PtxValue | None = None
            for term in index.terms:
                source = self.lane() if term.space == "lane" else self.warp_in_group()
                adds = False
                if isinstance(term, ShiftTerm):
                    part = self.alu_on(build, "and.b32", source, term.mask)
                    if term.shift:
                        opcode = "shl.b32" if term.shift > 0 else "shr.u32"
                        part = self.alu_on(build, opcode, part, abs(term.shift))
                else:
                    part = self.alu_on(build, "div.u32", source, term.weight)
                    part = self.alu_on(build, "rem.u32", part, term.extent)
                    part = self.alu_on(build, "mul.lo.u32", part, term.scale)
                    adds = not term.exclusive
                if total is None:
                    total = part
                else:
                    total = self.alu_on(build, "add.u32" if adds else "xor.b32", total, part)
            if total is None:
                total = self.alu_on(build, "mov.b32", 0)
            return self.alu_on(build, "xor.b32", total, constant) if constant else total

        return self.at_entry(("index_map", index, constant), make)

    # --- parameters -----------------------------------------------------------------------------

    def parameter(self, kind: str, *what: Any, bits: str, name: str = "") -> PtxValue:
        """A kernel parameter of the launch record, read once."""
        entry = (kind, *what)

        def make(build: Builder) -> PtxValue:
            self.parameters.append(entry)
            read = ptx.Parameter(index=len(self.parameters) - 1, type=Bits(bits, 1))
            return build.add(read, name).out

        return self.at_kernel(("parameter", entry), make)


def record(selector: Selector, value: Value[Any], cls: type[R]) -> R:
    """The Python record that stands for a value."""
    found = selector.records.get(value)
    if not isinstance(found, cls):
        raise Refused(f"{value!r} stands for nothing here: views and rings cannot be carried")
    return found
