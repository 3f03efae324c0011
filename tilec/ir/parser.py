"""IR text to IR: one parser for all levels, driven by the op and type declarations.

Imports of Lark are made on use. Errors carry the line and column of the ``.tir`` text.
"""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from tilec.ir.core import Kernel, Loc, Module, Op, Region, Value
from tilec.ir.kinds import value_faults
from tilec.ir.printer import plain_hint
from tilec.ir.types import DTYPES, DType, Scalar, Type
from tilec.layout.linear import Layout, LayoutRefusal
from tilec.source import SourceFile
from tilec.tables import IR, parser_of

if TYPE_CHECKING:
    from lark import Lark, Token, Tree


class IRSyntaxError(Exception):
    """The text is not IR; ``line`` and ``column`` are those of the text, 1-based."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column


@cache
def _lark() -> Lark:
    parser: Lark = parser_of(IR)
    return parser


def parse_module(text: str) -> Module:
    """Parse a whole dump; raises ``IRSyntaxError``."""
    from lark import UnexpectedInput

    try:
        tree = _lark().parse(text)
    except UnexpectedInput as error:
        found = getattr(error, "token", None) or getattr(error, "char", "")
        raise IRSyntaxError(f"unexpected {str(found)!r}", error.line, error.column) from None
    return _Reader().module(tree)


def _fail(message: str, at: Token | Tree[Token]) -> IRSyntaxError:
    meta: Any = getattr(at, "meta", at)
    return IRSyntaxError(message, meta.line, meta.column)


class _Reader:
    """Turns the parse tree into IR, resolving names as it goes."""

    def __init__(self) -> None:
        self.layouts: dict[str, Layout] = {}
        self.values: dict[str, Value[Any]] = {}

    def module(self, tree: Tree[Token]) -> Module:
        from tilec.ir.levels import LEVELS  # registers the ops
        from tilec.targets import TARGETS

        version, level, target, *rest = tree.children
        if str(version) != "1":
            raise _fail(f"this is tir version {version}; version 1 is known", version)
        if str(level) not in LEVELS:
            raise _fail(f"there is no level {level}; there are {', '.join(LEVELS)}", level)
        if str(target) not in TARGETS:
            raise _fail(f"there is no target {target}; there are {', '.join(TARGETS)}", target)
        module = Module(str(level), str(target), [])
        for item in rest:
            kind = item.data  # type: ignore[union-attr]
            if kind == "source":
                name, *lines = item.children  # type: ignore[union-attr]
                body = "\n".join(str(line)[3:].removeprefix(" ") for line in lines) + "\n"
                module.source = SourceFile(str(name)[1:-1], body)
            elif kind == "layout_def":
                name, layout = item.children  # type: ignore[union-attr]
                try:
                    self.layouts[str(name)] = Layout.parse(str(layout))
                except ValueError as error:
                    raise _fail(str(error), layout) from None
            else:
                module.kernels.append(self.kernel(item, module.level))  # type: ignore[arg-type]
        return module

    def kernel(self, tree: Tree[Token], level: str) -> Kernel:
        from tilec.ir.launch import launch_faults

        self.values = {}
        name, *rest = tree.children
        kernel = Kernel(str(name), Region())
        at: dict[str, Any] = {"": name}
        for part in rest:
            if part.data == "attrs":  # type: ignore[union-attr]
                kernel.attributes = self.attrs(part)  # type: ignore[arg-type]
                at.update((str(i.children[0]), i.children[0]) for i in part.children)  # type: ignore[union-attr]
            elif part.data == "schedule":  # type: ignore[union-attr]
                kernel.schedule = self.attrs(part.children[0])  # type: ignore[union-attr,arg-type]
            else:
                kernel.body = self.region(part)  # type: ignore[arg-type]
        for attribute, message in launch_faults(level, kernel):
            raise _fail(message, at[attribute])
        return kernel

    def region(self, tree: Tree[Token]) -> Region:
        region = Region()
        visible = dict(self.values)
        for item in tree.children:
            if item.data == "block_args":  # type: ignore[union-attr]
                for arg in item.children:  # type: ignore[union-attr]
                    name, type = arg.children  # type: ignore[union-attr]
                    value = region.add_arg(self.type(type), _hint(str(name)))  # type: ignore[arg-type]
                    self.values[str(name)] = value
            else:
                region.ops.append(self.op(item))  # type: ignore[arg-type]
        self.values = visible
        return region

    def op(self, tree: Tree[Token]) -> Op:
        parts: dict[str, Any] = {"attrs": {}, "result_types": [], "result_list": []}
        regions: list[Region] = []
        name: Any = None
        for item in tree.children:
            kind = getattr(item, "data", None)
            if kind is None:
                name = item
            elif kind == "attrs":
                parts["attrs"] = self.attrs(item)  # type: ignore[arg-type]
            elif kind == "region":
                regions.append(self.region(item))  # type: ignore[arg-type]
            elif kind == "operand_list":
                parts["operands"] = [self.use(token) for token in item.children]  # type: ignore[union-attr]
            elif kind == "result_types":
                parts["result_types"] = [self.type(t) for t in item.children]  # type: ignore[union-attr,arg-type]
            elif kind == "loc":
                line, column = item.children  # type: ignore[union-attr]
                parts["loc"] = Loc(int(str(line)), int(str(column)))
            else:
                parts["result_list"] = item.children  # type: ignore[union-attr]
        op = self.build(name, parts, regions)
        op.loc = parts.get("loc")
        self.define(op, parts, name)
        return op

    def build(self, name: Token, parts: dict[str, Any], regions: list[Region]) -> Op:
        cls = Op.registry.get(str(name))
        if cls is None:
            raise _fail(f"there is no op {name}", name)
        attrs = {key: _declared(cls, key, value) for key, value in parts["attrs"].items()}
        try:
            fields = cls.fields_of_parts(parts["operands"], attrs, regions, parts["result_types"])
            for fault in value_faults(cls, fields):
                raise TypeError(fault)
            return cls(**fields)
        except (TypeError, ValueError, LayoutRefusal) as error:
            raise _fail(f"{name}: {error}", name) from None

    def define(self, op: Op, parts: dict[str, Any], at: Token) -> None:
        names, types = parts["result_list"], parts["result_types"]
        if len(names) != len(op.results) or len(types) != len(op.results):
            raise _fail(
                f"{op.name} has {len(op.results)} results, the text names {len(names)} "
                f"and gives {len(types)} types",
                at,
            )
        for name, type, value in zip(names, types, op.results, strict=True):
            if str(name) in self.values:
                raise _fail(f"{name} is defined twice", name)
            if value.type != type:
                raise _fail(f"{name} has type {value.type}, the text says {type}", name)
            value.name = _hint(str(name))
            self.values[str(name)] = value

    def use(self, token: Any) -> Value[Any]:
        value = self.values.get(str(token))
        if value is None:
            raise _fail(f"{token} is not defined here", token)
        return value

    def attrs(self, tree: Tree[Token]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for item in tree.children:
            key, value = item.children  # type: ignore[union-attr]
            found[str(key)] = self.attr_value(value)  # type: ignore[arg-type]
        return found

    def attr_value(self, tree: Tree[Token]) -> Any:
        first: Any = tree.children[0] if tree.children else None
        if tree.data == "number":
            return float(first) if first.type == "FLOAT" else int(first)
        if tree.data == "name":
            words: dict[str, Any] = {"true": True, "false": False, "none": None}
            text = str(first)
            return words[text] if text in words else DTYPES.get(text, text)
        if tree.data == "layout_ref":
            return self.layout(first)
        if tree.data == "tuple":
            return tuple(self.attr_value(c) for c in tree.children)  # type: ignore[arg-type]
        return self.type(first)

    def layout(self, token: Token) -> Layout:
        if str(token) not in self.layouts:
            raise _fail(f"{token} is not defined", token)
        return self.layouts[str(token)]

    def type(self, tree: Tree[Token]) -> Type:
        name, *raw = tree.children
        if not raw and str(name) in DTYPES:
            return Scalar(DTYPES[str(name)])
        cls = Type.registry.get(str(name))
        if cls is None:
            raise _fail(f"there is no type {name}", tree)
        kinds = cls.field_kinds()
        if len(kinds) != len(raw):
            raise _fail(f"{name} has {len(kinds)} fields, found {len(raw)}", tree)
        values = [self.type_field(t, kind) for t, (_, kind) in zip(raw, kinds, strict=True)]  # type: ignore[arg-type]
        try:
            return cls(*values)
        except ValueError as error:
            raise _fail(f"{name}: {error}", tree) from None

    def type_field(self, tree: Tree[Token], kind: Any) -> Any:
        if tree.data == "layout_ref":
            return self.layout(tree.children[0])  # type: ignore[arg-type]
        if tree.data == "type_tuple":
            return tuple(self.type(t) for t in tree.children)  # type: ignore[arg-type]
        extents = [self.extent(e) for e in tree.children]
        if get_origin(kind) is tuple:
            return tuple(extents)
        if len(extents) != 1:
            raise _fail("one value is needed here", tree)
        if kind is DType:
            if extents[0] not in DTYPES:
                raise _fail(f"{extents[0]} is not an element type", tree)
            return DTYPES[str(extents[0])]
        wanted = get_args(kind) if isinstance(kind, UnionType) else (kind,)
        if not isinstance(extents[0], wanted):
            raise _fail(f"{extents[0]!r} does not fit here", tree)
        return extents[0]

    def extent(self, item: Any) -> Any:
        if getattr(item, "data", None) == "type":
            if len(item.children) == 1:
                return str(item.children[0])
            return self.type(item)
        text = str(item)
        return int(text) if item.type == "INT" else text


def _declared(cls: type[Op], key: str, value: Any) -> Any:
    """An attribute declared as a name stays one, even where it is also an element type's."""
    if not isinstance(value, DType):
        return value
    declared = next(
        (a[key] for c in cls.__mro__ if key in (a := vars(c).get("__annotations__", {}))), ""
    )
    return str(value) if declared == "str" else value


def _hint(name: str) -> str:
    """The hint behind ``%name``."""
    return plain_hint(name[1:])
