"""Texts for the frontend to survive: derived from the grammar's own rules, and damaged programs.

Idea: ``tests.cli.random_programs`` walks Lark's rules; a damaged program is one of the examples or
of the page of the language with a few tokens deleted, doubled, exchanged or replaced, a number
changed, or lines indented otherwise. The frontend ends in a module or in diagnostics, at once.

Never: says which of the two it should be.
"""

from __future__ import annotations

import random
import re
import time
import traceback
from functools import cache
from pathlib import Path

from tests.cli.random_programs import Program
from tests.fuzz.trials import Hang, limited
from tilec.diagnostics import DiagnosticError
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.frontend.words import language_words
from tilec.ir.verify import verify
from tilec.source import SourceFile

_ROOT = Path(__file__).resolve().parents[2]
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\"[^\"\n]*\"|#[^\n]*|\n *|[^\w\s]+?|[ ]+")
_NUMBERS = ("0", "1", "-1", "16", "17", "4096", "1_000_000_000_000", "0x7F", "1e400", ".5", "1e-9")
LIMIT_S = 2.0
_HANG_S = 20
_WITHOUT_PLACE = {"no-kernel", "no-such-kernel", "which-kernel"}


@cache
def seeds() -> tuple[str, ...]:
    """The programs that are damaged."""
    page = (_ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```tk\n(.*?)^```$", page, re.M | re.S)
    examples = sorted((_ROOT / "examples").glob("*.tk"))
    return (*blocks, *(path.read_text(encoding="utf-8") for path in examples))


@cache
def _words() -> tuple[str, ...]:
    words = language_words()
    return (*words.keywords, *words.constants, *words.types, *words.functions)


def damaged(seed: int) -> str:
    """A program with some of its tokens changed."""
    chance = random.Random(seed)
    tokens = _TOKEN.findall(chance.choice(seeds()))
    for _ in range(chance.choice((1, 1, 1, 2, 4, 12))):
        at, other = chance.randrange(len(tokens)), chance.randrange(len(tokens))
        match chance.randrange(8):
            case 0:
                tokens[at] = ""
            case 1:
                tokens[at] += tokens[at]
            case 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens[at] = tokens[other]
            case 4:
                numbers = [n for n, t in enumerate(tokens) if t[:1].isdigit()] or [at]
                tokens[chance.choice(numbers)] = chance.choice(_NUMBERS)
            case 5:
                ends = [n for n, t in enumerate(tokens) if t.startswith("\n")] or [at]
                tokens[chance.choice(ends)] = "\n" + " " * chance.randrange(13)
            case 6:
                tokens[at] = chance.choice(_words())
            case _:
                tokens[at] = chance.choice(
                    ("\t", "\r\n", "\0", "é", "(", "]", '"', "\\", "**", ":=")
                )
    return "".join(tokens)


def text_of(seed: int) -> str:
    """The text of a seed: one of four is derived from the grammar."""
    return Program(seed).text if seed % 4 == 0 else damaged(seed)


def fault(text: str) -> str:
    """What is wrong with how the frontend takes a text; empty if nothing is."""
    start = time.perf_counter()
    try:
        with limited(_HANG_S):
            module = check(parse(SourceFile("fuzz.tk", text)), {})
            for kernel in module.kernels:
                verify(lower(module, kernel.name))
    except DiagnosticError as error:
        lost = [d for d in error.diagnostics if d.span is None and d.code not in _WITHOUT_PLACE]
        if lost or not error.diagnostics:
            return f"a diagnostic without a place: {lost}"
    except Hang as error:
        return str(error)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno}: {error}"
    took = time.perf_counter() - start
    return f"took {took:.1f} s" if took > LIMIT_S else ""
