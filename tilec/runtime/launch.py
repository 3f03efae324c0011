"""From a compiled kernel and arrays on a GPU to a launch.

What the parameters hold is said by ``parameters``; here they are packed for the driver. A
``Loaded`` kernel keeps the launches it has prepared, so that a repeated call with the same arrays
costs one driver call a launch. Several launches follow each other on one stream, with
workspace between them if the kernel asks for it (``workspace``). Never synchronises, but for
kernels that assert or print: these it reads out (``checks``).
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.backend_ptx.arguments import Arguments
from tilec.backend_ptx.module import (
    Launch,
    Module,
    activate,
    copy_from_device,
    is_capturing,
    synchronize_stream,
    zero_on,
)
from tilec.backend_ptx.parameters import parameter_kinds
from tilec.backend_ptx.tensormap import encode
from tilec.compiler import Compiled
from tilec.ir.checks import BLOCKS, RESERVED, WORDS
from tilec.runtime.arrays import ArrayView
from tilec.runtime.checks import Said, read_checks, used_words
from tilec.runtime.findings import warn
from tilec.runtime.parameters import MapOf, Number, Pointer, Value, launches, value_of
from tilec.runtime.scalars import key as scalar_key
from tilec.runtime.specialise import LaunchError
from tilec.runtime.workspace import Block, block_for, borrowed

_KEPT = 64
_KEPT_PLACES = 8

Key = tuple[Any, ...]


def _as_kind(kind: str, bits: bytes) -> Any:
    formats = {"f32": "<f", "f64": "<d", "b16": "<H", "b32": "<I", "b64": "<Q"}
    form = formats[kind]
    return struct.unpack(form, bits[: struct.calcsize(form)])[0]


@dataclass
class _Prepared:
    """A call with everything decided but where its workspace lies."""

    block: Block
    launches: OrderedDict[int, tuple[Launch, ...]] = field(default_factory=OrderedDict)
    """By the address of the workspace."""


@dataclass
class Loaded:
    """A kernel in the memory of one GPU."""

    compiled: Compiled
    ordinal: int
    module: Module = field(init=False)
    _kinds: dict[str, tuple[str, ...]] = field(init=False)
    _calls: OrderedDict[Key, _Prepared] = field(default_factory=OrderedDict, init=False)

    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        """Load the PTX; the driver assembles it."""
        activate(self.ordinal)
        self.module = Module.load(self.compiled.ptx, ordinal=self.ordinal)
        warn(self.compiled, self.module.notes)
        names = [entry.name for entry in self.compiled.launches]
        self.functions = {name: self.module.function(name) for name in names}
        self._kinds = {n: parameter_kinds(self.compiled.module.kernel(n)) for n in names}

    @property
    def checks(self) -> bool:
        """Whether a launch asserts or prints."""
        return any(item.name == WORDS for item in self.compiled.workspace)

    @property
    def function(self) -> Any:
        """The entry of the first launch."""
        return self.functions[self.compiled.launches[0].name]

    def __call__(
        self,
        views: Mapping[str, ArrayView],
        scalars: Mapping[str, Any],
        stream: int,
        kind: str = "",
    ) -> Said | None:
        """Put the launches of one call on a stream, which ``kind``'s framework calls current.

        Of a kernel that asserts or prints, wait for them, and give what they reported.
        """
        if self.checks and is_capturing(stream):
            raise LaunchError(
                f"{self.compiled.name} has `assert` or `print`, which are read after each call; "
                "a graph that is being captured has no such moment",
                code="checks-in-graph",
                help="capture a variant without them: `kernel.using(checks=False)`",
            )
        key = (
            *((v.address, v.shape, v.strides) for v in views.values()),
            *map(scalar_key, scalars.values()),
        )
        with self._lock:  # a prepared launch holds the stream while it is issued
            prepared = self._calls.get(key)
            if prepared is None:
                prepared = self._calls[key] = _Prepared(self._block(views, scalars))
                if len(self._calls) > _KEPT:
                    self._calls.popitem(last=False)
            block, made = prepared.block, prepared.launches
            activate(self.ordinal)
            with borrowed(block.size_bytes, kind, self.ordinal, stream) as base:
                if base not in made:
                    made[base] = self._prepare({**views, **block.at(base)}, scalars)
                    if len(made) > _KEPT_PLACES:
                        made.popitem(last=False)
                if block.has_empty or self.checks:
                    zero_on(stream, base, block.size_bytes)
                for launch in made[base]:
                    launch(stream)
                return self._read(block.at(base), stream) if self.checks else None

    def _read(self, workspace: Mapping[str, ArrayView], stream: int) -> Said:
        """What the launches on a stream reported, once they are done."""
        synchronize_stream(stream)
        counts = np.zeros(RESERVED, np.int64)
        copy_from_device(counts, workspace[WORDS].address)
        blocks = {}
        for name in BLOCKS.keys() & workspace.keys():
            held_as = np.int64 if name == WORDS else np.float64
            blocks[name] = block = np.zeros(workspace[name].shape, held_as)
            for used in used_words(name, counts):
                first = workspace[name].address + used.start * block.itemsize
                copy_from_device(block[used], first)
        return read_checks(self.compiled.module.kernels, blocks)

    def _block(self, views: Mapping[str, ArrayView], scalars: Mapping[str, Any]) -> Block:
        shapes = {name: view.shape for name, view in views.items()}
        return block_for(self.compiled.workspace, shapes, scalars, self.ordinal)

    def _prepare(
        self, views: Mapping[str, ArrayView], scalars: Mapping[str, Any]
    ) -> tuple[Launch, ...]:
        """The launches of a call in order, without those that have nothing to do."""
        made = []
        for entry, count in launches(self.compiled, views, scalars):
            kinds = self._kinds[entry.name]
            arguments = Arguments(kinds)
            for index, (kind, parameter) in enumerate(zip(kinds, entry.parameters, strict=True)):
                value = value_of(self.compiled, parameter, views, scalars)
                arguments.set(index, _packed(kind, value, views))
            function, block = self.functions[entry.name], (entry.threads, 1, 1)
            made.append(Launch(function, (count, 1, 1), block, entry.shared_bytes, arguments))
        return tuple(made)


def _packed(kind: str, value: Value, views: Mapping[str, ArrayView]) -> Any:
    """A value as ``Arguments`` takes it."""
    match value:
        case Pointer(array):
            return views[array].address
        case Number(bits):
            return _as_kind(kind, bits)
        case MapOf(array, extents, strides, box, swizzle):
            view = views[array]
            return encode(view.address, view.dtype, extents, strides, box, swizzle)
