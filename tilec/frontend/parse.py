"""From text to syntax tree, and from a syntax error to a sentence that helps.

A syntax error is explained by looking up the parser's state in a table that is itself made by
parsing faulty examples: each example is the smallest text that goes wrong in one known way.
After an error inside a block the line is taken out and parsing goes on, so that several faulty
lines are reported together. Lark is imported on the first parse.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from tilec.diagnostics import Diagnostic, DiagnosticError, require_utf8
from tilec.frontend import ast
from tilec.frontend.build_ast import AstBuilder, too_deep
from tilec.frontend.indent import BadIndentation, Indentation
from tilec.source import SourceFile, Span
from tilec.tables import TK, parser_of

_MOST_ERRORS = 20

_COLON = "a block starts with a colon at the end of this line"
_WHERE = "there is no `a if c else b`: write `where(c, a, b)`, or an `if` block"
_EQUAL = "to compare write `==`; `=` assigns, and only as a statement"

_EXAMPLES: dict[str, tuple[str, ...]] = {
    _COLON: (
        "kernel k()\n",
        "kernel k():\n    for i in x\n",
        "kernel k():\n    for i in tiles(M)\n",
        "kernel k():\n    while x\n",
        "kernel k():\n    while f(x)\n",
        "kernel k():\n    while x < 1\n",
        "kernel k():\n    if x\n",
        "kernel k():\n    if x < 1\n",
        "kernel k():\n    if x:\n        pass\n    else\n",
    ),
    "the line after a colon starts a block: indent it by four spaces": (
        "kernel k():\nx = 1\n",
        "kernel k():\n    for i in x:\n    y = 1\n",
        "kernel k():\n    if x:\n    y = 1\n",
        "kernel k():\n    if x:\n        y = 1\n    else:\n    y = 1\n",
    ),
    "only the line after a colon is indented further": (
        "kernel k():\n    x = 1\n        y = 1\n",
        "kernel k():\n    x = f(y)\n        y = 1\n",
        "    kernel k():\n",
    ),
    _WHERE: (
        "kernel k():\n    x = a if b else c\n",
        "kernel k():\n    x = a[i] if b else c\n",
        "kernel k():\n    x = 1 if b else c\n",
    ),
    _EQUAL: ("kernel k():\n    if x = 1:\n", "kernel k():\n    require x = 1\n"),
    "a loop is written `for i in tiles(M):`": (
        "kernel k():\n    for i tiles(M):\n",
        "kernel k():\n    for i = 1:\n",
        "kernel k():\n    for (i):\n",
    ),
    "a kernel is written `kernel name(a: f32[M, N], c: out f32[M, N]):`": (
        "kernel:\n",
        "kernel k:\n",
        "kernel (\n",
        "kernel k[T](\n",
        "kernel k(a f32):\n",
        "kernel k(1):\n",
        "kernel k(out a: f32):\n",
        "kernel k() -> x:\n",
    ),
    "outside kernels stand only `kernel`, `fn`, `import` and `NAME = value`": (
        "def f(x):\n",
        "x(1)\n",
        "x.y = 1\n",
        "for i in x:\n",
        "if x:\n",
        "1\n",
        "(x)\n",
    ),
    "a pinned value is written `shared name = value`": (
        "kernel k():\n    shared a[i] = 1\n",
        "kernel k():\n    shared 1\n",
    ),
    "choices are written `tune NAME in [64, 128]`": (
        "kernel k():\n    tune x = 1\n",
        "kernel k():\n    tune 1\n",
    ),
    "conditions of tiles combine with `&` and `|`, single ones with `and` and `or`": (
        "kernel k():\n    x = a && b\n",
        "kernel k():\n    x = a || b\n",
        "kernel k():\n    x = f(a && b)\n",
    ),
    "count with `x += 1`": ("kernel k():\n    x++\n", "kernel k():\n    x--\n"),
    "a value is missing: write it, or open a bracket before a line that goes on": (
        "kernel k():\n    x = a +\n",
        "kernel k():\n    x = a *\n",
        "kernel k():\n    x = a @\n",
        "kernel k():\n    x =\n",
    ),
    "a value is missing between two operators": (
        "kernel k():\n    x = a + * b\n",
        "kernel k():\n    x = a * / b\n",
    ),
    "a word of the language is no name: choose another": (
        "kernel k():\n    while = 1\n",
        "kernel k():\n    if = 1\n",
    ),
    "a schedule is written `schedule stages=3, warpgroups=2`": (
        "kernel k():\n    schedule(stages=1)\n",
        "kernel k():\n    schedule stages 1\n",
        "kernel k():\n    schedule stages=1 warpgroups=2\n",
    ),
}

_WORDS = {
    "_NL": "the end of the line",
    "_INDENT": "an indented block",
    "_DEDENT": "the end of the block",
    "$END": "the end of the file",
    "NAME": "a name",
    "INTEGER": "a number",
    "FLOAT": "a number",
    "STRING": "a string",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "EQUAL": "`=`",
    "DOT": "`.`",
    "IN": "`in`",
    "KERNEL": "`kernel`",
    "FN": "`fn`",
}
_VALUE = frozenset({"NAME", "INTEGER", "FLOAT", "STRING", "LPAR"})
_OPERATORS = frozenset({"COMPARE", "SIGN", "FACTOR", "SHIFT", "POWER", "AND", "OR"})


def parse(source: SourceFile) -> ast.Module:
    """The syntax tree of ``source``; raises ``DiagnosticError`` with all that was found."""
    require_utf8(source)
    text = source.text if source.text.endswith("\n") else source.text + "\n"
    errors: list[Diagnostic] = []
    module: ast.Module | None = None
    while module is None and len(errors) < _MOST_ERRORS:
        outcome = _attempt(source, text)
        if not isinstance(outcome, Diagnostic):
            deep = too_deep(source, outcome)
            if deep is not None:
                raise DiagnosticError([*errors, deep])
            builder = AstBuilder(source)
            module = builder.visit(outcome)
            errors += builder.errors
            break
        errors.append(outcome)
        rest = _without_line(text, outcome)
        if rest is None:
            break
        text = rest
    if errors or module is None:
        raise DiagnosticError(errors)
    return module


@cache
def _parser() -> Any:
    return parser_of(TK, postlex=Indentation())


def _attempt(source: SourceFile, text: str) -> Any:
    """Lark's tree, or what is wrong first."""
    from lark.exceptions import UnexpectedInput

    try:
        return _parser().parse(text)
    except BadIndentation as error:
        span = Span(source, error.start, max(error.end, error.start + 1))
        notes = [error.note] if error.note else []
        return Diagnostic(error.code, error.message, [(span, error.label)], notes, error.help)
    except UnexpectedInput as error:
        return _explain(source, text, error)


