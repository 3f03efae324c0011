"""Calls on the PTX emulator: the text that is emitted, run on arrays in host memory.

A call is compiled as for a GPU, its launches get the parameters that a GPU would get, and run in
their order on the emulator, with workspace of their own. Arrays keep their strides and their
misalignment up to 16 bytes; an element of an `out` parameter, or of workspace, holds nothing before
somebody writes it, and bytes between the elements of an array never do.

What is found wrong leaves as diagnostics on the lines of the program, or as ``EmulationError``.

Never: needs CUDA, or knows what a kernel computes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilec.compiler import Compiled, Entry, line_span
from tilec.diagnostics import Diagnostic, DiagnosticError
from tilec.emulator import launch as emulator
from tilec.emulator.findings import Finding, Findings
from tilec.emulator.machine import DEFAULT_LIMIT, Machine
from tilec.emulator.messages import diagnostic_of
from tilec.emulator.parse import parse_ptx
from tilec.emulator.schedule import Choice
from tilec.ir.checks import BLOCKS, WORDS
from tilec.runtime.arrays import ArrayView
from tilec.runtime.call import Call
from tilec.runtime.checks import Said, read_checks, tell
from tilec.runtime.parameters import MapOf, Number, Pointer, launches, value_of
from tilec.runtime.workspace import block_for
from tilec.source import SourceFile, Span

if TYPE_CHECKING:
    from tilec.emulator.program import Program
    from tilec.emulator.report.report import Report

Bytes = npt.NDArray[np.uint8]
Written = dict[str, bool | npt.NDArray[np.bool_]]
_ALIGNMENT = 16
"""Bytes: what code may be compiled to rely on (``specialise.WIDEST_ALIGNMENT``)."""


@dataclass(frozen=True)
class Emulator:
    """One way to emulate: the order in which things happen (``emulator.schedule``), and limits."""

    order: str = "in order"
    seed: int = 0
    limit: int = DEFAULT_LIMIT
    advise: bool = False
    """Whether to tell of slow accesses as well."""
    told: Callable[[Report], None] | None = None
    """Who gets the report of each launch (``emulator.report``), if there is to be one."""


class EmulationError(DiagnosticError):
    """The emulator found faults; the outputs hold what the run computed all the same."""


@dataclass
class Emulated:
    """What came of a call."""

    findings: list[Finding]
    advice: list[Finding]
    ptx: SourceFile
    instructions: int
    """Of gangs of warps, all launches together."""
    said: Said
    """What assertions and prints said."""

    def diagnostics(self, source: SourceFile) -> list[Diagnostic]:
        """The findings on the lines of the program and of its PTX."""

        def at_source(place: tuple[str, int]) -> Span | None:
            name, line = place
            known = name == source.name.rpartition("/")[2] and line <= len(source.line_starts)
            return line_span(source, line) if known else None

        return [diagnostic_of(f, self.ptx, at_source) for f in (*self.findings, *self.advice)]


def emulate_call(call: Call, compiled: Compiled, how: Emulator) -> Emulated:
    """Run a call on arrays in host memory, which get the outputs."""
    ptx = SourceFile(f"{compiled.name}.ptx", compiled.ptx)
    programs = parse_ptx(ptx)
    shapes = {name: view.shape for name, view in call.views.items()}
    block = block_for(compiled.workspace, shapes, call.scalars, 0)
    views = {**call.views, **block.views}
    buffers = {name: _host_bytes(view) for name, view in call.views.items()}
    buffers |= {name: _workspace_bytes(view) for name, view in block.views.items()}
    written: Written = {name: _holds(view) for name, view in call.views.items()}
    written |= {name: False for name, t in call.types.items() if t.mode == "out"}
    # The launcher fills a block with zeros if it has an empty array, or one for checks.
    written |= dict.fromkeys(block.views, block.has_empty or WORDS in block.views)
    misaligned = {name: view.bounds()[0] % _ALIGNMENT for name, view in call.views.items()}
    for name, type in call.types.items():
        if type.mode == "in":  # a kernel that writes there must not change what the caller has
            buffers[name] = _aligned_copy(buffers[name], misaligned[name])
    found, advice, steps = [], [], 0
    for entry, count in launches(compiled, views, call.scalars):
        values = tuple(
            buffer_value(compiled, parameter, views, call.scalars) for parameter in entry.parameters
        )
        launch = _launch(entry, count, values, buffers, written, misaligned)
        findings, machine = _start(programs[entry.name], ptx, launch, how)
        found += list(findings)
        advice += list(findings.advice.values())
        steps += machine.steps_taken
        written = {buffer.name: buffer.written for buffer in machine.memory.buffers}
        if any(f.kind == "deadlock" for f in findings):
            break
    told = {
        name: buffers[name].view(np.int64 if name == WORDS else np.float64)
        for name in BLOCKS.keys() & buffers.keys()
    }
    return Emulated(found, advice, ptx, steps, read_checks(compiled.module.kernels, told))


def _start(
    program: Program, ptx: SourceFile, launch: emulator.Launch, how: Emulator
) -> tuple[Findings, Machine]:
    """One launch, and its report if somebody wants it."""
    recorder = None
    if how.told is not None:
        from tilec.emulator.report.record import Recorder
        from tilec.emulator.report.report import report_of

        recorder = Recorder(program)
    done = emulator.start(
        program, ptx, launch, Choice(how.order, how.seed),
        advise=how.advise, limit=how.limit, recorder=recorder,
    )  # fmt: skip
    if recorder is not None and how.told is not None:
        how.told(report_of(program, ptx, recorder))
    return done


def run_or_raise(call: Call, compiled: Compiled, how: Emulator, source: SourceFile) -> None:
    """Run a call; faults are an ``EmulationError``."""
    done = emulate_call(call, compiled, how)
    if done.findings:
        raise EmulationError(done.diagnostics(source))
    tell(done.said, call.module)


def _launch(
    entry: Entry,
    count: int,
    values: tuple[emulator.Value, ...],
    buffers: Mapping[str, Bytes],
    written: Written,
    misaligned: Mapping[str, int],
) -> emulator.Launch:
    block = (entry.threads, 1, 1)
    shared = entry.shared_bytes
    return emulator.Launch((count, 1, 1), block, shared, values, buffers, written, misaligned)


def buffer_value(
    compiled: Compiled,
    parameter: Sequence[Any],
    views: Mapping[str, ArrayView],
    scalars: Mapping[str, Any],
) -> emulator.Value:
    """A parameter's value as the emulator takes it: arrays are buffers."""
    match value_of(compiled, tuple(parameter), views, scalars):
        case Pointer(array):
            return emulator.BufferPointer(array, _first(views[array]))
        case Number(bits):
            return emulator.Bits(bits)
        case MapOf(array, extents, strides, box, swizzle):
            view = views[array]
            size = view.element_bytes
            first = _first(view)
            element = str(view.dtype)
            return emulator.BufferMap(array, first, size, extents, strides, box, swizzle, element)


