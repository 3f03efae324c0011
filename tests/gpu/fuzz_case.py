"""A random program as a case for a GPU: its seed says all of it. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FuzzCase:
    """One program, by its seed."""

    name: str
    seed: int
