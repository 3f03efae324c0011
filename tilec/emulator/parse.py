"""PTX text to programs; what is no PTX, or beyond the emulator, is an error with its line."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from tilec.diagnostics import Diagnostic, DiagnosticError
from tilec.emulator.program import (
    BANKS,
    WIDTH,
    Address,
    Instruction,
    Not,
    Number,
    Operand,
    Pair,
    Parameter,
    Program,
    Register,
    Sink,
    Source,
    Special,
    Symbol,
    Variable,
    Vector,
    bank_of,
)
from tilec.source import SourceFile, Span
from tilec.tables import PTX, parser_of


@cache
def _lark() -> Any:
    return parser_of(PTX)


def parse_ptx(source: SourceFile) -> dict[str, Program]:
    """The kernels of a PTX text by name; raises ``DiagnosticError``."""
    from lark import UnexpectedInput

    try:
        tree = _lark().parse(source.text)
    except UnexpectedInput as error:
        found = getattr(error, "token", None) or getattr(error, "char", "")
        raise ptx_error(source, int(error.line), f"no PTX from here on: {str(found)!r}") from None
    module = _Module(source)
    for item in tree.children:
        module.item(item)
    if not module.programs:
        raise DiagnosticError(Diagnostic("ptx-syntax", f"{source.name} has no kernel (.entry)"))
    return module.programs


def ptx_error(source: SourceFile, line: int, message: str, help: str = "") -> DiagnosticError:
    """A diagnostic on one line of a PTX text."""
    labels = [(line_span(source, line), "found here")]
    return DiagnosticError(Diagnostic("ptx-syntax", message, labels, help=help))


def line_span(source: SourceFile, line: int) -> Span:
    """A line of a PTX text without its indentation."""
    number = min(max(line, 1), len(source.line_starts))
    start, text = source.line_starts[number - 1], source.line(number)
    return Span(source, start + len(text) - len(text.lstrip()), start + len(text.rstrip()))


def _number(text: str) -> Number:
    lowered = text.lower()
    if lowered.startswith("0f"):
        return Number(int(text[2:], 16), 32)
    if lowered.startswith("0d"):
        return Number(int(text[2:], 16), 64)
    if "." in text:
        return Number(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    return Number(int(text.rstrip("Uu"), 0))


class _Module:
    """Collects what stands outside kernels, and builds each kernel."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.target = ""
        self.files: dict[int, str] = {}
        self.shared: list[Any] = []
        self.programs: dict[str, Program] = {}

    def item(self, tree: Any) -> None:
        """One item at the top of the text."""
        match tree.data:
            case "target":
                self.target = str(tree.children[0].children[0])
            case "file":
                self.files[int(tree.children[0])] = str(tree.children[1])[1:-1]
            case "declared":
                self.shared.append(tree)
            case "entry":
                program = _Kernel(self, tree).program()
                self.programs[program.name] = program


