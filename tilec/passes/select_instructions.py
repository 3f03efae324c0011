"""Selection: every ``cta`` op becomes instructions over virtual registers.

The kernel's scalar facts come first, then the set-up of all mbarriers by one thread, then the
roles. The launch record (parameters, grid) is left in the kernel's attributes. Nothing is
decided here that the ``cta`` dump does not already say; where no instruction fits, ``Refused``
names the op and the reason.
"""

from __future__ import annotations

from typing import Any

from tilec.ir import rewrite
from tilec.ir.alternation import releasing_groups
from tilec.ir.clusters import ALONE, cluster_shape
from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import cluster, cta, math, ptx
from tilec.ir.types import Array, Scalar
from tilec.passes.base import Context, tile_pass
from tilec.passes.select import control, load_rules
from tilec.passes.select.copies import arrivals_of_copies
from tilec.passes.select.peers import cluster_rank, releasing_ctas
from tilec.passes.select.rings import RingRecord
from tilec.passes.select.selector import Selector, lowers, register_kind

load_rules()

_GRID_OPS: dict[type[Op], str] = {
    math.Add: "add",
    math.Sub: "sub",
    math.Mul: "mul",
    math.CeilDiv: "ceildiv",
    math.FloorDiv: "floordiv",
    math.Mod: "mod",
    math.Min: "min",
    math.Max: "max",
}


def host_expression(value: Value[Any]) -> Any:
    """A launch-time scalar as a nested tuple that the launcher evaluates."""
    op = value.owner
    if isinstance(op, math.Constant) and isinstance(op.value, int):
        return op.value
    if isinstance(op, cta.ExtentOf):
        return ("extent", op.array.name, op.axis)
    if isinstance(op, Op) and type(op) in _GRID_OPS:
        return (_GRID_OPS[type(op)], *(host_expression(v) for v in op.operands))
    raise Refused(f"the grid cannot be computed before the launch: it depends on {value!r}")


@lowers(cta.Grid)
def _grid(sel: Selector, op: cta.Grid) -> None:
    sel.kernel.attributes["grid"] = host_expression(op.count)


@lowers(cta.ExtentOf)
def _extent(sel: Selector, op: cta.ExtentOf) -> None:
    name = op.out.name or f"{op.array.name}_extent{op.axis}"
    sel.set(op.out, sel.parameter("extent", op.array.name, op.axis, bits="b32", name=name))


@lowers(cta.CtaIndex)
def _index(sel: Selector, op: cta.CtaIndex) -> None:
    sel.set(op.out, sel.build.add(ptx.Special(register="ctaid.x")).out)


@lowers(cta.CtaCount)
def _count(sel: Selector, op: cta.CtaCount) -> None:
    sel.set(op.out, sel.build.add(ptx.Special(register="nctaid.x")).out)


@lowers(cluster.Shape)
def _cluster(sel: Selector, op: cluster.Shape) -> None:
    sel.kernel.attributes["cluster"] = op.shape[0] * op.shape[1]


@lowers(cluster.Rank)
def _rank(sel: Selector, op: cluster.Rank) -> None:
    sel.set(op.out, cluster_rank(sel, op.axis))


@lowers(cluster.ClusterIndex)
def _cluster_index(sel: Selector, op: cluster.ClusterIndex) -> None:
    sel.set(op.out, sel.build.add(ptx.Special(register="clusterid.x")).out)


@lowers(cluster.ClusterCount)
def _cluster_count(sel: Selector, op: cluster.ClusterCount) -> None:
    sel.set(op.out, sel.build.add(ptx.Special(register="nclusterid.x")).out)


@lowers(cta.Role)
def _stray_role(sel: Selector, op: cta.Role) -> None:
    raise Refused("roles stand in the kernel's body only")


def _read_argument(sel: Selector, arg: Value[Scalar], kind: str) -> None:
    if kind != "pred":
        sel.set(arg, sel.parameter("scalar", arg.name, bits=kind, name=arg.name))
        return
    # PTX ISA, .param: a predicate is no type of a kernel parameter.
    word = sel.parameter("scalar", arg.name, bits="b32", name=arg.name)
    sel.set(arg, sel.alu_on(sel.kernel_entry, "setp.ne.u32", word, 0, kind="pred"))


@tile_pass("select-instructions", level="cta", produces="ptx")
def select_instructions(kernel: Kernel, ctx: Context) -> None:
    """Every op is an instruction over virtual registers or a fixed template."""
    sel = Selector(kernel, ctx)
    sel.build.loc = sel.kernel_entry.loc = next(
        (op.loc for op in kernel.body.ops if isinstance(op, cta.Role)), None
    )
    for arg in kernel.body.args:
        if isinstance(arg.type, Scalar):
            _read_argument(sel, arg, register_kind(arg.type.dtype))
        elif not isinstance(arg.type, Array):
            raise Refused(f"{arg!r} cannot be a kernel parameter")
    roles: list[cta.Role] = []
    for op in kernel.body.ops:
        if isinstance(op, cta.Role):
            roles.append(op)
        else:
            sel.op(op)
    _init_barriers(sel, roles)
    control.lower_roles(sel, roles)
    if cluster_shape(kernel) != ALONE:
        sel.build.add(ptx.ClusterSync())  # no CTA ends while others may reach into it
    body = Region(kernel.body.args, [*sel.kernel_entry.region.ops, *sel.body.ops])
    rewrite.remove_duplicates(body)
    rewrite.remove_dead(body)
    kernel.body = body
    _keep_used_parameters(kernel, sel.parameters)


def _init_barriers(sel: Selector, roles: list[cta.Role]) -> None:
    """One thread initialises every mbarrier; then all threads see them."""
    made = {value: r for value, r in sel.records.items() if isinstance(r, RingRecord)}
    clustered = cluster_shape(sel.kernel) != ALONE
    if not made:
        return
    first = sel.alu("setp.eq.u32", sel.thread(), 0, kind="pred")
    body = Region()
    base = sel.shared_base()
    with sel.build.inside(body):
        for value, ring in made.items():
            releasing = sum(role.group * releasing_groups(role, value) for role in roles)
            releasing *= releasing_ctas(sel, value)
            filling = int(ring.tma_bytes > 0) + arrivals_of_copies(sel.kernel, value, roles)
            for stage in range(ring.stages):
                full = ring.full + 8 * stage
                sel.build.add(ptx.MbarrierInit(base, offset=full, arrivals=filling))
                sel.build.add(
                    ptx.MbarrierInit(base, offset=ring.empty + 8 * stage, arrivals=releasing)
                )
        if sel.ctx.target.has_clusters:
            sel.build.add(ptx.Fence(kind="mbarrier_init"))
        sel.build.add(ptx.Yield(()))
    empty = Region([], [ptx.Yield(())])
    sel.build.add(ptx.If(first, types=(), then=body, otherwise=empty))
    if clustered:
        sel.build.add(ptx.ClusterSync())
        return
    threads = sel.kernel.attributes["threads"]
    sel.build.add(ptx.BarrierSync(sel.constant(0), threads=threads))


def _keep_used_parameters(kernel: Kernel, parameters: list[tuple[Any, ...]]) -> None:
    """Number the parameters that are still read, in order of first use."""
    used: dict[int, int] = {}
    for op in kernel.body.walk():
        if isinstance(op, ptx.Parameter):
            op.index = used.setdefault(op.index, len(used))
    kernel.attributes["parameters"] = tuple(parameters[old] for old in used)
