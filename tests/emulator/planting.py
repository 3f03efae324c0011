"""A fault planted in the PTX that the compiler emits, for whoever runs it afterwards."""

from __future__ import annotations

import re

import pytest

from tilec.backend_ptx import emit
from tilec.ir.core import Module


def plant(monkeypatch: pytest.MonkeyPatch, what: str, instead: str) -> list[bool]:
    """Replace a pattern in all that is emitted from now on; the list says of each text if it was.

    The list grows with every text.
    """
    written, changed = emit.emit, list[bool]()

    def damaged(module: Module) -> str:
        text = written(module)
        found = re.sub(what, instead, text)
        changed.append(found != text)
        return found

    monkeypatch.setattr(emit, "emit", damaged)
    return changed
