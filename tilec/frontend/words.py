"""The words of the language by kind, for whatever colours its text; none is listed twice.

Keywords are read off the grammar's text, functions and element types off the tables that give
them their meaning. Nothing here decides what a program means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilec.frontend.builtins import BUILTINS
from tilec.frontend.signature import KINDS
from tilec.ir.types import DTYPES
from tilec.tables import TK

_LOOPS = ("parallel", "range", "tiles")
_STATEMENTS = ("print", "static_assert")
_CONSTANTS = ("LN2", "LOG2E", "PI", "false", "inf", "nan", "true")


@dataclass(frozen=True)
class Words:
    """All words that mean something by themselves, each kind in alphabetic order."""

    keywords: tuple[str, ...]
    constants: tuple[str, ...]
    types: tuple[str, ...]
    functions: tuple[str, ...]


def language_words() -> Words:
    """The words of this version."""
    grammar = TK.path().read_text(encoding="utf-8")
    literals = set(re.findall(r'"([A-Za-z_]+)"', re.sub(r"^//.*$", "", grammar, flags=re.M)))
    return Words(
        keywords=tuple(sorted(literals - {"None"})),
        constants=tuple(sorted({*_CONSTANTS, *(literals & {"None"})})),
        types=tuple(sorted({*DTYPES, *KINDS})),
        functions=tuple(sorted({*BUILTINS, *_LOOPS, *_STATEMENTS})),
    )
