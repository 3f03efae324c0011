"""One launch of a PTX text on arrays of the host, as the emulator runs it.

A `Launch` names the kernel, the grid, and for each parameter what it holds: the address of a
buffer, a number, or a tensor map. ``emulate`` runs it and gives the findings; buffers are changed
in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilec.diagnostics import Diagnostic, DiagnosticError, did_you_mean
from tilec.emulator.findings import Findings
from tilec.emulator.machine import Machine
from tilec.emulator.memory import PARAMETERS
from tilec.emulator.parse import parse_ptx
from tilec.emulator.program import Program
from tilec.emulator.schedule import Choice
from tilec.emulator.tensors import TensorMap
from tilec.source import SourceFile


@dataclass(frozen=True)
class BufferPointer:
    """The address of an element of a buffer."""

    buffer: str
    offset_bytes: int = 0


@dataclass(frozen=True)
class Bits:
    """A number as the bytes of its parameter."""

    value: bytes


@dataclass(frozen=True)
class BufferMap:
    """A tensor map on a buffer; axes innermost first, strides in bytes."""

    buffer: str
    offset_bytes: int
    element_bytes: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    element: str = ""


Value = BufferPointer | Bits | BufferMap


@dataclass
class Launch:
    """What one launch is given."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int
    values: tuple[Value, ...]
    buffers: Mapping[str, npt.NDArray[np.uint8]]
    """The bytes of each buffer, changed in place."""
    written: Mapping[str, bool | npt.NDArray[np.bool_]] = field(default_factory=dict)
    """Whether a buffer, or which of its bytes, hold something at the start; by default all do."""
    misaligned: Mapping[str, int] = field(default_factory=dict)
    """By how many bytes a buffer misses a multiple of 512; by default it does not."""


def emulate(
    ptx: SourceFile, launch: Launch, *, kernel: str | None = None, choice: Choice | None = None
) -> tuple[Findings, Machine]:
    """Run one kernel of a PTX text; the findings, and the machine as it ended."""
    programs = parse_ptx(ptx)
    return start(chosen(programs, ptx, kernel), ptx, launch, choice)


def start(
    program: Program,
    ptx: SourceFile,
    launch: Launch,
    choice: Choice | None = None,
    *,
    limit: int | None = None,
    advise: bool = False,
    recorder: Any = None,
) -> tuple[Findings, Machine]:
    """Run a kernel that is parsed; the findings, and the machine as it ended."""
    machine = Machine(
        program, ptx, launch.grid, launch.block, launch.dynamic_shared,
        choice=choice or Choice(), recorder=recorder,
    )  # fmt: skip
    machine.advise = advise
    if limit is not None:
        machine.limit = limit
    for name, data in launch.buffers.items():
        written = launch.written.get(name, True)
        machine.memory.add(name, data, written=written, misalign=launch.misaligned.get(name, 0))
    _fill_parameters(machine, program, launch)
    return machine.run(), machine


def chosen(programs: Mapping[str, Program], ptx: SourceFile, kernel: str | None) -> Program:
    """The kernel of that name, or the only one of a text."""
    if kernel is None:
        return only(programs, ptx)
    if kernel not in programs:
        help = did_you_mean(kernel, programs) or f"there are {', '.join(programs)}"
        raise DiagnosticError(
            Diagnostic("which-kernel", f"{ptx.name} has no kernel {kernel}", help=help)
        )
    return programs[kernel]


def only(programs: Mapping[str, Program], ptx: SourceFile) -> Program:
    """The one kernel of a text."""
    if len(programs) != 1:
        names = ", ".join(programs)
        raise DiagnosticError(
            Diagnostic("which-kernel", f"{ptx.name} does not have just one kernel: {names}")
        )
    return next(iter(programs.values()))


def _fill_parameters(machine: Machine, program: Program, launch: Launch) -> None:
    places = {buffer.name: buffer.address for buffer in machine.memory.buffers}
    last = program.parameters[-1] if program.parameters else None
    found = bytearray(last.offset + last.bytes if last else 0)
    if len(launch.values) != len(program.parameters):
        raise ValueError(
            f"{program.name} has {len(program.parameters)} parameters, {len(launch.values)} given"
        )
    for parameter, value in zip(program.parameters, launch.values, strict=True):
        found[parameter.offset : parameter.offset + parameter.bytes] = _bytes_of(
            machine, places, parameter, value
        )
    machine.parameters = found


def _bytes_of(machine: Machine, places: Mapping[str, int], parameter: Any, value: Value) -> bytes:
    match value:
        case BufferPointer(buffer, offset):
            return (places[buffer] + offset).to_bytes(8, "little")
        case Bits(bits):
            return bits[: parameter.bytes].ljust(parameter.bytes, b"\0")
        case BufferMap():
            made = TensorMap(
                places[value.buffer] + value.offset_bytes,
                value.element_bytes,
                value.extents,
                value.strides,
                value.box,
                value.swizzle,
                value.element,
            )
            machine.maps[PARAMETERS + parameter.offset] = made
            return bytes(parameter.bytes)
