"""Source text and places in it.

A ``Span`` is a half-open range of characters of one ``SourceFile``; lines and columns are derived
from it, 1-based, as editors show them. Nothing here reads a file on import or keeps a registry.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class SourceFile:
    """A named text; the name is what messages show (a path, or ``<text>``)."""

    name: str
    text: str
    undecoded: tuple[int, int] | None = None
    """Where the text is no UTF-8, and the byte found there; such a text is only for messages."""

    @classmethod
    def read(cls, path: str | Path) -> SourceFile:
        """The file at ``path``, as UTF-8, with newlines made uniform and no byte order mark."""
        data = Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf")
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        try:
            return cls(str(path), data.decode("utf-8"))
        except UnicodeDecodeError as error:
            place = len(data[: error.start].decode("utf-8"))
            text = data.decode("utf-8", errors="replace")
            return cls(str(path), text, (place, data[error.start]))

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """Offset at which each line starts."""
        starts = [0]
        starts.extend(i + 1 for i, char in enumerate(self.text) if char == "\n")
        return tuple(starts)

    def position(self, offset: int) -> tuple[int, int]:
        """1-based line and column of a character offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Text of a 1-based line without its newline; empty past the end."""
        if not 1 <= number <= len(self.line_starts):
            return ""
        start = self.line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : len(self.text) if end < 0 else end].rstrip("\r")


@dataclass(frozen=True)
class Span:
    """Characters ``start`` up to, not including, ``end`` of a file."""

    file: SourceFile
    start: int
    end: int

    @property
    def line(self) -> int:
        """1-based line of the first character."""
        return self.file.position(self.start)[0]

    @property
    def column(self) -> int:
        """1-based column of the first character."""
        return self.file.position(self.start)[1]

    @property
    def end_line(self) -> int:
        """1-based line of the last character."""
        return self.file.position(max(self.start, self.end - 1))[0]

    @property
    def end_column(self) -> int:
        """1-based column just past the last character, on ``end_line``."""
        return self.file.position(max(self.start, self.end - 1))[1] + (self.end > self.start)

    @property
    def text(self) -> str:
        """The characters themselves."""
        return self.file.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """The range from the start of this one to the end of ``other``."""
        return Span(self.file, min(self.start, other.start), max(self.end, other.end))

    def __str__(self) -> str:
        return f"{self.file.name}:{self.line}:{self.column}"
