"""The checked program: every expression has a type, and nothing implicit is left in it.

Conversions of literals, inserted axes and broadcasts are nodes of their own; names have become
``Variable`` objects, each defined once, so a loop lists what it carries. ``lower`` maps these
nodes to ops one by one and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilec.ir.types import DType, Extent
from tilec.layout.linear import Layout
from tilec.source import SourceFile, Span

Constant = int | float | bool


@dataclass(frozen=True)
class Axis:
    """One axis of a tile: how long it is, what its indices run over, and which index it carries.

    Axes are the same when all three agree. ``origin`` is ``static`` for a known extent, ``whole``
    for all of a run-time dimension, else the unique name of a loop's index.
    """

    size: Extent
    extent: Extent
    origin: str
    span: Span | None = field(default=None, compare=False)

    @classmethod
    def static(cls, extent: int) -> Axis:
        """An axis whose extent is known."""
        return cls(extent, extent, "static")

    @classmethod
    def whole(cls, dim: str) -> Axis:
        """All of a dimension that is known at launch only."""
        return cls(f"${dim}", dim, "whole")

    @property
    def is_one(self) -> bool:
        """Whether the axis repeats to meet any other."""
        return self.origin == "static" and self.size == 1

    def __str__(self) -> str:
        if self.origin == "static":
            return str(self.size)
        if self.origin == "whole":
            return f":{self.extent}"
        return self.origin.partition("#")[0]


@dataclass(frozen=True)
class ScalarType:
    """One element. A weak one is a literal that takes the element type of what it meets."""

    dtype: DType
    weak: bool = False

    def __str__(self) -> str:
        return f"the literal kind of {self.dtype}" if self.weak else str(self.dtype)


@dataclass(frozen=True)
class TileType:
    """Elements along axes."""

    dtype: DType
    axes: tuple[Axis, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.axes))}]"


@dataclass(frozen=True)
class IndexType:
    """The indices of one axis: a subscript, a shape argument, or a tile of s32."""

    axis: Axis

    def __str__(self) -> str:
        return f"the indices of {self.axis.extent}"


@dataclass(frozen=True)
class ArrayType:
    """A parameter in global memory."""

    dtype: DType
    dims: tuple[Extent, ...]
    mode: str

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.dims))}]"


ValueType = ScalarType | TileType | IndexType | ArrayType


@dataclass(eq=False)
class Variable:
    """A value with a name.

    Proofs about subscripts read ``value``, what an integer scalar was set to, and ``bounds``: a
    loop's variable runs from the first and stays below the second.
    """

    name: str
    type: ValueType
    span: Span
    value: Expr | None = None
    bounds: tuple[Expr, Expr] | None = None


@dataclass(eq=False)
class Expr:
    """Base of checked expressions."""

    type: ValueType
    span: Span


@dataclass(eq=False)
class Const(Expr):
    """A number known at compile time."""

    value: Constant


@dataclass(eq=False)
class ExtentValue(Expr):
    """The value of a dimension that is known at launch."""

    dim: str


@dataclass(eq=False)
class Ref(Expr):
    """What a variable holds."""

    variable: Variable


@dataclass(eq=False)
class Apply(Expr):
    """An elementwise op by its name in ``math``, or its whole name; operands have one shape."""

    op: str
    operands: tuple[Expr, ...]
    strict: bool = False
    total: bool = False
    """Of ``floordiv``: whether the divisor may be zero."""


@dataclass(eq=False)
class Relation(Expr):
    """An elementwise comparison: lt, le, gt, ge, eq or ne."""

    relation: str
    left: Expr
    right: Expr


@dataclass(eq=False)
class Cast(Expr):
    """Conversion to the element type of ``type``."""

    operand: Expr
    saturate: bool = True


@dataclass(eq=False)
class Fill(Expr):
    """A tile of one repeated scalar."""

    operand: Expr


@dataclass(eq=False)
class Expand(Expr):
    """An axis of extent 1 inserted before ``axis``."""

    operand: Expr
    axis: int


@dataclass(eq=False)
class Broadcast(Expr):
    """Repeated along axes of extent 1, to the axes of ``type``."""

    operand: Expr


@dataclass(eq=False)
class Reduction(Expr):
    """Combined along one axis, which disappears."""

    operand: Expr
    axis: int
    kind: str
    strict: bool = False


@dataclass(eq=False)
class Scanned(Expr):
    """Each element combined with all before it along an axis; ``reverse``: with all after it."""

    operand: Expr
    axis: int
    kind: str
    reverse: bool = False


@dataclass(eq=False)
class AnchorOf(Expr):
    """A value a row that exponents are measured from; without ``slack`` the widest that is safe."""

    running: Expr
    scores: Expr
    slack: float | None


@dataclass(eq=False)
class Positions(Expr):
    """0, 1, 2, ... along an axis of known extent."""


@dataclass(eq=False)
class Workspace(Expr):
    """An array in global memory that the launcher owns."""

    extents: tuple[Expr, ...]


@dataclass(eq=False)
class Transposed(Expr):
    """The two axes exchanged."""

    operand: Expr


@dataclass(eq=False)
class Product(Expr):
    """``left @ right + start``; without ``start`` it starts from zero."""

    left: Expr
    right: Expr
    start: Expr | None
    precision: str = ""


@dataclass(eq=False)
class Indices(Expr):
    """The indices of an ``IndexType`` as a tile of s32."""

    operand: Expr


@dataclass(eq=False)
class ValidCount(Expr):
    """How many indices are valid."""

    operand: Expr


@dataclass(eq=False)
class WholeAxis(Expr):
    """The subscript ``:`` on one axis of an array."""

    array: Variable
    axis: int


@dataclass(eq=False)
class PartAxis(Expr):
    """The subscript ``start:stop`` on one axis of an array; its length is that of ``type``."""

    array: Variable
    axis: int
    start: int


@dataclass(eq=False)
class Sliced(Expr):
    """Elements from ``start`` on along an axis of a tile; how many, ``type`` says."""

    operand: Expr
    axis: int
    start: int


@dataclass(eq=False)
class Load(Expr):
    """Elements of an array, one subscript an axis."""

    array: Variable
    subscripts: tuple[Expr, ...]


@dataclass(eq=False)
class Gathered(Expr):
    """Elements of an array at computed places, and ``fill`` where there is none."""

    array: Variable
    places: tuple[Expr, ...]
    fill: Expr


@dataclass(eq=False)
class MeaningOf(Expr):
    """What instructions give, and what the author says that it is."""

    operand: Expr
    says: Expr


@dataclass(eq=False)
class Atomic(Expr):
    """Elements at places are updated; what was there, and ``fill`` outside the array.

    ``update`` is the name of an operation; with ``expected`` elements that equal it are replaced.
    """

    array: Variable
    places: tuple[Expr, ...]
    expected: Expr | None
    value: Expr
    fill: Expr
    update: str


@dataclass(eq=False)
class Statement:
    """Base of checked statements."""

    span: Span


@dataclass(eq=False)
class Let(Statement):
    """A variable gets its value."""

    variable: Variable
    value: Expr


@dataclass(eq=False)
class Combined(Statement):
    """Tuples of elements are combined along an axis by a function of two tuples of scalars."""

    operands: list[Expr]
    parameters: list[Variable]
    body: list[Statement]
    results: list[Expr]
    axis: int
    identity: tuple[int | float | bool, ...]
    scan: bool
    reverse: bool
    out: list[Variable]


@dataclass(eq=False)
class PtxSteps(Statement):
    """Instructions on each element of ``operands`` give the variables their values."""

    variables: list[Variable]
    operands: tuple[Expr, ...]
    program: tuple[tuple[str, int, tuple[int, ...], tuple[Any, ...]], ...]
    locals: tuple[str, ...]


@dataclass(eq=False)
class Pinned(Statement):
    """A tile's home, as the author wants it: ``shared`` or ``register``."""

    value: Expr
    home: str
    layout: Layout | None = None
    arrangement: str = ""
    swizzle: int = -1
    """How it lies there, where the author says; see ``author.home``."""