def _without_line(text: str, error: Diagnostic) -> str | None:
    """``text`` with the faulty line made a ``pass``, if that leaves every block as it was."""
    if error.span is None or error.code != "syntax":
        return None
    start = text.rfind("\n", 0, error.span.start) + 1
    end = text.find("\n", start)
    line = text[start:end]
    body = line.strip()
    indent = len(line) - len(line.lstrip(" "))
    unsafe = indent == 0 or len(body) < len("pass") or body.endswith(":") or body == "pass"
    if unsafe or re.match(r"(for|if|elif|else|while|strict)\b", body) or _open_bracket(body):
        return None
    return text[:start] + (" " * indent + "pass").ljust(len(line)) + text[end:]


def _explain(source: SourceFile, text: str, error: Any) -> Diagnostic:
    """A syntax error in words: what was found, what could stand there, what to type."""
    token = getattr(error, "token", None)
    start = min(error.pos_in_stream, len(text) - 1)
    if token is not None and token.type == "$END":
        start = len(text) - 1
    if token is None:
        return _explain_character(source, text[start], start)
    opened = _open_bracket(text[:start])
    if opened is not None and (token.type == "$END" or "\n" in text[opened:start]):
        return Diagnostic(
            "bracket-not-closed",
            f"this `{text[opened]}` is never closed",
            [(Span(source, opened, opened + 1), "opened here")],
            notes=[f"reading went on to line {source.position(start)[0]} and failed there"],
            help=f"close it with `{')' if text[opened] == '(' else ']'}`",
        )
    found = _WORDS.get(token.type, f"`{token}`") if token.type in _INVISIBLE else f"`{token}`"
    length = 0 if token.type in _INVISIBLE else len(token)
    expected = _expected(error)
    label = f"expected {expected}" if expected else "this cannot stand here"
    return Diagnostic(
        "syntax",
        f"found {found} where it cannot stand",
        [(Span(source, start, start + max(1, length)), label)],
        help=_known_mistakes().get((error.state.position, token.type), ""),
    )


_INVISIBLE = frozenset({"_NL", "_INDENT", "_DEDENT", "$END"})


def _explain_character(source: SourceFile, char: str, start: int) -> Diagnostic:
    meant = {"!": "write `not x`, or `!=`", ";": "write one statement a line", "'": 'use `"`',
             '"': 'close the string with `"` on its line'}  # fmt: skip
    return Diagnostic(
        "syntax",
        f"found `{char}` where it cannot stand",
        [(Span(source, start, start + 1), "this is no part of the language")],
        help=meant.get(char, ""),
    )


def _expected(error: Any) -> str:
    """The terminals that could stand there, as few words as possible."""
    accepted = set(error.accepts or error.expected)
    words = []
    if accepted >= _VALUE:
        words.append("a value")
        accepted -= {*_VALUE, "SIGN", "TILDE", "NOT", "NONE", "LSQB"}
    if accepted & _OPERATORS:
        words.append("an operator")
        accepted = {"_NL", "COLON", "RPAR", "RSQB", "COMMA"} & accepted
    words += sorted({_WORDS.get(name, f"`{name.lower()}`") for name in accepted})
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


@cache
def _known_mistakes() -> dict[tuple[int, str], str]:
    """What to type, by the parser's state and the token found, learnt from the examples."""
    from lark.exceptions import UnexpectedToken

    known: dict[tuple[int, str], str] = {}
    for advice, texts in _EXAMPLES.items():
        for text in texts:
            try:
                _parser().parse(text)
            except UnexpectedToken as error:
                known.setdefault((error.state.position, error.token.type), advice)
    return known


def _open_bracket(text: str) -> int | None:
    """Offset of the innermost bracket still open at the end of ``text``."""
    open_: list[int] = []
    for match in re.finditer(r'#[^\n]*|"[^"\n]*"|[\[\](){}]', text):
        if match[0] in "([{":
            open_.append(match.start())
        elif match[0] in ")]}" and open_:
            open_.pop()
    return open_[-1] if open_ else None
