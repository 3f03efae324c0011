"""From a compiled kernel and arrays on a GPU to a launch.

The kernel lists its parameters as ``(pointer, a)``, ``(extent, a, axis)``, ``(stride, a, axis)`` in
elements, ``(scalar, name)`` and ``(map, a, axes, box, swizzle_bytes)`` with axes innermost first.
A ``Loaded`` kernel keeps the launches it has prepared, so that a repeated call with the same
arrays costs one driver call. Never synchronises.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilec.backend_ptx.arguments import Arguments
from tilec.backend_ptx.module import Launch, Module, activate
from tilec.backend_ptx.parameters import parameter_kinds
from tilec.backend_ptx.tensormap import encode
from tilec.compiler import Compiled
from tilec.runtime.arrays import ArrayView
from tilec.runtime.expressions import evaluate
from tilec.runtime.findings import warn
from tilec.runtime.scalars import key as scalar_key
from tilec.runtime.scalars import scalar_bits
from tilec.runtime.specialise import LaunchError, effective_strides

_KEPT = 64
_MOST_CTAS = (1 << 31) - 1

Key = tuple[Any, ...]


def _as_kind(kind: str, bits: bytes) -> Any:
    formats = {"f32": "<f", "f64": "<d", "b16": "<H", "b32": "<I", "b64": "<Q"}
    form = formats[kind]
    return struct.unpack(form, bits[: struct.calcsize(form)])[0]


@dataclass
class Loaded:
    """A kernel in the memory of one GPU."""

    compiled: Compiled
    ordinal: int
    module: Module = field(init=False)
    _kinds: tuple[str, ...] = field(init=False)
    _launches: OrderedDict[Key, Launch | None] = field(default_factory=OrderedDict, init=False)

    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        """Load the PTX; the driver assembles it."""
        activate(self.ordinal)
        self.module = Module.load(self.compiled.ptx, ordinal=self.ordinal)
        warn(self.compiled, self.module.notes)
        self.function = self.module.function(self.compiled.name)
        self._kinds = parameter_kinds(self.compiled.module.kernel(self.compiled.name))

    def __call__(
        self, views: Mapping[str, ArrayView], scalars: Mapping[str, Any], stream: int
    ) -> None:
        """Put one launch on a stream."""
        key = (
            *((v.address, v.shape, v.strides) for v in views.values()),
            *map(scalar_key, scalars.values()),
        )
        if key not in self._launches:
            self._launches[key] = self._prepare(views, scalars)
            if len(self._launches) > _KEPT:
                self._launches.popitem(last=False)
        launch = self._launches[key]
        if launch is not None:
            with self._lock:  # a prepared launch holds the stream while it is issued
                activate(self.ordinal)
                launch(stream)

    def _prepare(self, views: Mapping[str, ArrayView], scalars: Mapping[str, Any]) -> Launch | None:
        compiled = self.compiled
        shapes = {name: view.shape for name, view in views.items()}
        count = int(evaluate(compiled.grid, shapes, scalars))
        if count <= 0:
            return None
        if count > _MOST_CTAS:
            raise LaunchError(f"{compiled.name} would need {count} CTAs; a grid has at most 2^31-1")
        arguments = Arguments(self._kinds)
        for index, (kind, parameter) in enumerate(
            zip(self._kinds, compiled.parameters, strict=True)
        ):
            arguments.set(index, self._value(kind, parameter, views, scalars))
        return Launch(
            self.function, (count, 1, 1), (compiled.threads, 1, 1), compiled.shared_bytes, arguments
        )

    def _value(
        self,
        kind: str,
        parameter: tuple[Any, ...],
        views: Mapping[str, ArrayView],
        scalars: Mapping[str, Any],
    ) -> Any:
        what, name, *rest = parameter
        if what == "scalar":
            dtype = dict(self.compiled.scalars)[name].dtype
            return _as_kind(kind, scalar_bits(dtype, scalars[name]))
        view = views[name]
        if what == "pointer":
            return view.address
        if what == "extent":
            return view.shape[rest[0]]
        if what == "stride":
            return _as_kind(kind, struct.pack("<q", effective_strides(view)[rest[0]]))
        if what == "map":
            axes, box, swizzle = rest
            steps = effective_strides(view)
            return encode(
                view.address,
                view.dtype,
                [view.shape[a] for a in axes],
                [steps[a] * view.element_bytes for a in axes[1:]],
                box,
                swizzle,
            )
        raise LaunchError(f"{self.compiled.name} has a parameter of unknown kind {what}")
