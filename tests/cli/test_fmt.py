"""``tilec fmt``: one layout, and nothing but layout, whatever the program."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.conftest import Command
from tests.cli.random_programs import Program, parser
from tilec.cli import main
from tilec.diagnostics import DiagnosticError
from tilec.frontend.format import comments, formatted
from tilec.frontend.parse import parse
from tilec.source import SourceFile

CHECKOUT = Path(__file__).resolve().parents[2]
_MARKS = frozenset({"_NL", "_INDENT", "_DEDENT", "COMMA"})


def laid_out(text: str) -> str:
    """A text formatted."""
    return formatted(SourceFile("t.tk", text))


def programs() -> Iterator[tuple[str, str]]:
    """Every program of the checkout: files, and the snippets of the pages."""
    for folder in ("examples", "tests", "tilec"):
        for path in sorted((CHECKOUT / folder).rglob("*.tk")):
            yield path.relative_to(CHECKOUT).as_posix(), path.read_text(encoding="utf-8")
    for path in sorted((CHECKOUT / "docs").glob("*.md")):
        page = path.read_text(encoding="utf-8")
        for match in re.finditer(r"^```tk\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            yield f"{path.name}:{page.count(chr(10), 0, match.start()) + 2}", match[1]


def is_whole(name: str, text: str) -> bool:
    """Whether a text parses; a page may show lines of a program without what is around them."""
    try:
        parse(SourceFile(name, text))
    except DiagnosticError:
        return False
    return True


EVERY = list(programs())
WHOLE = [pytest.param(text, id=name) for name, text in EVERY if is_whole(name, text)]
FAULTY = [pytest.param(text, id=name) for name, text in EVERY if not is_whole(name, text)]


def places(text: str) -> dict[str, int]:
    """For each comment, how many tokens other than commas stand before it."""
    starts = [
        token.start_pos
        for token in parser().parse_interactive(text).exhaust_lexer()
        if token.type not in _MARKS and token.start_pos is not None
    ]
    quoted = re.compile(r'"[^"\n]*"|(#[^\n]*)')
    return {
        match[1].rstrip(): sum(start < match.start() for start in starts)
        for match in quoted.finditer(text)
        if match[1]
    }


def assert_only_layout_changed(text: str) -> None:
    """What holds for every program."""
    made = laid_out(text)
    assert laid_out(made) == made
    assert parser().parse(made) == parser().parse(text if text.endswith("\n") else text + "\n")
    assert comments(made) == comments(text)
    assert places(made) == places(text if text.endswith("\n") else text + "\n")
    lines = made.split("\n")
    assert lines[-1] == ""
    assert not re.search(r"[ \t]\n|\A\n|\n\n\n|\n\n\Z", made)
    assert all((len(line) - len(line.lstrip(" "))) % 4 == 0 for line in lines)


def test_there_are_many_programs_to_try() -> None:
    assert len(WHOLE) > 60
    assert len(FAULTY) >= 5


@pytest.mark.parametrize("text", WHOLE)
def test_programs_of_the_checkout_mean_the_same(text: str) -> None:
    assert_only_layout_changed(text)


@pytest.mark.parametrize("text", FAULTY)
def test_a_syntax_error_is_the_one_that_check_reports(text: str) -> None:
    source = SourceFile("t.tk", text)
    with pytest.raises(DiagnosticError) as by_parse:
        parse(source)
    with pytest.raises(DiagnosticError) as by_fmt:
        formatted(source)
    assert str(by_fmt.value) == str(by_parse.value)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_random_programs_mean_the_same(seed: int) -> None:
    program = Program(seed)
    assert comments(program.text) == program.comments
    assert_only_layout_changed(program.text)


@pytest.mark.long
@settings(max_examples=3000, deadline=None, derandomize=True)
@given(st.integers(2**32, 2**48))
def test_many_random_programs_mean_the_same(seed: int) -> None:
    assert_only_layout_changed(Program(seed).text)


def test_random_programs_use_every_rule_of_the_grammar() -> None:
    used: set[str] = set()
    for seed in range(300):
        used |= Program(seed).used
    assert {rule.origin.name for rule in parser().rules} - used == set()


@pytest.mark.parametrize("text", WHOLE)
def test_spaces_between_tokens_do_not_matter(text: str) -> None:
    spread = re.sub(r'("[^"\n]*"|#[^\n]*)|(?<=[^\s\\]) (?=[^\s#])', r"\1    ", text)
    spread = re.sub(r'("[^"\n]*"|#[^\n]*) {4}', r"\1", spread)
    assert laid_out(spread) == laid_out(text)


@pytest.mark.parametrize("path", sorted((CHECKOUT / "examples").glob("*.tk")), ids=lambda p: p.stem)
def test_examples_are_laid_out(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert laid_out(text) == text


# --- the layout itself ----------------------------------------------------------------------------

BEFORE = """\


