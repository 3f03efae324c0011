"""What random programs used: a table of operations by element type, and what is wanting.

The words come from the language's own table: a function that the language gains is missing here
until the generator draws it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tests.fuzz.values import DTYPES, FLOATS, INTEGERS
from tilec.frontend.words import language_words

LEAST = 50
MISSING_NOTHING: dict[str, int] = {}
_ARITHMETIC = ("+", "-", "*", "min", "max", "**", "abs", "negated", "where")
_INTEGER = ("//", "%", "&", "|", "^", "<<", ">>", "~")
_COMPARED = ("<", "<=", ">", ">=", "==", "!=")
_SYNTAX = ("@", ".T", "at", "store at", "update at places", "broadcast", "scalar meets tile",
           "load", "store", "and", "or", "not", "if", "while", "fn", "tuple", "join", "strict",
           "assert", "register", "shared", "index", "loop over tiles")  # fmt: skip


def missing(used: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """What was used less than ``LEAST`` times: words, syntax, and operations of each type."""
    words, pairs = Counter[str](), Counter[str]()
    for (word, dtype), count in used.items():
        words[word] += count
        pairs[f"{word} of {dtype}"] += count
    wanted = [f"{op} of {t}" for op in _ARITHMETIC for t in (*FLOATS, *INTEGERS)]
    wanted += [f"{op} of {t}" for op in _INTEGER for t in INTEGERS]
    wanted += [f"{op} of {t}" for op in _COMPARED for t in (*FLOATS, *INTEGERS)]
    wanted += [f"{op} of {t}" for op in ("cast", "load", "store") for t in DTYPES]
    found = {w: words[w] for w in (*language_words().functions, *_SYNTAX) if words[w] < LEAST}
    return found | {pair: pairs[pair] for pair in wanted if pairs[pair] < LEAST}


def table(used: Mapping[tuple[str, str], int]) -> str:
    """How often each operation was used with each element type."""
    others = sorted({dtype for _, dtype in used} - set(DTYPES))
    rows = ["operation".ljust(22) + "".join(d.rjust(6) for d in DTYPES) + "  others"]
    for word in sorted({word for word, _ in used}):
        counts = "".join(str(used.get((word, d), "") or "").rjust(6) for d in DTYPES)
        rest = sum(used.get((word, d), 0) for d in others)
        rows.append(f"{word:22}{counts}{rest or '':>8}")
    return "\n".join(rows)
