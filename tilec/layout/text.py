"""The text form of a layout, both ways: `(reg: j1 i8 j8*10 | lane: j2 j4 i1 i2 i4)`.

Works on plain data, a list of ((axis, step), ...), extent for each space, so that the meaning of
a layout stays in `linear.py`. Printing merges a repeat with the bits just below it (`j8 j16*5`
becomes `j8*10`); parsing takes both spellings.
"""

from __future__ import annotations

import re

AXIS_NAMES = "ijkl"

PlainDigit = tuple[tuple[tuple[int, int], ...], int]

_SPACE = re.compile(r"\s*([a-z][a-z_0-9]*)\s*:(.*)", re.DOTALL)
_STEP = re.compile(rf"([{AXIS_NAMES}])([0-9]+)")
_DIGIT = re.compile(rf"(_|[{AXIS_NAMES}][0-9]+(?:\^[{AXIS_NAMES}][0-9]+)*)(?:\*([0-9]+))?")


def parse_layout(text: str) -> dict[str, list[PlainDigit]]:
    """Read the text; ValueError names the piece that is wrong."""
    body = text.strip()
    if not (body.startswith("(") and body.endswith(")")):
        raise ValueError(f"a layout stands in parentheses: {text!r}")
    spaces: dict[str, list[PlainDigit]] = {}
    inner = body[1:-1]
    if not inner.strip():
        return spaces
    for part in inner.split("|"):
        match = _SPACE.fullmatch(part)
        if match is None:
            raise ValueError(f"expected `space: digits`, found {part.strip()!r}")
        name, digits = match.groups()
        if name in spaces:
            raise ValueError(f"space {name} is given twice")
        spaces[name] = [_parse_digit(word) for word in digits.split()]
    return spaces


def _parse_digit(word: str) -> PlainDigit:
    match = _DIGIT.fullmatch(word)
    if match is None:
        raise ValueError(f"{word!r} is no digit: write `j8`, `i1^j8`, `j8*10` or `_`")
    moves, count = match.groups()
    steps = tuple((AXIS_NAMES.index(axis), int(step)) for axis, step in _STEP.findall(moves))
    return steps, int(count) if count else 2


def format_space(digits: list[PlainDigit]) -> str:
    """Print the digits of one space, repeats merged with the bits that they continue."""
    merged: list[PlainDigit] = []
    for steps, extent in digits:
        total = extent
        if extent != 2:
            while merged and merged[-1] == (_halved(steps), 2):
                steps, _ = merged.pop()
                total *= 2
        merged.append((steps, total))
    return " ".join(format_digit(steps, extent) for steps, extent in merged)


def format_digit(steps: tuple[tuple[int, int], ...], extent: int) -> str:
    """Print one digit."""
    moves = "^".join(f"{AXIS_NAMES[axis]}{step}" for axis, step in steps) or "_"
    return moves if extent == 2 else f"{moves}*{extent}"


def _halved(steps: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    return tuple((axis, step // 2) for axis, step in steps)