import std.maths   as m
from std.merges import merge,join_rows
LIMIT=0x40
fn twice[T:dtype](x,y:T)->T,f32: return x+x , -y
# about whole
kernel whole[D:int=128](
        q: bf16[B, H, M, D,], scale: f32,
        o : out bf16[B,H,M,D]   # the result
        , w: inout f32[B]
):

  require H%2==0


  tune BN in [64,128]
  schedule stages = 3,registers=(40,232)
  for b,h,i in parallel( B,H,tiles( M ) ):
      x,y = ( qi[ : ,None], (1.,) )
      # still in the loop
    # so is this

  # not in the loop
      # nor this

      for j in tiles(lo,hi,max = L) join merge(x,y):   # over keys

          x[:,None] = y . at(i-1,fill = - .5) @ z[a+1 :b,::2].T
          if not a<b<=c and d or~e : pass   # nothing
          # before elif
          elif x : x=-2**3
      # after the if
# at the end"""

AFTER = """\
import std.maths as m
from std.merges import merge, join_rows
LIMIT = 0x40

fn twice[T: dtype](x, y: T) -> T, f32:
    return x + x, -y

# about whole
kernel whole[D: int = 128](
    q: bf16[B, H, M, D],
    scale: f32,
    o: out bf16[B, H, M, D],  # the result
    w: inout f32[B],
):
    require H % 2 == 0

    tune BN in [64, 128]
    schedule stages=3, registers=(40, 232)
    for b, h, i in parallel(B, H, tiles(M)):
        x, y = (qi[:, None], (1.,))
        # still in the loop
        # so is this

        # not in the loop
        # nor this

        for j in tiles(lo, hi, max=L) join merge(x, y):  # over keys
            x[:, None] = y.at(i - 1, fill=-.5) @ z[a + 1:b, ::2].T
            if not a < b <= c and d or ~e:
                pass  # nothing
            # before elif
            elif x:
                x = -2 ** 3
        # after the if

# at the end
"""


def test_one_layout() -> None:
    made = laid_out(BEFORE)
    assert made == AFTER


NAMES = [f"value_{n:02}" for n in range(12)]


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        (f"x = f({', '.join(NAMES[:7])})", f"x = f({', '.join(NAMES[:7])})"),
        (
            f"x = f({', '.join(NAMES)})",
            "x = f(\n" + "".join(f"    {name},\n" for name in NAMES) + ")",
        ),
        ("x = f(a, b,)", "x = f(\n    a,\n    b,\n)"),
        ("x = f(\n    a, b\n)", "x = f(a, b)"),
        ("x = a[\n    i, j,\n]", "x = a[i, j]"),
        ("x = a + \\\n    b", "x = a + b"),
        (
            f"x = g({' + '.join(NAMES)})",
            "x = g(\n    " + "\n    + ".join(NAMES) + ",\n)",
        ),
        (
            f"x = ({' + '.join(f'{name} * 2' for name in NAMES)})",
            "x = (\n    " + "\n    + ".join(f"{name} * 2" for name in NAMES) + "\n)",
        ),
        (" + ".join(["x = y", *NAMES]), " \\\n    + ".join(["x = y", *NAMES])),
        (f"x = f(a, b) + g({', '.join(NAMES[:9])})[:, None]",
         "x = f(a, b) + g(\n" + "".join(f"    {name},\n" for name in NAMES[:9]) + ")[:, None]"),
        ("x = f(  # first\n  # second\n  a # third\n  , # fourth\n b)  # fifth",
         "x = f(  # first\n    # second\n    a,  # third\n    # fourth\n    b,\n)  # fifth"),
    ],
)  # fmt: skip
def test_long_lines_break_at_brackets_and_else_before_operators(
    statement: str, wanted: str
) -> None:
    head = "kernel k():\n"
    made = laid_out(head + "    " + statement + "\n")
    assert made == head + "".join(f"    {line}\n" for line in wanted.split("\n"))
    assert max(map(len, made.split("\n"))) <= 100


def test_what_cannot_be_broken_may_be_long() -> None:
    text = f"kernel k():\n    x = {'y' * 120}\n    # {'long ' * 30}end\n    pass  # {'z' * 120}\n"
    assert laid_out(text) == text


