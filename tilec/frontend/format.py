"""The one way to lay out a .tk file, for ``tilec fmt``: spaces, line ends, blank lines, indents.

The tokens are those that the parser read; what stands between them is thrown away, but for the
comments and for one blank line where there were any. A comment on a line of its own belongs to
the block whose indentation it reaches. ``kernel`` and ``fn`` have a blank line around them.

Invariants: the text means what it meant (the parse trees are compared before anything is given
back), every comment is kept in its order, and what has been formatted stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

from tilec.diagnostics import DiagnosticError
from tilec.frontend.build_ast import AstBuilder, too_deep
from tilec.frontend.indent import BadIndentation, Indentation
from tilec.frontend.parse import parse
from tilec.frontend.statement_layout import INDENT, Leaf, lines_of
from tilec.source import SourceFile
from tilec.tables import TK, parser_of

_BETWEEN = re.compile(r"#[^\n]*|\\[ \t]*\n|\n")


def formatted(source: SourceFile) -> str:
    """The text of ``source`` laid out; raises ``DiagnosticError`` if it does not parse."""
    text = _ended(source.text.replace("\r\n", "\n"))
    tree, tokens = _read(SourceFile(source.name, text))
    made = _laid_out(text, tokens)
    # A group that had to be opened gets a last comma and with it stays open, which may leave
    # another one room to close. Commas only come, so this ends.
    while (again := _laid_out(made, _read(SourceFile(source.name, made))[1])) != made:
        made = again
    if _read(SourceFile(source.name, made))[0] != tree or comments(made) != comments(text):
        raise AssertionError(f"formatting would change {source.name}")
    return made


def comments(text: str) -> list[str]:
    """All comments of a text that parses, in order."""
    found = re.findall(r'"[^"\n]*"|#[^\n]*', text)
    return [part.rstrip() for part in found if part.startswith("#")]


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


@cache
def _parser() -> Any:
    return parser_of(TK, postlex=Indentation())


def _read(source: SourceFile) -> tuple[list[tuple[str, int]], list[Any]]:
    """The parse tree, flat, and the tokens, those about line ends and blocks among them."""
    from lark.exceptions import UnexpectedInput

    try:
        reader = _parser().parse_interactive(_ended(source.text))
        tokens = reader.exhaust_lexer()
        tree = reader.feed_eof(tokens[-1] if tokens else None)
    except (UnexpectedInput, BadIndentation):
        parse(source)  # explains what is wrong
        raise
    deep = too_deep(source, tree)
    if deep is not None:
        raise DiagnosticError(deep)
    builder = AstBuilder(source)
    builder.visit(tree)
    if builder.errors:
        raise DiagnosticError(builder.errors)
    return _flat(tree), tokens


def _flat(tree: Any) -> list[tuple[str, int]]:
    """Rules with their number of parts, and tokens, in the order of the text: two trees are the
    same when these are, and long chains make deep trees, which Python compares by recursion.
    """
    found, todo = [], [tree]
    while todo:
        item = todo.pop()
        parts = getattr(item, "children", None)
        found.append(
            (str(item) if parts is None else item.data, -1 if parts is None else len(parts))
        )
        todo.extend(reversed(parts or ()))
    return found


# --- from tokens to statements and comments -------------------------------------------------------


@dataclass
class _Item:
    """A statement, or a comment on a line of its own, at a level of blocks."""

    level: int
    after_blank: bool
    comment: str = ""
    tokens: list[Leaf] = field(default_factory=list)

    def type(self) -> str:
        """What it starts with."""
        return self.tokens[0].type if self.tokens else "COMMENT"

    def is_top_comment(self) -> bool:
        """Whether it is a comment outside all blocks."""
        return not self.tokens and self.level == 0

    def lines(self) -> list[str]:
        """As text."""
        indent = self.level * INDENT
        return lines_of(self.tokens, indent) if self.tokens else [" " * indent + self.comment]


@dataclass(frozen=True)
class _Comment:
    """A comment in the gap between two tokens."""

    text: str
    is_beside: bool
    column: int
    after_blank: bool


def _gap(text: str, start: int, end: int) -> tuple[list[_Comment], bool]:
    """The comments between two tokens, and whether a blank line precedes the second one."""
    found: list[_Comment] = []
    ends, on_line = 0, start > 0
    for match in _BETWEEN.finditer(text, start, end):
        if match[0] == "\n":
            ends += 1
        if match[0][0] != "#":
            on_line = False
            continue
        column = len(text[text.rfind("\n", 0, match.start()) + 1 : match.start()].expandtabs(4))
        found.append(_Comment(match[0].rstrip(), on_line, column, ends > 1))
        ends, on_line = 0, False
    return found, ends > 1


class _Reader:
    """Puts tokens into statements and comments where they belong."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.items: list[_Item] = []
        self.widths = [0]
        self.open_before = [0]
        self.end = 0
        self.last: Leaf | None = None
        self.statement: _Item | None = None
        self.depth = 0
        self.is_inline = False

    def read(self, tokens: Sequence[Any]) -> list[_Item]:
        """All items of a file."""
        for token, following in pairwise([*tokens, None]):
            match token.type:
                case "_NL":
                    self.finish()
                    self.is_inline = False
                case "_INDENT":
                    self.widths.append(len(token))
                case "_DEDENT":
                    self.widths.pop()
                case _:
                    self.add(token, following)
        self.place(_gap(self.text, self.end, len(self.text))[0], 0)
        return self.items

    def finish(self) -> None:
        """A statement ends here."""
        if self.statement is not None:
            self.open_before = list(self.widths)
        self.statement = None

    def add(self, token: Any, following: Any) -> None:
        """A token of a statement."""
        found, after_blank = _gap(self.text, self.end, token.start_pos)
        leaf = Leaf(token.type, str(token))
        if self.statement is None:
            level = len(self.widths) - 1 + self.is_inline
            self.place(found, level)
            self.statement = _Item(level, after_blank)
            self.items.append(self.statement)
        else:
            if found and found[0].is_beside and self.last is not None:
                self.last.beside = found.pop(0).text
            leaf.above = [comment.text for comment in found]
        self.statement.tokens.append(leaf)
        self.last, self.end = leaf, token.end_pos
        self.depth += (token.type in ("LPAR", "LSQB")) - (token.type in ("RPAR", "RSQB"))
        if token.type == "COLON" and not self.depth and following.type != "_NL":
            self.finish()
            self.is_inline = True

    def place(self, found: list[_Comment], level: int) -> None:
        """Comments between two statements, the second of which is at ``level``."""
        for comment in found:
            if comment.is_beside and self.last is not None:
                self.last.beside = comment.text
                continue
            reached = [n for n, width in enumerate(self.open_before) if width <= comment.column]
            deepest = max([level, *reached])
            self.items.append(_Item(deepest, comment.after_blank, comment.text))


# --- from items to text ---------------------------------------------------------------------------


def _laid_out(text: str, tokens: Sequence[Any]) -> str:
    items = _Reader(text).read(tokens)
    before_blank = set(_starts_of_definitions(items))
    lines: list[str] = []
    for number, item in enumerate(items):
        above = items[number - 1] if number else None
        if above is not None and item.level <= above.level and item.type() not in ("ELIF", "ELSE"):
            leaves_block = item.level == 0 < above.level
            if item.after_blank or leaves_block or number in before_blank:
                lines.append("")
        lines += item.lines()
    return "".join(f"{line}\n" for line in lines)


def _starts_of_definitions(items: Sequence[_Item]) -> Iterator[int]:
    """Where each ``kernel`` and ``fn`` starts, with the comments right above it."""
    for number, item in enumerate(items):
        if item.type() in ("KERNEL", "FN"):
            start = number
            while start and not items[start].after_blank and items[start - 1].is_top_comment():
                start -= 1
            yield start
