"""The ways to lower each ``cta`` op to ``ptx`` ops, one family of ops a file."""

from __future__ import annotations

import pkgutil
from importlib import import_module


def load_rules() -> None:
    """Import every family of this folder; each declares its rules."""
    for found in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{found.name}")