class _Kernel:
    """One kernel while its text is read."""

    def __init__(self, module: _Module, tree: Any) -> None:
        self.module, self.tree = module, tree
        self.scopes: list[dict[str, Register]] = [{}]
        self.rows = dict.fromkeys(BANKS, 0)
        self.variables: dict[str, Variable] = {}
        self.parameters: list[Parameter] = []
        self.code: list[tuple[Any, Source | None, dict[str, Register]]] = []
        self.labels: dict[str, int] = {}
        self.at: Source | None = None

    def fail(self, token: Any, message: str) -> DiagnosticError:
        """What is wrong, at a token."""
        return ptx_error(self.module.source, _line_of(token), message)

    def program(self) -> Program:
        """The kernel."""
        name, tuning = "", {}
        for child in self.tree.children:
            if child is None:
                continue
            match getattr(child, "data", None):
                case None:
                    name = str(child)
                case "parameter":
                    self._parameter(child)
                case "tuning":
                    tuning[str(child.children[0])] = [int(n) for n in child.children[1:] if n]
                case "body":
                    for declared in self.module.shared:
                        self._variable(declared)
                    self._body(child)
        threads = [*tuning.get(".maxntid", tuning.get(".reqntid", [1024])), 1, 1]
        cluster = [*tuning.get(".reqnctapercluster", []), 1, 1, 1]
        return Program(
            name,
            self.module.target,
            tuple(self.parameters),
            self.variables,
            self.rows,
            tuple(self._instruction(*item) for item in self.code),
            self.labels,
            (threads[0], threads[1], threads[2]),
            tuning.get(".minnctapersm", [1])[0],
            self.module.files,
            (cluster[0], cluster[1], cluster[2]),
        )

    def _parameter(self, tree: Any) -> None:
        align, type, name, count = _declaration(tree)
        if type not in WIDTH:
            raise self.fail(tree, f"a parameter of type .{type} is beyond the emulator")
        align = max(align, WIDTH[type])
        last = self.parameters[-1] if self.parameters else None
        start = last.offset + last.bytes if last else 0
        self.parameters.append(Parameter(name, type, count or 1, align, -(-start // align) * align))

    def _variable(self, tree: Any) -> None:
        words = [str(c) for c in tree.children if c is not None and not hasattr(c, "data")]
        space = next(w for w in words if w in (".shared", ".global", ".const", ".local"))
        if space != ".shared":
            raise self.fail(tree, f"variables in {space} are beyond the emulator")
        align, type, name, count = _declaration(tree)
        align = max(align, WIDTH[type])
        start = max((v.offset + v.bytes for v in self.variables.values()), default=0)
        size = WIDTH[type] * (count or 0)
        dynamic = ".extern" in words
        offset = -(-start // align) * align
        self.variables[name] = Variable(name, align, offset, 0 if dynamic else size, dynamic)

    def _body(self, tree: Any) -> None:
        for statement in tree.children:
            match statement.data:
                case "body":
                    self.scopes.append(dict(self.scopes[-1]))
                    self._body(statement)
                    self.scopes.pop()
                case "registers":
                    self._registers(statement)
                case "declared":
                    self._variable(statement)
                case "loc":
                    file, line, _ = (int(n) for n in statement.children)
                    self.at = Source(file, line)
                case "label":
                    self.labels[str(statement.children[0])] = len(self.code)
                case "instruction":
                    self.code.append((statement, self.at, self.scopes[-1]))

    def _registers(self, tree: Any) -> None:
        type = str(tree.children[0])[1:]
        try:
            bank = bank_of(type)
        except KeyError:
            raise self.fail(tree, f"registers of type .{type} are beyond the emulator") from None
        for declared in tree.children[1:]:
            name, count = declared.children
            names = [str(name)] if count is None else [f"{name}{n}" for n in range(int(count))]
            for each in names:
                self.scopes[-1][each] = Register(each, type, bank, self.rows[bank])
                self.rows[bank] += 1

    def _instruction(
        self, tree: Any, source: Source | None, scope: dict[str, Register]
    ) -> Instruction:
        children = [c for c in tree.children if c is not None]
        guard, negated = None, False
        if getattr(children[0], "data", None) == "guard":
            *mark, name = children.pop(0).children
            negated = bool(mark)
            guard = scope.get(str(name))
            if guard is None:
                raise self.fail(name, f"register {name} is not declared")
        opcode = str(children[0])
        operands = tuple(self._operand(c, scope) for c in children[1:])
        line = int(children[0].line)
        return Instruction(opcode, tuple(opcode.split(".")), operands, guard, negated, line, source)

    def _operand(self, tree: Any, scope: dict[str, Register]) -> Operand:
        match tree.data:
            case "number":
                return _number(str(tree.children[0]))
            case "minus":
                inner = self._operand(tree.children[1], scope)
                if not isinstance(inner, Number):
                    raise self.fail(tree, "only a number may be negated")
                sign = 1 << (inner.float_bits - 1) if inner.float_bits else 0
                value = inner.value ^ sign if sign else -inner.value
                return Number(value, inner.float_bits)
            case "register_operand" | "name_operand":
                return self._named(tree.children[0], scope)
            case "label_operand":
                return Symbol(str(tree.children[0]))
            case "negated":
                inner = self._operand(tree.children[1], scope)
                if not isinstance(inner, Register):
                    raise self.fail(tree, "only a predicate may be negated")
                return Not(inner)
            case "pair":
                first, second = (self._operand(c, scope) for c in tree.children)
                return Pair(first, second)
            case "vector":
                return Vector(tuple(self._operand(c, scope) for c in tree.children))
            case "address":
                return self._address(tree, scope)
        raise self.fail(tree, f"an operand of the form {tree.data} is beyond the emulator")

    def _named(self, token: Any, scope: dict[str, Register]) -> Operand:
        name = str(token)
        if name in scope:
            return scope[name]
        if name == "_":
            return Sink()
        if not name.startswith("%"):
            return Symbol(name)
        if name.partition(".")[0] in _SPECIALS:
            return Special(name)
        raise self.fail(token, f"register {name} is not declared")

    def _address(self, tree: Any, scope: dict[str, Register]) -> Address:
        base_tree, coordinates = tree.children
        base, sign, offset = (*base_tree.children, None, None)[:3]
        moved = int(str(offset).rstrip("U"), 0) if offset is not None else 0
        if sign is not None and str(sign.children[-1]) == "-":
            moved = -moved
        places = self._operand(coordinates, scope) if coordinates is not None else None
        if places is not None and not isinstance(places, Vector):
            raise self.fail(tree, "coordinates of a tensor stand in braces")
        return Address(self._operand(base, scope), moved, places)


_SPECIALS = frozenset(
    ("%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid",
     "%gridid", "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid",
     "%cluster_ctarank", "%cluster_nctarank", "%clock", "%clock64", "%globaltimer",
     "%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt",
     "%dynamic_smem_size", "%total_smem_size", "%activemask")
)  # fmt: skip


def _line_of(tree: Any) -> int:
    token = tree
    while hasattr(token, "children"):
        token = next((c for c in token.children if c is not None), None)
    return int(getattr(token, "line", 1) or 1)


def _declaration(tree: Any) -> tuple[int, str, str, int | None]:
    """Alignment, type, name and count of a parameter or a variable."""
    align, count, words = 1, None, []
    for child in tree.children:
        match getattr(child, "data", None):
            case "align":
                align = int(child.children[0])
            case "extent":
                count = int(child.children[0]) if child.children[0] is not None else 0
            case None if child is not None:
                words.append(str(child))
    type, name = words[-2:]
    return align, type[1:], name, count
