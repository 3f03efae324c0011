"""The shape of the language: what parses, where spans lie, and the tables that the wheel has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tilec import tables as grammar_tables
from tilec.diagnostics import DiagnosticError
from tilec.frontend import ast
from tilec.frontend.indent import Indentation
from tilec.frontend.parse import parse
from tilec.source import SourceFile, Span

WHOLE = """\
import std.maths as m
import "parts/layers.tk"
from std.merges import merge, join_rows as rows
LIMIT = 0x40

fn twice[T: dtype](x, y: T) -> T, f32:
    return x + x, y

kernel whole[D: int = 128, CAUSAL: bool = false](
        q: bf16[B, H, M, D], scale: f32,
        o: out bf16[B, H, M, D], w: inout f32[B],   # a comment inside brackets
):
    require H % 2 == 0
    tune BN in [64, 128,]
    schedule stages=3, registers=(40, 232)
    for b, h, i in parallel(B, H, tiles(M)):
        shared qi = q[b, h, i, :]
        x, y = (qi, 1.5e-3)
        # a comment at another depth
      # and one at none
        for j in tiles(lo, hi, max=L) join merge(x, y):
            x[:, None] = y.at(i - 1, fill=-.5)
            if not a < b <= c and d or ~e: pass
            elif x: x = -2 ** 3
            else:
                while true:
                    x <<= 1 if false
"""


def test_the_whole_language_parses() -> None:
    module = parse(SourceFile("whole.tk", WHOLE.replace("x <<= 1 if false", "x //= 1 << 2")))
    assert [i.module for i in module.imports] == ["std.maths", "parts/layers.tk", "std.merges"]
    assert [i.is_file for i in module.imports] == [False, True, False]
    alias = module.imports[0].alias
    assert alias is not None
    assert alias.id == "m"
    names = [(n.name.id, n.alias.id) for n in module.imports[2].names]
    assert names == [("merge", "merge"), ("join_rows", "rows")]
    assert module.functions[0].parameters[0].type is None
    kernel = module.kernels[0]
    assert [p.mode for p in kernel.parameters] == ["in", "in", "out", "inout"]
    loop = kernel.body[-1]
    assert isinstance(loop, ast.For)
    pinned, inner = loop.body[0], loop.body[2]
    assert isinstance(pinned, ast.Assign)
    assert pinned.home == "shared"
    assert isinstance(inner, ast.For)
    assert inner.join is not None
    assert [n.id for n in inner.join.names] == ["x", "y"]


def expression(text: str) -> ast.Expression:
    """One expression, parsed as a constant's value."""
    return parse(SourceFile("e.tk", f"X = {text}\n")).constants[0].value


def shown(node: ast.Expression) -> str:
    """An expression with every grouping in brackets."""
    match node:
        case ast.Binary():
            return f"({shown(node.left)} {node.op} {shown(node.right)})"
        case ast.Unary():
            return f"({node.op} {shown(node.operand)})"
        case ast.Compare():
            parts = [shown(node.operands[0])]
            for op, operand in zip(node.ops, node.operands[1:], strict=True):
                parts += [op, shown(operand)]
            return f"({' '.join(parts)})"
        case _:
            return node.span.text


@pytest.mark.parametrize(
    ("text", "grouping"),
    [
        ("a + b * c - d", "((a + (b * c)) - d)"),
        ("a @ b + c", "((a @ b) + c)"),
        ("-a ** b", "(- (a ** b))"),
        ("-a * b", "((- a) * b)"),
        ("a ** -b ** c", "(a ** (- (b ** c)))"),
        ("a < b == c", "(a < b == c)"),
        ("not a < b and c or d", "(((not (a < b)) and c) or d)"),
        ("a | b ^ c & d << e + f", "(a | (b ^ (c & (d << (e + f)))))"),
        ("(a + b).T[i, :]", "(a + b).T[i, :]"),
        ("a // b % c", "((a // b) % c)"),
    ],
)
def test_operators_bind_as_in_python(text: str, grouping: str) -> None:
    assert shown(expression(text)) == grouping


@pytest.mark.parametrize(
    ("text", "value"),
    [("1_000", 1000), ("0xFF", 255), ("0b101", 5), ("1.", 1.0), (".5", 0.5), ("2e3", 2000.0)],
)
def test_numbers(text: str, value: float) -> None:
    node = expression(text)
    assert isinstance(node, ast.Literal)
    assert node.value == value
    assert type(node.value) is type(value)


def test_a_span_is_the_text_of_its_node() -> None:
    module = parse(SourceFile("s.tk", "kernel k(a: f32[M]):\n    x = a[i, :] + f(1)\n"))
    statement = module.kernels[0].body[0]
    assert isinstance(statement, ast.Assign)
    assert statement.span.text == "x = a[i, :] + f(1)"
    assert isinstance(statement.value, ast.Binary)
    assert statement.value.left.span.text == "a[i, :]"
    assert (statement.value.right.span.line, statement.value.right.span.column) == (2, 19)


def test_lines_and_columns_count_from_one() -> None:
    file = SourceFile("x", "ab\ncd\n")
    assert (Span(file, 3, 5).line, Span(file, 3, 5).column) == (2, 1)
    assert (Span(file, 0, 5).end_line, Span(file, 0, 5).end_column) == (2, 3)
    assert file.line(2) == "cd"
    assert file.line(9) == ""


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "   \n# x\n"])
def test_a_file_may_hold_nothing(text: str) -> None:
    assert parse(SourceFile("empty.tk", text)).kernels == ()


def test_line_ends_of_windows_and_continued_lines_parse() -> None:
    text = "kernel k(a: f32[M]):\r\n    x = a[i] + \\\r\n        1\r\n    pass\r\n"
    assert len(parse(SourceFile("crlf.tk", text)).kernels[0].body) == 2


def test_generated_tables_give_the_same_tree(tmp_path: Path) -> None:
    import lark

    grammar_tables.write_tables(grammar_tables.TK, tmp_path / "tables.py", postlex=Indentation())
    tables: dict[str, object] = {}
    exec((tmp_path / "tables.py").read_text(), tables)
    assert tables["LARK"] == lark.__version__
    loaded = lark.Lark._load_from_dict(tables["DATA"], tables["MEMO"], postlex=Indentation())
    built = grammar_tables.build_parser(grammar_tables.TK, postlex=Indentation())
    text = WHOLE.replace("x <<= 1 if false", "x = 1")
    assert loaded.parse(text) == built.parse(text)


def test_importing_the_frontend_imports_no_parser_generator() -> None:
    code = (
        "import sys, tilec.frontend.parse, tilec.frontend.lower; assert 'lark' not in sys.modules"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_a_syntax_error_does_not_hide_the_next_line() -> None:
    text = "kernel k(a: f32[M]):\n    x = = 1\n    y = 2\n    z = ) 3\n"
    with pytest.raises(DiagnosticError) as raised:
        parse(SourceFile("two.tk", text))
    assert [e.span.line for e in raised.value.diagnostics if e.span] == [2, 4]
