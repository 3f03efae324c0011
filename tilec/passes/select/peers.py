"""What CTAs of a cluster do to one another, in ``ptx`` form: multicast and remote arrivals.

A rank is a number below a power of two, so places in the cluster are bits of it: the sharers of a
tile are a constant mask shifted by the bits of the other axis. Everything here is computed once a
kernel, or once a role.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilec.ir.clusters import cluster_shape, partners, sharers, strides
from tilec.ir.core import Builder, Value
from tilec.ir.levels import cta, ptx
from tilec.passes.select.selector import PtxValue, Selector

Along = tuple[int, ...]


def cluster_rank(sel: Selector, axis: int) -> PtxValue:
    """This CTA's place in its cluster along one axis."""
    shape = cluster_shape(sel.kernel)
    columns = shape[1].bit_length() - 1

    def make(build: Builder) -> PtxValue:
        rank = _rank(sel)
        if axis == 0:
            return sel.alu_on(build, "shr.u32", rank, columns)
        return sel.alu_on(build, "and.b32", rank, shape[1] - 1)

    return sel.at_kernel(("cluster rank", axis), make)


def _rank(sel: Selector) -> PtxValue:
    return sel.at_kernel(
        "cluster rank",
        lambda build: build.add(ptx.Special(register="cluster_ctarank"), "rank").out,
    )


def _mask(sel: Selector, along: Along) -> PtxValue:
    """A bit for each CTA that shares along these axes, as 32 bits."""
    shape = cluster_shape(sel.kernel)
    base = sum(1 << rank for rank in sharers(shape, along, 0))

    def make(build: Builder) -> PtxValue:
        mask: PtxValue | None = None
        for axis in (0, 1):
            if axis in along or shape[axis] == 1:
                continue
            shift = cluster_rank(sel, axis)
            if strides(shape)[axis] > 1:
                shift = sel.alu_on(build, "mul.lo.u32", shift, strides(shape)[axis])
            mask = sel.alu_on(build, "shl.b32", base if mask is None else mask, shift)
        return sel.alu_on(build, "mov.b32", base) if mask is None else mask

    return sel.at_kernel(("sharers", along), make)


@dataclass(frozen=True)
class Share:
    """The share of a tile that this CTA brings to all that want it."""

    number: PtxValue
    mask: PtxValue


def own_share(sel: Selector, along: Along) -> Share:
    """Which share is this CTA's, and the CTAs that get it."""
    shape = cluster_shape(sel.kernel)

    def number(build: Builder) -> PtxValue:
        if set(along) == {0, 1}:
            return _rank(sel)
        return cluster_rank(sel, along[0])

    def mask(build: Builder) -> PtxValue:
        return sel.alu_on(build, "cvt.u16.u32", _mask(sel, along), kind="b16")

    assert all(shape[axis] > 1 for axis in along)
    return Share(sel.at_kernel(("share", along), number), sel.at_kernel(("multicast", along), mask))


def shared_axes(ring: Value[Any]) -> tuple[Along, ...]:
    """The axes along which the parts of a ring are shared."""
    made = ring.owner
    return made.shared_along if isinstance(made, cta.MakeRing) else ()


def releasing_ctas(sel: Selector, ring: Value[Any]) -> int:
    """CTAs that must give a stage back before it is filled again."""
    return len(partners(cluster_shape(sel.kernel), shared_axes(ring), 0))


def release_everywhere(sel: Selector, ring: Value[Any], empty: int, slot: PtxValue) -> None:
    """Arrive at the empty barrier of each CTA that fills the stage: a lane for each of them.

    The default scope is enough: what was read is over when the lane arrives, and nothing was
    written (`.release.cluster` costs a fence of all memory, docs/hardware.md).
    """
    shape = cluster_shape(sel.kernel)
    most = shape[0] * shape[1]

    def reaches(build: Builder) -> PtxValue:
        # Lanes beyond the mask's sixteen bits find zeros in it.
        mask: PtxValue | None = None
        for along in dict.fromkeys(along for along in shared_axes(ring) if along):
            one = _mask(sel, along)
            mask = one if mask is None else sel.alu_on(build, "or.b32", mask, one)
        assert mask is not None
        mine = sel.alu_on(build, "shr.u32", mask, sel.lane())
        mine = sel.alu_on(build, "and.b32", mine, 1)
        return sel.alu_on(build, "setp.ne.u32", mine, 0, kind="pred")

    def address(build: Builder) -> PtxValue:
        first = sel.alu_on(build, "add.u32", sel.shared_base(), empty)
        peer = sel.alu_on(build, "and.b32", sel.lane(), most - 1)
        return build.add(ptx.Mapa(first, peer)).out

    guard = sel.at_kernel(("partners", ring), reaches)
    first = sel.at_kernel(("remote", empty, most), address)
    remote = sel.alu("mad.lo.u32", slot, 8, first)
    sel.build.add(ptx.MbarrierArrive(remote, guard=guard, cluster=True))