def _first(view: ArrayView) -> int:
    """Where in its buffer the first element lies."""
    return view.address - view.bounds()[0]


def _host_bytes(view: ArrayView) -> Bytes:
    """The memory of a view, not copied."""
    low, high = view.bounds()
    if low == high:
        return np.zeros(0, np.uint8)
    block: Any = (ctypes.c_char * (high - low)).from_address(low)
    return np.ndarray((high - low,), np.uint8, block)


def _aligned_copy(data: Bytes, misaligned: int) -> Bytes:
    """A copy whose address misses a multiple of the alignment by as much."""
    block = np.empty(len(data) + 2 * _ALIGNMENT, np.uint8)
    start = (misaligned - block.ctypes.data) % _ALIGNMENT
    copy = block[start : start + len(data)]
    copy[...] = data
    return copy


def _workspace_bytes(view: ArrayView) -> Bytes:
    """Fresh memory for a workspace array; whole rows, and one element at least."""
    steps = zip(view.shape, view.strides_bytes, strict=True)
    last = sum((max(extent, 1) - 1) * step for extent, step in steps)
    return np.zeros(-(-(last + view.element_bytes) // _ALIGNMENT) * _ALIGNMENT, np.uint8)


def _holds(view: ArrayView) -> npt.NDArray[np.bool_]:
    """Which bytes of a view's memory belong to elements."""
    view = view.in_bytes
    low, high = view.bounds()
    mask = np.zeros(high - low, np.bool_)
    if view.size:
        shape = (*view.shape, view.element_bytes)
        steps = (*view.strides_bytes, 1)
        np.ndarray(shape, np.bool_, mask.data, view.address - low, steps)[...] = True
    return mask
