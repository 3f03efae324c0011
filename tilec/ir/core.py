"""The IR: values, ops, regions, kernels and modules, the same for all levels.

Invariants: a value is defined once, by an op's result or a region's argument, and is visible to
later ops of the same region and to regions nested in them. Ops own their operands by reference;
there are no use lists (whoever needs uses asks ``rewrite.uses``). Nothing here knows any op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

from tilec.ir.declare import (
    Effects,
    FieldSpec,
    attribute,
    operand,
    operands,
    region,
    result,
    result_type,
    result_types,
    results,
)
from tilec.ir.types import Type
from tilec.source import SourceFile

T = TypeVar("T", bound=Type, covariant=True)


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in the ``.tk`` source: 1-based line and column."""

    line: int
    column: int


class Value(Generic[T]):
    """An SSA value. ``name`` is a hint kept from the source; identity is the object."""

    __slots__ = ("name", "owner", "type")

    def __init__(self, type: T, name: str = "", owner: Op | Region | None = None) -> None:
        self.type = type
        self.name = name
        self.owner = owner

    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type}"


class Region:
    """A straight list of ops with arguments; the last op of most regions is a terminator."""

    __slots__ = ("args", "ops")

    def __init__(self, args: Sequence[Value[Any]] = (), ops: Sequence[Op] = ()) -> None:
        self.args: list[Value[Any]] = list(args)
        self.ops: list[Op] = list(ops)
        for arg in self.args:
            arg.owner = self

    def add_arg(self, type: Type, name: str = "") -> Value[Any]:
        """Append an argument and return it."""
        value: Value[Any] = Value(type, name, self)
        self.args.append(value)
        return value

    @property
    def terminator(self) -> Op | None:
        """The last op if it is a terminator."""
        return self.ops[-1] if self.ops and self.ops[-1].is_terminator else None

    def walk(self) -> Iterator[Op]:
        """All ops in text order, those of nested regions after their op."""
        open_regions = [iter(list(self.ops))]
        while open_regions:
            for op in open_regions[-1]:
                yield op
                if op.has_regions and (nested := op.regions):
                    open_regions += [_ops_of(region) for region in reversed(nested)]
                    break
            else:
                open_regions.pop()


def _ops_of(region: Region) -> Iterator[Op]:
    """The ops that are there when a walk comes to the region."""
    yield from list(region.ops)


