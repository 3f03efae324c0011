"""Elimination over the field of two elements, on vectors held in Python integers.

A vector is an int, one bit for each coordinate place; a combination is an int, one bit for each
vector that went in. Vectors are inserted in the order of the hardware bits, low to high, so a
solution uses a high hardware bit only where the lower ones cannot do: it is the lowest index.

Never used with more than a few dozen vectors; nothing here knows what the bits mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Basis:
    """An echelon basis that remembers which inserted vectors make up each of its rows."""

    rows: dict[int, tuple[int, int]] = field(default_factory=dict)
    kernel: list[int] = field(default_factory=list)

    def insert(self, vector: int, combination: int) -> bool:
        """Add a vector; a dependent one is kept as the combination that yields zero."""
        rest, used = self._reduce(vector)
        if rest:
            self.rows[rest.bit_length()] = (rest, used ^ combination)
            return True
        self.kernel.append(used ^ combination)
        return False

    def solve(self, vector: int) -> int | None:
        """Return the combination that gives the vector, or None outside the span."""
        rest, used = self._reduce(vector)
        return None if rest else used

    @property
    def rank(self) -> int:
        """The dimension of the span."""
        return len(self.rows)

    def _reduce(self, vector: int) -> tuple[int, int]:
        used = 0
        rest = vector
        # Rows are keyed by their top bit: clearing the top bit again and again must end.
        probe = rest.bit_length()
        while probe:
            if rest >> (probe - 1) & 1 and probe in self.rows:
                row, combination = self.rows[probe]
                rest ^= row
                used ^= combination
            probe -= 1
        return rest, used


def rank(vectors: list[int]) -> int:
    """Return how many of the vectors are independent."""
    basis = Basis()
    for vector in vectors:
        basis.insert(vector, 0)
    return basis.rank


def bits_of(mask: int) -> list[int]:
    """List the positions of the set bits, low to high."""
    return [position for position in range(mask.bit_length()) if mask >> position & 1]
