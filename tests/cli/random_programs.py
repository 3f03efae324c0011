"""Random texts of the language's grammar, laid out as no one would: derived from Lark's own rules.

They need not type-check. Whatever the grammar gains is drawn without a change here. Each comment
is unique, so that its place can be found again.
"""

from __future__ import annotations

import random
from collections import defaultdict
from functools import cache
from typing import Any

from lark import Lark

from tilec.frontend.indent import Indentation
from tilec.tables import TK, build_parser

_WORDS = {
    "NAME": ("a", "i", "acc", "value_of_the_row", "T", "e5"),
    "INTEGER": ("1", "0x1F", "1_000", "128"),
    "FLOAT": ("1.", ".5", "2e3", "1.5e-3"),
    "STRING": ('"text"', '"# not a comment"'),
    "AUGMENT": ("+=", "//=", "@=", "|="),
    "COMPARE": ("==", "<", ">="),
    "SHIFT": ("<<", ">>"),
    "SIGN": ("+", "-"),
    "FACTOR": ("*", "//", "@"),
}
_TARGETS = ("x", "x[i, :]", "x, y")
_OPEN, _CLOSE = ("LPAR", "LSQB"), ("RPAR", "RSQB")


@cache
def parser() -> Lark:
    """A parser of its own, which keeps nothing from what is tested."""
    made = build_parser(TK, postlex=Indentation())
    assert isinstance(made, Lark)
    return made


@cache
def _rules() -> dict[str, list[list[Any]]]:
    rules: dict[str, list[list[Any]]] = defaultdict(list)
    for rule in parser().rules:
        rules[rule.origin.name].append(list(rule.expansion))
    return rules


@cache
def _fixed() -> dict[str, str]:
    return {t.name: t.pattern.value for t in parser().terminals if t.pattern.type == "str"}


@cache
def _heights() -> dict[str, float]:
    """The least depth of a derivation of each rule."""
    heights: dict[str, float] = defaultdict(lambda: float("inf"))
    for _ in _rules():
        for name, choices in _rules().items():
            heights[name] = 1 + min(_height(symbols, heights) for symbols in choices)
    return heights


def _height(symbols: list[Any], heights: dict[str, float]) -> float:
    return max((0 if s.is_term else heights[s.name] for s in symbols), default=0)


class Program:
    """One random text, the comments that stand in it, and the rules that it used."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.used: set[str] = set()
        self.comments: list[str] = []
        self._parts: list[str] = []
        self._widths = [0]
        self._depth = 0
        self._hugs = True
        self._most_parts = self.chance.choice((60, 200, 800))
        while not self.used & {"kernel", "function"}:
            self._parts.clear()
            self.comments.clear()
            self._derive("start", self.chance.randint(12, 40))
        self.text = "".join(self._parts)

    def _derive(self, name: str, budget: int) -> None:
        self.used.add(name)
        choices = _rules()[name]
        heights = _heights()
        budget *= len(self._parts) < self._most_parts
        fitting = [c for c in choices if _height(c, heights) < budget]
        lowest = min(_height(c, heights) for c in choices)
        symbols = self.chance.choice(
            fitting or [c for c in choices if _height(c, heights) == lowest]
        )
        is_assignment = name in ("assignment", "augmented")
        for number, symbol in enumerate(symbols):
            if is_assignment and number == 0:
                self._parts.append(self.chance.choice(_TARGETS))
                self._hugs = False
            elif symbol.is_term:
                self._terminal(symbol.name)
            else:
                self._derive(symbol.name, budget - 1)

    def _terminal(self, name: str) -> None:
        if name == "_NL":
            self._line_end()
        elif name == "_INDENT":
            self._widths.append(self._widths[-1] + self.chance.choice((2, 4, 7)))
            self._parts.append(" " * (self._widths[-1] - self._widths[-2]))
        elif name == "_DEDENT":
            self._widths.pop()
            while self._parts[-1].isspace() and "\n" not in self._parts[-1]:
                self._parts.pop()
            self._parts.append("\n" + " " * self._widths[-1])
        else:
            self._token(name, _fixed().get(name) or self.chance.choice(_WORDS[name]))

    def _token(self, name: str, text: str) -> None:
        self._depth -= name in _CLOSE
        bare = name in (*_OPEN, *_CLOSE, "COMMA", "COLON")
        if not self._hugs and not (bare and self.chance.random() < 0.5):
            self._parts.append(self._gap())
        self._parts.append(text)
        self._hugs = name in (*_OPEN, "COMMA", "COLON") and self.chance.random() < 0.5
        self._depth += name in _OPEN

    def _gap(self) -> str:
        draw = self.chance.random()
        if draw < 0.8 or not self._parts[-1].strip():
            return " " * self.chance.choice((1, 1, 1, 3))
        if not self._depth:
            return " \\\n   "
        if draw < 0.9:
            return "\n" * self.chance.choice((1, 2))
        return self.chance.choice(("  ", "\n  ")) + self._comment() + "\n "

    def _line_end(self) -> None:
        if self.chance.random() < 0.2:
            self._parts.append(" " + self._comment())
        self._parts.append("\n" * self.chance.choice((1, 1, 2, 4)))
        while self.chance.random() < 0.2:
            indent = " " * self.chance.randint(0, 9)
            self._parts.append(f"{indent}{self._comment()}\n")
        self._parts.append(" " * self._widths[-1])
        self._hugs = True

    def _comment(self) -> str:
        self.comments.append(f"# comment {len(self.comments)}.")
        return self.comments[-1]
