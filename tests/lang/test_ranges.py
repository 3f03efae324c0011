"""What is proved about subscripts is true: accepted ones stay inside at every small size."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tilec.diagnostics import DiagnosticError
from tilec.frontend.check import check
from tilec.frontend.parse import parse
from tilec.source import SourceFile

_HEAD = """kernel k(x: f32[{extent}], a: f32[H, G, M, K], y: out f32[1]):
    require {stated}
    for h, g in parallel(H, G):
        for t in range(g, M):
            v = x[{subscript}]
            y[0] = v
"""
STATED = ("H % G == 0", "M == G + 2", "K == H * G", "H >= 2 and K > M", "M % 4 == 0", "G <= H")
NAMES = ("h", "g", "t", "H", "G", "M", "K", "1", "2", "4")


def accepted(extent: str, stated: str, subscript: str) -> bool:
    text = _HEAD.format(extent=extent, stated=stated, subscript=subscript)
    try:
        check(parse(SourceFile("r.tk", text)), {})
    except DiagnosticError as error:
        codes = {d.code for d in error.diagnostics}
    else:
        return True
    assert codes <= {"may-be-out-of-range", "no-such-number"}  # such as 1 % (2 - 2)
    return False


def always_inside(extent: str, stated: str, subscript: str) -> bool:
    """Whether no launch with sizes below 7 leaves the array."""
    rule, at = compile(stated, "", "eval"), compile(subscript, "", "eval")
    for sizes in product(range(7), repeat=4):
        names = dict(zip("HGMK", sizes, strict=True))
        try:
            if not eval(rule, {}, names):
                continue
        except ZeroDivisionError:
            continue
        for h, g in product(range(names["H"]), range(names["G"])):
            for t in range(g, names["M"]):
                here = {**names, "h": h, "g": g, "t": t, "min": min, "max": max}
                try:
                    if not 0 <= eval(at, {}, here) < names[extent]:
                        return False
                except ZeroDivisionError:  # has some value, on which no proof rests
                    continue
    return True


def drawn(source: random.Random, depth: int) -> str:
    """A random integer expression."""
    if depth == 0 or source.random() < 0.25:
        return source.choice(NAMES)
    left, right = drawn(source, depth - 1), drawn(source, depth - 1)
    op = source.choice(("+", "-", "*", "//", "%", "min", "max"))
    return f"{op}({left}, {right})" if op.startswith("m") else f"({left} {op} {right})"


@pytest.mark.parametrize(
    ("extent", "stated", "subscript"),
    [
        ("H", "G <= H", "h"),
        ("H", "G <= H", "g"),
        ("M", "M == G + 2", "g + 2"),
        ("M", "M == G + 2", "t"),
        ("K", "K == H * G", "h * G + g"),
        ("G", "H % G == 0", "h // (H // G)"),
        ("G", "H % G == 0", "h % G"),
        ("H", "H % G == 0", "(H // G) * g + h % (H // G)"),
        ("K", "H >= 2 and K > M", "t + 1"),
        ("H", "H >= 2 and K > M", "min(t, H - 1)"),
        ("H", "G <= H", "max(h - 1, 0)"),
        ("M", "M % 4 == 0", "4 * (t // 4) + 3"),
        ("M", "M % 4 == 0", "t - t % 4"),
    ],
)
def test_what_an_author_expects_is_proved(extent: str, stated: str, subscript: str) -> None:
    assert always_inside(extent, stated, subscript)
    assert accepted(extent, stated, subscript)


def test_nothing_false_is_proved() -> None:
    source = random.Random(5)
    proved = 0
    for _ in range(600):
        extent, stated = source.choice("HGMK"), source.choice(STATED)
        subscript = drawn(source, 3)
        if accepted(extent, stated, subscript):
            proved += 1
            assert always_inside(extent, stated, subscript), (extent, stated, subscript)
    assert proved >= 15
