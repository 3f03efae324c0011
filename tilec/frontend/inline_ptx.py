"""``ptx[f32]("ex2.approx.ftz.f32 {0}, {1};", x)``: instructions on the elements of tiles.

The text is taken apart into steps on numbered registers (``ir.inline``), which check what they
may be; no text goes further than this file. ``{0}`` is the first result, operands are counted on;
``.reg .f32 t, u;`` declares registers of the text's own. ``meaning=f`` names a function that says
for the interpreter what is computed; nobody can check that it is the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tilec.diagnostics import did_you_mean
from tilec.frontend import ast
from tilec.frontend.builtins import SEVERAL, Call, builtin
from tilec.frontend.checked import Expr, MeaningOf, PtxSteps, Ref, ScalarType, TileType, Variable
from tilec.frontend.expressions import Expressions
from tilec.frontend.meet import axes_of, dtype_of, elements, same_axes, settle
from tilec.frontend.names import Function
from tilec.ir import inline
from tilec.ir.types import DType
from tilec.source import Span

_USAGE = 'ptx[f32]("add.rn.f32 {0}, {1}, {2};", x, y)'
_TOKEN = re.compile(
    r"\s+|(?P<place>\{\s*\d+\s*\})|(?P<number>-?(?:0[fFdD][0-9A-Fa-f]+|0[xX][0-9A-Fa-f]+|"
    r"(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+))"
    r"|(?P<word>[A-Za-z_%$][\w%$]*(?:\.\w+)*)|(?P<type>\.\w+)|(?P<mark>[@!,;{}:\[\]()+-])|(?P<bad>.)"
)


@dataclass
class _Token:
    kind: str
    text: str
    span: Span


@dataclass
class _Reader:
    """Takes one text apart."""

    check: Expressions
    span: Span
    results: int
    operands: int
    tokens: list[_Token] = field(default_factory=list)
    locals: dict[str, int] = field(default_factory=dict)
    types: list[str] = field(default_factory=list)
    steps: list[inline.Step] = field(default_factory=list)
    places: list[Span] = field(default_factory=list)

    def refuse(self, reason: str, token: _Token, help: str = "") -> NoReturn:
        self.check.report.fail(
            "bad-ptx",
            reason,
            [(token.span, "written here")],
            notes=["`ptx` computes on registers: no branch, barrier, call, label or memory access"],
            help=help,
        )

    def read(self, text: str) -> None:
        """All statements of the text."""
        start = self.span.start + 1
        for found in _TOKEN.finditer(text):
            if found.lastgroup is None:
                continue
            span = Span(self.span.file, start + found.start(), start + found.end())
            token = _Token(found.lastgroup, found[0], span)
            if token.kind == "bad":
                self.refuse(f"`{token.text}` means nothing in PTX", token)
            self.tokens.append(token)
        self.tokens.append(_Token("end", "", Span(self.span.file, self.span.end, self.span.end)))
        while self.tokens[0].kind != "end":
            self._statement()
        if not self.steps:
            self.refuse("this computes nothing", self.tokens[0], f"write `{_USAGE}`")

    def _take(self, *marks: str) -> _Token:
        token = self.tokens[0]
        if marks and token.text not in marks:
            wanted = " or ".join(f"`{m}`" for m in marks)
            before = f"`{token.text}`" if token.text else "the end"
            help = "end each instruction with `;`" if ";" in marks else ""
            self.refuse(f"{wanted} is missing before {before}", token, help)
        return self.tokens.pop(0)

    def _statement(self) -> None:
        first = self.tokens[0]
        if first.kind == "type":
            self._declaration()
            return
        guard = -1
        if first.text == "@":
            self._take()
            negated = self.tokens[0].text == "!"
            if negated:
                self._take()
            place = self._register(self._take())
            guard = -2 - place if negated else place
        opcode = self._take()
        if opcode.kind != "word":
            self.refuse(f"an instruction is missing before `{opcode.text or 'the end'}`", opcode)
        try:
            inline.signature(opcode.text)
        except inline.BadStep as fault:
            self.refuse(str(fault), opcode, _nearest(fault))
        given = [self._operand()]
        while self._take(",", ";").text == ",":
            given.append(self._operand())
        written = given[0] if isinstance(given[0], tuple) else (given[0],)
        if len(written) == 1 and isinstance(given[0], tuple):
            self.refuse("a number is written to", opcode, "the first register is the result")
        self.steps.append((opcode.text, guard, written, tuple(given[1:])))
        self.places.append(opcode.span)

    def _declaration(self) -> None:
        """``.reg .f32 t, u;``."""
        word = self._take()
        kind = self.tokens[0]
        if word.text != ".reg":
            self.refuse(
                f"`{word.text}` is no part of a computation", word, "declare `.reg .f32 t;`"
            )
        self._take()
        if kind.text[1:] not in inline.LOCALS or kind.kind != "type":
            known = did_you_mean(kind.text, [f".{name}" for name in inline.LOCALS])
            self.refuse(f"`{kind.text}` is no type of a register", kind, known)
        while True:
            name = self._take()
            if name.kind != "word" or "." in name.text or name.text in self.locals:
                self.refuse(f"`{name.text}` is no new name of a register", name)
            self.locals[name.text] = self.results + self.operands + len(self.types)
            self.types.append(kind.text[1:])
            if self._take(",", ";").text == ";":
                return

    def _operand(self) -> Any:
        token = self._take()
        if token.kind == "number":
            return (_number(token.text),)
        if token.text == "{":
            several = [self._register(self._take())]
            while self._take(",", "}").text == ",":
                several.append(self._register(self._take()))
            return tuple(several)
        return self._register(token)

    def _register(self, token: _Token) -> int:
        if token.kind == "place":
            number = int(token.text.strip("{} \t"))
            if number >= self.results + self.operands:
                said = f"{self.results} results and {self.operands} operands"
                help = f"pass what {token.text} stands for behind the text"
                self.refuse(f"there is no `{token.text}`: there are {said}", token, help)
            return number
        if token.kind == "word" and token.text in self.locals:
            return self.locals[token.text]
        if token.kind == "word":
            help = did_you_mean(token.text, self.locals) or f"declare it: `.reg .b32 {token.text};`"
            if token.text.startswith("%"):
                help = (
                    "who computes an element is the compiler's choice: pass an index as an operand"
                )
            self.refuse(f"`{token.text}` is no register here", token, help)
        self.refuse(f"a register is missing before `{token.text or 'the end'}`", token)


def _number(text: str) -> int | float:
    digits = text.lstrip("-").lower()
    sign = -1 if text.startswith("-") else 1
    if digits[:2] in ("0f", "0d"):
        import struct

        code = ">f" if digits[1] == "f" else ">d"
        size = 8 if code == ">f" else 16
        value: float = struct.unpack(code, bytes.fromhex(digits[2:].zfill(size)[-size:]))[0]
        return sign * value
    if digits.startswith("0x"):
        return sign * int(digits, 16)
    return sign * (float(digits) if any(c in digits for c in ".e") else int(digits))


def _results(call: Call) -> list[DType]:
    found = [call.check.dtype(item, "`ptx`") for item in call.brackets]
    if not found:
        call.fail_usage(_USAGE)
    return found


def _registers(call: Call, dtype: DType, span: Span) -> inline.Class:
    known = inline.class_of(dtype)
    if known is None:
        call.check.report.fail(
            "bad-ptx",
            f"an element of {dtype} has no register of its own",
            [(span, f"this is {dtype}")],
            help="cast it to a type of 16 bits or more",
        )
    return known


def steps(call: Call) -> list[Expr]:
    """The values that the instructions of one call give."""
    results = _results(call)
    text = call.arguments[0] if call.arguments else None
    if not isinstance(text, ast.Literal) or not isinstance(text.value, str):
        call.fail_usage(_USAGE)
    if len(call.arguments) < 2 or call.keywords.keys() - {"meaning"}:
        call.fail_usage(_USAGE)
    check = call.check
    values = [settle(check.report, elements(check.report, check.expression(a)))
              for a in call.arguments[1:]]  # fmt: skip
    values = same_axes(check.report, values)
    classes = [_registers(call, dtype, b.span)
               for dtype, b in zip(results, call.brackets, strict=True)]  # fmt: skip
    classes += [_registers(call, dtype_of(v), v.span) for v in values]
    reader = _Reader(check, text.span, len(results), len(values))
    reader.read(text.value)
    classes += [inline.local_class(name) for name in reader.types]
    for number, fault in inline.program_faults(reader.steps, classes, len(results), len(values)):
        token = _Token("word", "", reader.places[number])
        reader.refuse(str(fault), token, _nearest(fault))
    axes = next((axes_of(v) for v in values if axes_of(v)), ())
    made = [Variable("", TileType(d, axes) if axes else ScalarType(d), call.span) for d in results]
    program = PtxSteps(call.span, made, tuple(values), tuple(reader.steps), tuple(reader.types))
    check.block.append(program)
    refs: list[Expr] = [Ref(v.type, call.span, v) for v in made]
    return _meant(call, refs) if "meaning" in call.keywords else refs


def _nearest(fault: inline.BadStep) -> str:
    import difflib

    if fault.help:
        return fault.help
    close = difflib.get_close_matches(fault.word, fault.known, n=4, cutoff=0.5)
    if close:
        return f"the nearest that are known: {', '.join(close)}"
    return f"there are {', '.join(sorted(fault.known))}" if fault.known else ""


def _meant(call: Call, refs: list[Expr]) -> list[Expr]:
    """The results beside what the function named by ``meaning`` makes of the operands."""
    check, named = call.check, call.keywords["meaning"]
    asked = ast.Call(call.span, named, call.arguments[1:], ())
    function = check.function_of(asked)
    if not isinstance(function, Function):
        check.report.fail(
            "wrong-arguments",
            "`meaning` names a function",
            [(named.span, "this is none")],
            help="write one above the kernel: `fn f(x): return ...`",
        )
    said = check.inline(function, asked)
    if [v.type for v in said] != [v.type for v in refs]:
        check.report.fail(
            "bad-ptx",
            f"`{named.span.text}` does not give what `ptx` does",
            [
                (named.span, "it gives " + ", ".join(str(v.type) for v in said)),
                (call.span, "this gives " + ", ".join(str(v.type) for v in refs)),
            ],
        )
    return [
        check.let("", MeaningOf(r.type, call.span, r, s)) for r, s in zip(refs, said, strict=True)
    ]


@builtin
def ptx(call: Call) -> Expr:
    """``ptx[f32]("...", x)``: instructions of PTX on each element."""
    found = steps(call)
    if len(found) != 1:
        names = ", ".join(f"x{n}" for n in range(len(found)))
        call.check.report.fail(
            "wrong-count",
            f"these instructions give {len(found)} values",
            [(call.span, "one is needed here")],
            help=f"name them first: `{names} = ptx[...](...)`",
        )
    return found[0]


SEVERAL["ptx"] = steps
