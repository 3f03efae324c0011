"""Turns leading spaces into ``_INDENT`` and ``_DEDENT`` tokens, between lexer and parser.

Inside brackets line ends mean nothing. Blocks are indented by spaces; a tab, or a line that
falls between two open levels, is refused. One object serves any number of parses at once: the
state lives in each run of ``process``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lark import Token

_OPEN = frozenset({"LPAR", "LSQB"})
_CLOSE = frozenset({"RPAR", "RSQB"})


@dataclass
class BadIndentation(Exception):
    """Indentation that fits no block; ``start`` and ``end`` are offsets in the text."""

    code: str
    message: str
    label: str
    start: int
    end: int
    note: str
    help: str


class Indentation:
    """Lark's postlexer."""

    always_accept = ("_NL",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Yield the tokens of ``stream`` with block tokens in place of leading spaces."""
        depth, levels, last = 0, [0], None
        for token in stream:
            last = token
            if token.type in _OPEN:
                depth += 1
            elif token.type in _CLOSE:
                depth = max(0, depth - 1)
            if token.type != "_NL":
                yield token
            elif depth == 0:
                yield token
                yield from _blocks(token, levels)
        if last is not None:
            while len(levels) > 1:
                levels.pop()
                yield type(last).new_borrow_pos("_DEDENT", "", last)


def _blocks(token: Token, levels: list[int]) -> Iterator[Token]:
    indent = str(token).rsplit("\n", 1)[1]
    if "#" in indent:  # a comment that ends the file is at no level
        return
    end = token.end_pos or 0
    width = len(indent)
    if "\t" in indent:
        raise BadIndentation(
            "tab-in-indentation",
            "this line is indented with a tab",
            "a tab here",
            end - width,
            end,
            "",
            "indent with spaces, four for each level",
        )
    if width > levels[-1]:
        levels.append(width)
        yield type(token).new_borrow_pos("_INDENT", indent, token)
        return
    while width < levels[-1]:
        levels.pop()
        yield type(token).new_borrow_pos("_DEDENT", indent, token)
    if width != levels[-1]:
        raise BadIndentation(
            "bad-indentation",
            "this line belongs to no open block",
            f"indented by {width} here",
            end - width,
            end,
            f"the enclosing block is indented by {levels[-1]}",
            "line it up with the block that it belongs to",
        )
