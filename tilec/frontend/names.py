"""What names mean at a place: nested scopes, from the language's own names to a loop's body.

A scope remembers which names were bound in blocks that have ended, only to say so in a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilec.frontend import ast
from tilec.frontend.checked import Const, Expr, ExtentValue
from tilec.ir.types import DType
from tilec.source import Span


@dataclass(frozen=True)
class SizeChoice:
    """A name from ``tune``: the tile size of a loop is one of ``sizes``."""

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Broken:
    """A name whose value was refused; using it says nothing more."""


@dataclass(frozen=True)
class Function:
    """A ``fn``, and the scope of the file that it stands in, where its body finds its names."""

    node: ast.Function
    file: Scope


@dataclass(frozen=True)
class Library:
    """The names of an imported file, which may be read only where one of them is used."""

    name: str
    read: Callable[[], Scope]

    @property
    def file(self) -> Scope:
        """The file's names."""
        return self.read()


Meaning = Expr | Const | ExtentValue | DType | SizeChoice | Function | Library | Broken
"""A run-time value, a compile-time number, a dimension, an element type, a size, or code."""


@dataclass(frozen=True)
class Binding:
    """What one name stands for, and where it got that meaning (None: it is the language's)."""

    meaning: Meaning
    span: Span | None
    rebindable: bool = True


class Scope:
    """Names of one block, on top of those of the blocks around it."""

    def __init__(self, outer: Scope | None = None, is_parallel: bool = False) -> None:
        self.outer = outer
        self.is_parallel = is_parallel
        self.own: dict[str, Binding] = {}
        self.ended: dict[str, Span] = {}

    def chain(self) -> Iterator[Scope]:
        """This scope and those around it, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def find(self, name: str) -> Binding | None:
        """The innermost binding of a name."""
        for scope in self.chain():
            if name in scope.own:
                return scope.own[name]
        return None

    def owner(self, name: str) -> Scope | None:
        """The scope that binds a name."""
        return next((scope for scope in self.chain() if name in scope.own), None)

    def crosses_parallel(self, name: str) -> bool:
        """Whether a ``parallel`` lies between this scope and the one that binds ``name``."""
        for scope in self.chain():
            if name in scope.own:
                return False
            if scope.is_parallel:
                return self.find(name) is not None
        return False

    def bind(self, name: str, binding: Binding) -> None:
        """Give a name a meaning in this block."""
        self.own[name] = binding

    def end(self) -> None:
        """Tell the block around this one which names have ended with it."""
        if self.outer is not None:
            self.outer.ended.update({n: b.span for n, b in self.own.items() if b.span})
            self.outer.ended.update(self.ended)

    def ended_at(self, name: str) -> Span | None:
        """Where a name was bound in a block that has ended."""
        return next((s.ended[name] for s in self.chain() if name in s.ended), None)

    def public(self) -> list[str]:
        """The names of a file that others may import."""
        return [name for name in self.own if not name.startswith("_")]

    def known(self) -> list[str]:
        """All names that have a meaning here."""
        return [name for scope in self.chain() for name in scope.own]