@dataclass_transform(
    field_specifiers=(
        operand,
        operands,
        attribute,
        result_type,
        result_types,
        result,
        results,
        region,
    )
)
class Op:
    """Base of every op; see ``declare`` for how subclasses state their fields."""

    name: ClassVar[str] = ""
    effects: ClassVar[Effects] = Effects.PURE
    is_terminator: ClassVar[bool] = False
    specs: ClassVar[dict[str, FieldSpec]] = {}
    fields_by_role: ClassVar[dict[str, list[tuple[str, bool]]]] = {}
    """For each role the names of the fields and whether they are variadic, from ``specs``."""
    has_regions: ClassVar[bool] = False
    """Whether there is a field for one; most ops have none, and walks ask each."""
    registry: ClassVar[dict[str, type[Op]]] = {}
    loc: Loc | None = None

    def __init_subclass__(
        cls, name: str = "", effects: Effects | None = None, terminator: bool = False
    ) -> None:
        own = {k: v for k, v in vars(cls).items() if isinstance(v, FieldSpec)}
        cls.specs = {**cls.specs, **own}
        cls.fields_by_role = {}
        for key, spec in cls.specs.items():
            cls.fields_by_role.setdefault(spec.role, []).append((key, spec.variadic))
        cls.has_regions = "region" in cls.fields_by_role
        if effects is not None:
            cls.effects = effects
        cls.is_terminator = terminator
        if name:
            if name in Op.registry:
                raise ValueError(f"op {name} is declared twice")
            cls.name = name
            Op.registry[name] = cls

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        inputs = [k for k, s in self.specs.items() if s.role != "result"]
        values = dict(zip(inputs, args, strict=False))
        if len(args) > len(inputs) or values.keys() & kwargs.keys():
            raise TypeError(f"{self.name}: too many arguments")
        values.update(kwargs)
        for key, spec in self.specs.items():
            if spec.role == "result":
                continue
            if key not in values and not spec.has_default:
                raise TypeError(f"{self.name}: missing {key}")
            value = values.pop(key, spec.default)
            if spec.variadic:
                value = tuple(value)
            setattr(self, key, value)
        if values:
            raise TypeError(f"{self.name}: unknown fields {sorted(values)}")
        self._make_results()

    def _make_results(self) -> None:
        types = list(self.infer())
        for key, spec in self.specs.items():
            if spec.role != "result":
                continue
            if spec.variadic:
                setattr(self, key, tuple(Value(t, "", self) for t in types))
                types = []
            else:
                setattr(self, key, Value(types.pop(0), "", self))

    # What subclasses may override -----------------------------------------------------------

    def infer(self) -> Sequence[Type]:
        """Types of the results; the default takes those that were given."""
        given: list[Type] = []
        for key, spec in self.specs.items():
            if spec.role == "result_type":
                value = getattr(self, key)
                given.extend(value if spec.variadic else [value])
        return given

    def check(self) -> Iterator[str]:
        """Yield what is wrong beyond what the fields and ``infer`` can say."""
        return iter(())

    # Derived views --------------------------------------------------------------------------

    def _collect(self, role: str) -> list[Any]:
        found: list[Any] = []
        for key, variadic in self.fields_by_role.get(role, ()):
            value = getattr(self, key)
            if variadic:
                found.extend(value)
            elif value is not None:
                found.append(value)
        return found

    @property
    def operands(self) -> list[Value[Any]]:
        """All operands that are present, in order."""
        return self._collect("operand")

    @property
    def results(self) -> list[Value[Any]]:
        """All results, in order."""
        return self._collect("result")

    @property
    def regions(self) -> list[Region]:
        """All nested regions, in order."""
        return self._collect("region") if self.has_regions else []

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes that differ from their default, in declaration order."""
        return {
            key: getattr(self, key)
            for key, spec in self.specs.items()
            if spec.role == "attribute"
            and not (spec.has_default and getattr(self, key) == spec.default)
        }

    def map_operands(self, mapping: dict[Value[Any], Value[Any]]) -> None:
        """Replace operands in place."""
        for key, spec in self.specs.items():
            if spec.role != "operand":
                continue
            value = getattr(self, key)
            if spec.variadic:
                setattr(self, key, tuple(mapping.get(v, v) for v in value))
            elif value is not None:
                setattr(self, key, mapping.get(value, value))

    @classmethod
    def from_parts(
        cls,
        operand_values: Sequence[Value[Any]],
        attributes: dict[str, Any],
        region_values: Sequence[Region],
        types: Sequence[Type],
    ) -> Op:
        """Build from the generic text form; raises ``TypeError`` on a structural mismatch."""
        return cls(**cls.fields_of_parts(operand_values, attributes, region_values, types))

    @classmethod
    def fields_of_parts(
        cls,
        operand_values: Sequence[Value[Any]],
        attributes: dict[str, Any],
        region_values: Sequence[Region],
        types: Sequence[Type],
    ) -> dict[str, Any]:
        """The constructor's arguments for ``from_parts``."""
        kwargs: dict[str, Any] = dict(attributes)
        values, regions = list(operand_values), list(region_values)
        slots = [key for key, spec in cls.specs.items() if spec.role == "operand"]
        for position, key in enumerate(slots):
            if cls.specs[key].variadic:
                take = len(values) - (len(slots) - position - 1)
                kwargs[key], values = tuple(values[:take]), values[take:]
            elif values:
                kwargs[key] = values.pop(0)
        for key, spec in cls.specs.items():
            if spec.role == "region" and regions:
                kwargs[key] = regions.pop(0)
            elif spec.role == "result_type":
                kwargs[key] = tuple(types) if spec.variadic else types[0] if types else None
        if values:
            raise TypeError(f"{cls.name}: too many operands")
        if regions:
            raise TypeError(f"{cls.name}: too many regions")
        return kwargs

    def __repr__(self) -> str:
        from tilec.ir.printer import op_text

        return op_text(self)


@dataclass
class Kernel:
    """One entry point: its parameters are the arguments of ``body``.

    ``attributes`` hold launch facts and recorded properties; ``schedule`` holds every choice
    made for it, shown in the dump.
    """

    name: str
    body: Region
    attributes: dict[str, Any] = field(default_factory=dict)
    schedule: dict[str, Any] = field(default_factory=dict)


@dataclass
class Module:
    """What one ``.tk`` file becomes: kernels at one level, for one target."""

    level: str
    target: str
    kernels: list[Kernel]
    source: SourceFile | None = None

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name; ``KeyError`` lists those that exist."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(f"no kernel {name}; there are {[k.name for k in self.kernels]}")


OpT = TypeVar("OpT", bound=Op)


class Builder:
    """Appends ops to a region, giving each the current source location."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.loc: Loc | None = None

    def add(self, op: OpT, name: str = "") -> OpT:
        """Append ``op``; ``name`` becomes the hint of its first result."""
        if op.loc is None:
            op.loc = self.loc
        self.region.ops.append(op)
        if name and op.results:
            op.results[0].name = name
        return op

    @contextmanager
    def inside(self, region: Region) -> Iterator[Region]:
        """Append to ``region`` within the ``with`` block."""
        outer, self.region = self.region, region
        try:
            yield region
        finally:
            self.region = outer

    @contextmanager
    def at(self, loc: Loc | None) -> Iterator[None]:
        """Give ops added within the ``with`` block this location."""
        outer, self.loc = self.loc, loc
        try:
            yield
        finally:
            self.loc = outer