@dataclass(eq=False)
class Assertion(Statement):
    """What the author says to hold, for every element, and the index of each axis that has one."""

    condition: Expr
    text: str
    indices: list[tuple[int, Expr]]


@dataclass(eq=False)
class Printed(Statement):
    """A value to show, and the index of each axis that has one."""

    text: str
    value: Expr
    indices: list[tuple[int, Expr]]


@dataclass(eq=False)
class Store(Statement):
    """Elements of an array are written, or updated in memory where ``update`` says how."""

    array: Variable
    subscripts: tuple[Expr, ...]
    value: Expr
    update: str = ""


@dataclass(eq=False)
class Scatter(Statement):
    """Elements at computed places are written or updated; those outside the array are dropped."""

    array: Variable
    places: tuple[Expr, ...]
    value: Expr
    update: str = ""


@dataclass(eq=False)
class Require(Statement):
    """A condition on the launch."""

    condition: Expr


@dataclass(eq=False)
class Carried:
    """One value handed from iteration to iteration; ``last`` is ``current`` if never assigned."""

    initial: Expr
    current: Variable
    last: Expr
    final: Variable

    @property
    def unchanged(self) -> bool:
        """Whether a loop hands the value on as it got it."""
        return isinstance(self.last, Ref) and self.last.variable is self.current