@pytest.mark.parametrize("text", ["", "\n\n", "   \n"])
def test_nothing_stays_nothing(text: str) -> None:
    assert laid_out(text) == ""


def test_a_one_tuple_keeps_its_comma() -> None:
    assert laid_out("X = (1 ,)\n") == "X = (1,)\n"


# --- the command ----------------------------------------------------------------------------------

UGLY, PRETTY = "kernel k(a:f32[M]):\n  pass\n", "kernel k(a: f32[M]):\n    pass\n"


def test_files_are_laid_out_in_place(tilec: Command, tmp_path: Path) -> None:
    ugly, pretty = tmp_path / "ugly.tk", tmp_path / "pretty.tk"
    ugly.write_text(UGLY)
    pretty.write_text(PRETTY)
    ugly.chmod(0o640)
    before = pretty.stat()
    assert tilec("fmt", ugly, pretty).stdout == f"{ugly}: laid out anew\n"
    assert ugly.read_text() == PRETTY
    assert stat.S_IMODE(ugly.stat().st_mode) == 0o640
    assert (pretty.stat().st_ino, pretty.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert tilec("fmt", ugly, pretty).stdout == ""


def test_check_and_diff_write_nothing(tilec: Command, tmp_path: Path) -> None:
    file = tmp_path / "ugly.tk"
    file.write_text(UGLY)
    assert tilec("fmt", "--check", file, code=1).stdout == f"{file}: would be laid out anew\n"
    shown = tilec("fmt", "--diff", file, code=1).stdout
    assert shown.splitlines()[3:] == [f"-{line}" for line in UGLY.splitlines()] + [
        f"+{line}" for line in PRETTY.splitlines()
    ]
    assert file.read_text() == UGLY
    file.write_text(PRETTY)
    assert tilec("fmt", "--check", file).stdout == ""
    assert tilec("fmt", "--diff", file).stdout == ""


def test_standard_input_goes_to_standard_output() -> None:
    assert CliRunner().invoke(main, ["fmt", "-"], input=UGLY).stdout == PRETTY
    checked = CliRunner().invoke(main, ["fmt", "--check", "-"], input=UGLY)
    assert (checked.exit_code, checked.stdout) == (1, "<stdin>: would be laid out anew\n")


def test_a_syntax_error_leaves_its_file_alone_and_not_the_others(
    tilec: Command, tmp_path: Path
) -> None:
    faulty, ugly = tmp_path / "faulty.tk", tmp_path / "ugly.tk"
    faulty.write_text("kernel k():\n    x = = 1\n")
    ugly.write_text(UGLY)
    said = tilec("fmt", faulty, ugly, code=1).stderr
    assert f"error[syntax]: found `=` where it cannot stand\n --> {faulty}:2:9" in said
    assert faulty.read_text() == "kernel k():\n    x = = 1\n"
    assert ugly.read_text() == PRETTY


def test_line_ends_of_windows_stay(tilec: Command, tmp_path: Path) -> None:
    file = tmp_path / "crlf.tk"
    file.write_bytes(UGLY.replace("\n", "\r\n").encode())
    tilec("fmt", file)
    assert file.read_bytes() == PRETTY.replace("\n", "\r\n").encode()
    assert tilec("fmt", "--check", file).stdout == ""


def test_a_file_that_cannot_be_replaced_stays_whole(
    tilec: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ugly.tk"
    file.write_text(UGLY)

    def refuse(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", refuse)
    assert "the disk is full" in tilec("fmt", file, code=1).stderr
    assert file.read_text() == UGLY
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_stays_a_link(tilec: Command, tmp_path: Path) -> None:
    file, link = tmp_path / "ugly.tk", tmp_path / "link.tk"
    file.write_text(UGLY)
    link.symlink_to(file)
    tilec("fmt", link)
    assert link.is_symlink()
    assert file.read_text() == PRETTY


def test_generated_tables_lay_out_the_same(tmp_path: Path) -> None:
    import lark

    from tilec.frontend import format as module
    from tilec.frontend.indent import Indentation
    from tilec.tables import TK, write_tables

    write_tables(TK, tmp_path / "tables.py", postlex=Indentation())
    tables: dict[str, object] = {}
    exec((tmp_path / "tables.py").read_text(), tables)
    loaded = lark.Lark._load_from_dict(tables["DATA"], tables["MEMO"], postlex=Indentation())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_parser", lambda: loaded)
        assert laid_out(BEFORE) == AFTER
