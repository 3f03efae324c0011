"""Family ``cluster``: CTAs of level ``cta`` that run together and share what they load.

A kernel with a ``cluster.shape`` is launched in clusters of ``shape[0] * shape[1]`` CTAs with
neighbouring numbers; a CTA's place in its cluster is its ``cluster.rank`` along each of the two
axes, the last one fastest. A ring says along which axes its CTAs want the same tile for a part
(``shared_along``): each of these CTAs loads an equal share of the part's rows into that stage of
all of them. So a full barrier still counts the bytes of all parts, and a stage is empty when every
CTA that its loads reach has released it. All threads of a cluster meet twice: when the mbarriers
are set up, before any role starts, and when all roles are over, before any CTA ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilec.ir.core import Op, Value
from tilec.ir.declare import Effects, attribute, result
from tilec.ir.types import S32, Scalar, Type

MOST_CTAS = 8
"""CTAs of a cluster on any device that has clusters (CUDA programming guide, clusters)."""


class Shape(Op, name="cluster.shape", effects=Effects.ORDERS):
    """CTAs of a cluster along its two axes; the grid is a whole number of clusters."""

    shape: tuple[int, ...] = attribute()

    def check(self) -> Iterator[str]:
        """Two powers of two, and no more CTAs than a cluster may have."""
        bad = [n for n in self.shape if n < 1 or n & (n - 1)]
        if len(self.shape) != 2 or bad:
            yield f"a cluster's shape is two powers of two, not {self.shape}"
        elif self.shape[0] * self.shape[1] > MOST_CTAS:
            yield f"a cluster has at most {MOST_CTAS} CTAs, {self.shape} are more"


class Rank(Op, name="cluster.rank"):
    """This CTA's place in its cluster along ``axis``."""

    axis: int = attribute()
    out: Value[Scalar] = result()

    def infer(self) -> Sequence[Type]:
        """An s32."""
        return [Scalar(S32)]

    def check(self) -> Iterator[str]:
        """There are two axes."""
        if self.axis not in (0, 1):
            yield f"a cluster has axes 0 and 1, not {self.axis}"


class ClusterIndex(Op, name="cluster.index"):
    """The number of this CTA's cluster in the grid."""

    out: Value[Scalar] = result()

    def infer(self) -> Sequence[Type]:
        """An s32."""
        return [Scalar(S32)]


class ClusterCount(Op, name="cluster.count"):
    """The number of clusters in the grid."""

    out: Value[Scalar] = result()

    def infer(self) -> Sequence[Type]:
        """An s32."""
        return [Scalar(S32)]