@dataclass(eq=False)
class Joining:
    """How the states of two neighbouring parts of a loop make one: two sets of what it carries."""

    left: list[Variable]
    right: list[Variable]
    body: list[Statement]
    results: list[Expr]


@dataclass(eq=False)
class LoopAxis:
    """One loop variable: a tile size for an index, or 0 for a scalar, and what it runs up to.

    A range from memory also has its first index, its end, and the length of the dimension that it
    lies in; ``extent`` is then the most indices that it has.
    """

    variable: Variable
    extent: Expr
    size: Extent
    within: tuple[Expr, Expr, Expr] | None = None


@dataclass(eq=False)
class Parallel(Statement):
    """One launch over a grid."""

    axes: tuple[LoopAxis, ...]
    body: list[Statement]


@dataclass(eq=False)
class Loop(Statement):
    """An ordered loop over tiles (``axis.size`` not 0) or over scalars, ``start`` by ``step``."""

    axis: LoopAxis
    start: Expr
    step: Expr
    carried: list[Carried]
    body: list[Statement]
    join: Joining | None = None


@dataclass(eq=False)
class Repeat(Statement):
    """An ordered loop while a condition on what it carries holds."""

    test: list[Statement]
    """What the condition needs, computed anew each time."""
    condition: Expr
    carried: list[Carried]
    body: list[Statement]


@dataclass(eq=False)
class Merge:
    """One variable that an ``if`` leaves behind, and its value at the end of each branch."""

    final: Variable
    then: Expr
    otherwise: Expr


@dataclass(eq=False)
class Branch(Statement):
    """A run-time ``if``."""

    condition: Expr
    then: list[Statement]
    otherwise: list[Statement]
    merges: list[Merge]


@dataclass(eq=False)
class Inlined(Statement):
    """The body of the function ``name`` at a call; all in it is at the call's place."""

    name: str
    body: list[Statement]


@dataclass
class CheckedKernel:
    """One kernel with all compile-time parameters bound."""

    name: str
    span: Span
    bindings: dict[str, Constant | DType]
    parameters: list[Variable]
    dims: dict[str, tuple[Variable, int]]
    schedule: dict[str, object] = field(default_factory=dict)
    pins: dict[str, int] = field(default_factory=dict)
    """Tile sizes that the author fixed, by loop name."""
    choices: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Tile sizes that the author offers, by loop name."""
    body: list[Statement] = field(default_factory=list)


@dataclass
class CheckedModule:
    """All kernels of one file."""

    source: SourceFile
    kernels: list[CheckedKernel]

    def kernel(self, name: str) -> CheckedKernel:
        """The kernel of that name; ``KeyError`` lists those that exist."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(f"no kernel {name}; there are {[k.name for k in self.kernels]}")
