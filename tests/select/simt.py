"""Level ``ptx`` as NumPy: all threads of a CTA in step, registers as rows of one array.

Idea: what selection makes of a kernel with one role, run without a GPU.  Threads that a branch
leaves out keep what they had; nothing about time is modelled.

Invariants: an access outside every array, or outside shared memory, is an error; so is one that
its width does not divide.

Never: runs TMA, wgmma, or mbarriers between roles (``Unsupported``): they need time, which this
lacks. Copies by threads are over when they are issued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.select import arithmetic
from tests.select.arithmetic import Bits, blank, literal, width
from tilec.interp.numbers import decode, storage
from tilec.ir.core import Kernel, Region, Value
from tilec.ir.levels import ptx
from tilec.ir.types import DTYPES
from tilec.runtime.expressions import evaluate

ALIGNMENT = 256
_SHARED_START = 1024


class Unsupported(Exception):
    """An op that this machine does not run."""


@dataclass(frozen=True)
class Array:
    """Where an array lies: bytes of its storage, offset of its first element, shape, strides."""

    raw: Bits
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass
class Machine:
    """One launch."""

    kernel: Kernel
    arrays: Mapping[str, Array]
    memory: Bits = field(init=False)
    scalars: Mapping[str, int] = field(default_factory=dict)
    """Scalar arguments."""
    starts: dict[str, int] = field(default_factory=dict, init=False)

    def run(self) -> dict[str, Bits]:
        """All CTAs one after another; the storages afterwards."""
        end = ALIGNMENT
        for name, array in self.arrays.items():
            self.starts[name] = end
            end += -(-len(array.raw) // ALIGNMENT) * ALIGNMENT + ALIGNMENT
        self.memory = np.zeros(end, np.uint8)
        self.legal = np.zeros(end, bool)
        for name, array in self.arrays.items():
            span = slice(self.starts[name], self.starts[name] + len(array.raw))
            self.memory[span], self.legal[span] = array.raw, True
        shapes = {name: array.shape for name, array in self.arrays.items()}
        count = int(evaluate(self.kernel.attributes.get("grid", 1), shapes, {}))
        for number in range(count):
            Cta(self, number, count).run()
        return {
            name: self.memory[self.starts[name] : self.starts[name] + len(array.raw)]
            for name, array in self.arrays.items()
        }

    def update(self, start: int, operation: str, type: str, value: Any, compare: Any = None) -> Any:
        """One atomic update of memory, and the bits that were there."""
        span = slice(start, start + width(type) // 8)
        assert self.legal[span].all(), "an update outside every array"
        assert start % (width(type) // 8) == 0, "a misaligned update"
        raw = np.frombuffer(self.memory[span].tobytes(), f"u{width(type) // 8}")
        given = np.array([value]).astype(raw.dtype)
        if operation == "exch" or (operation == "cas" and raw[0] == np.array(compare, raw.dtype)):
            made = given
        elif operation == "cas":
            made = raw
        else:
            rounding = ".rn" if type[0] == "f" or type == "bf16" else ""
            made = arithmetic.run(f"{operation}{rounding}.{type}", [raw, given])
        self.memory[span] = made.astype(raw.dtype).view(np.uint8)
        return raw[0]

    def parameter(self, index: int) -> int:
        """The value of a launch parameter."""
        kind, name, *rest = self.kernel.attributes["parameters"][index]
        if kind == "scalar":
            return self.scalars[name]
        array: Array = self.arrays[name]
        if kind == "pointer":
            return self.starts[name] + array.first
        if kind == "extent":
            return array.shape[int(rest[0])]
        if kind == "stride":
            return array.strides[int(rest[0])]
        raise Unsupported(kind)


class Cta:
    """The threads of one CTA."""

    def __init__(self, machine: Machine, number: int, count: int) -> None:
        attributes = machine.kernel.attributes
        self.machine, self.threads = machine, int(attributes["threads"])
        self.values: dict[Value[Any], Bits] = {}
        self.shared = np.zeros(_SHARED_START + int(attributes["shared_bytes"]), np.uint8)
        lanes = np.arange(self.threads)
        self.special = {
            "tid.x": lanes,
            "ctaid.x": np.full(self.threads, number),
            "nctaid.x": np.full(self.threads, count),
        }
        self.lane = lanes % 32
        # Copies are done when they are issued, so one role that fills and empties never waits.
        self.copied = any(isinstance(op, ptx.AsyncCopy) for op in machine.kernel.body.walk())

    def run(self) -> None:
        """The whole kernel."""
        self.region(self.machine.kernel.body, np.ones(self.threads, bool))

    def region(self, region: Region, active: Bits) -> list[Bits]:
        """A region for the active threads; what it yields."""
        for op in region.ops:
            if op.is_terminator:
                return [self.values[v] for v in op.operands]
            results = self.meaning(op, active)
            for value, found in zip(op.results, results, strict=True):
                shape = (value.type.count, self.threads)
                self.values[value] = np.broadcast_to(found, shape)
        return []

    def meaning(self, op: Any, active: Bits) -> Sequence[Bits]:
        """Results of one op."""
        x = [self.values[v] for v in op.operands]
        match op:
            case ptx.Constant():
                return [literal(op.out.type.kind, op.value)]
            case ptx.Special():
                return [self.special[op.register].astype(np.uint32)]
            case ptx.Parameter():
                return [literal(op.out.type.kind, self.machine.parameter(op.index))]
            case ptx.SharedBase():
                return [literal("b32", _SHARED_START)]
            case ptx.Elect():
                return [self.lane == 0]
            case ptx.Pick():
                return [x[0][list(op.picks)]]
            case ptx.Join():
                return [np.concatenate(x)]
            case ptx.Copy():
                return x
            case ptx.Unpack():
                half = width(op.out.type.kind)
                parts = [x[0] & ((1 << half) - 1), x[0] >> half]
                both = np.stack(parts, 1).reshape(-1, self.threads)
                return [both.astype(blank(op.out.type.kind, ()).dtype)]
            case ptx.Combine():
                low, high = (v.astype(blank(op.out.type.kind, ()).dtype) for v in x)
                return [low | high << (width(op.out.type.kind) // 2)]
            case ptx.Alu():
                return [self.alu(op, x)]
            case ptx.Weave():
                return self.region(op.body, active)
            case ptx.If():
                return self.branch(op, x[0][0], active)
            case ptx.Loop():
                return self.loop(op, x, active)
            case ptx.Load():
                return [self.load(op, x, active)]
            case ptx.Store():
                self.store(op, x, active)
                return []
            case ptx.Red():
                self.red(op, x, active)
                return []
            case ptx.Atom():
                return [self.atom(op, x, active)]
            case ptx.LoadMatrix():
                return [self.load_matrix(op, x[0][0])]
            case ptx.StoreMatrix():
                self.store_matrix(op, x[0][0], x[1])
                return []
            case ptx.Mma():
                return [self.multiply(op, *x)]
            case ptx.AsyncCopy():
                self.copy(op, x, active)
                return []
            case ptx.MbarrierInit() | ptx.MbarrierWait() | ptx.MbarrierArrive() | ptx.AsyncArrive():
                if not self.copied:
                    raise Unsupported(op.name)
                return []
            case ptx.BarrierSync():
                return []
            case ptx.Fence() if op.kind in ("async_shared", "mbarrier_init", "copies_landed"):
                return []
        raise Unsupported(op.name)

    def alu(self, op: ptx.Alu, inputs: list[Bits]) -> Bits:
        """One instruction for each register."""
        kind, count = op.out.type.kind, op.out.type.count
        given: list[Bits] = []
        for value in inputs:
            if op.per > 1 and len(value) > 1:
                given += [value[n :: op.per] for n in reversed(range(op.per))]
            else:
                given.append(np.broadcast_to(value, (count, self.threads)))
        found = arithmetic.run(op.opcode, given)
        return found.astype(blank(kind, ()).dtype) if kind != "pred" else found

    def branch(self, op: ptx.If, condition: Bits, active: Bits) -> list[Bits]:
        """Both regions, each for its threads."""
        sides = []
        for body, taken in ((op.then, active & condition), (op.otherwise, active & ~condition)):
            sides.append(self.region(body, taken) if taken.any() else None)
        then, otherwise = sides
        if then is None or otherwise is None:
            whole = then if then is not None else otherwise
            return whole or [blank(v.type.kind, (v.type.count, 1)) for v in op.out]
        return [np.where(condition, a, b) for a, b in zip(then, otherwise, strict=True)]

    def loop(self, op: ptx.Loop, carried: list[Bits], active: Bits) -> list[Bits]:
        """Rounds until no thread goes on."""
        going = active
        while going.any():
            self.values.update(zip(op.body.args, carried, strict=True))
            again, *following = self.region(op.body, going)
            carried = [
                np.where(going, new, old) for new, old in zip(following, carried, strict=True)
            ]
            going = going & again[0]
        return carried

    # --- memory ---------------------------------------------------------------------------------

    def places(self, op: Any, address: Bits, active: Bits, size: int) -> tuple[Bits, Bits]:
        """The memory and the byte indices of each active thread."""
        start = address.astype(np.int64) + op.offset
        memory = self.machine.memory if op.space == "global" else self.shared
        index = start[active][:, None] + np.arange(size)
        assert np.all((index >= 0) & (index < len(memory))), f"{op.space} access out of range"
        if op.space == "global":
            assert np.all(self.machine.legal[index]), "an access outside every array"
        else:
            assert np.all(index >= _SHARED_START), "an access below shared memory"
        return memory, index

    @staticmethod
    def aligned(index: Bits, element: int, count: int) -> None:
        """Accesses are vectors of up to 16 bytes, each on a multiple of its size."""
        vector = next(v for v in (4, 2, 1) if v <= count and v * element <= 16)
        assert np.all(index[:, 0] % (vector * element) == 0), "a misaligned access"

    def load(self, op: ptx.Load, x: list[Bits], active: Bits) -> Bits:
        """``ld``, with its guard."""
        kind, count = op.out.type.kind, op.out.type.count
        element = width(op.width) // 8
        taken = active & x[1][0] if op.guard is not None else active
        memory, index = self.places(op, x[0][0], taken, element * count)
        self.aligned(index, element, count)
        out = np.broadcast_to(literal(kind, op.otherwise), (count, self.threads)).copy()
        raw = np.ascontiguousarray(memory[index]).view(f"u{element}")
        out[:, taken] = raw.T.astype(out.dtype)
        return out

    def store(self, op: ptx.Store, x: list[Bits], active: Bits) -> None:
        """``st``, with its guard."""
        count, element = len(x[1]), width(op.width) // 8
        taken = active & x[2][0] if op.guard is not None else active
        memory, index = self.places(op, x[0][0], taken, element * count)
        self.aligned(index, element, count)
        data = np.ascontiguousarray(x[1][:, taken].T.astype(f"u{element}")).view(np.uint8)
        memory[index] = data

    def red(self, op: ptx.Red, x: list[Bits], active: Bits) -> None:
        """``red``: one thread after the other, one element after the other."""
        taken = active & x[2][0] if op.guard is not None else active
        pairs = op.width.endswith("x2")
        type = op.width.removesuffix("x2")
        values = np.ascontiguousarray(x[1].T)
        values = values.view(np.uint16) if pairs else values
        size = width(type) // 8
        vector = size * values.shape[1]
        operation = op.operation.removesuffix(".noftz")
        for thread in np.flatnonzero(taken):
            start = int(x[0][0][thread]) + op.offset
            assert start % vector == 0, "a misaligned update"
            for number, value in enumerate(values[thread]):
                self.machine.update(start + number * size, operation, type, value)

    def atom(self, op: ptx.Atom, x: list[Bits], active: Bits) -> Bits:
        """``atom``, with its guard."""
        kind = op.out.type.kind
        out = np.broadcast_to(literal(kind, op.otherwise), (1, self.threads)).copy()
        operation = op.operation.removesuffix(".noftz")
        for thread in np.flatnonzero(active & x[2][0]):
            place, value = int(x[0][0][thread]), x[1][0][thread]
            compare = x[3][0][thread] if op.compare is not None else None
            out[0, thread] = self.machine.update(place, operation, op.width, value, compare)
        return out

    def copy(self, op: ptx.AsyncCopy, x: list[Bits], active: Bits) -> None:
        """``cp.async``: some bytes from global memory, zeros for the rest."""
        to, source = x[0][0].astype(np.int64) + op.offset, x[1][0].astype(np.int64)
        size = x[2][0] if op.size is not None else np.full(self.threads, op.bytes)
        for thread in np.flatnonzero(active):
            count, start = int(size[thread]), int(source[thread]) + op.source_offset
            place = int(to[thread])
            assert 0 <= count <= op.bytes, "a copy of too many bytes"
            assert place % op.bytes == 0, "a misaligned copy"
            assert _SHARED_START <= place <= len(self.shared) - op.bytes
            self.shared[place : place + op.bytes] = 0
            if count:
                assert start % op.bytes == 0, "a misaligned copy"
                assert self.machine.legal[start : start + count].all(), "a copy from outside"
                self.shared[place : place + count] = self.machine.memory[start : start + count]

    def rows(self, op: Any, address: Bits, matrices: int) -> Bits:
        """Byte indices [warp, matrix, row, 16]: lane 8 m + r gives row r of matrix m."""
        start = (address.astype(np.int64) + op.offset).reshape(-1, 32)[:, : 8 * matrices]
        assert np.all(start % 16 == 0), "a row of a matrix is misaligned"
        index: Bits = start.reshape(-1, matrices, 8)[..., None] + np.arange(16)
        assert np.all((index >= _SHARED_START) & (index < len(self.shared)))
        return index

    def load_matrix(self, op: ptx.LoadMatrix, address: Bits) -> Bits:
        """Lane 4 g + t gets bytes 4 t to 4 t + 3 of row g of each matrix."""
        count = op.out.type.count
        halves = self.shared[self.rows(op, address, count)].view(np.uint16)
        if op.transpose:
            halves = np.ascontiguousarray(halves.swapaxes(-1, -2))
        words = halves.view(np.uint32)
        return words.transpose(1, 0, 2, 3).reshape(count, self.threads)

    def store_matrix(self, op: ptx.StoreMatrix, address: Bits, value: Bits) -> None:
        """The other way."""
        count = len(value)
        words = value.reshape(count, -1, 8, 4).transpose(1, 0, 2, 3)
        halves = np.ascontiguousarray(words).view(np.uint16)
        if op.transpose:
            halves = np.ascontiguousarray(halves.swapaxes(-1, -2))
        self.shared[self.rows(op, address, count)] = halves.view(np.uint8)

    def multiply(self, op: ptx.Mma, a: Bits, b: Bits, acc: Bits) -> Bits:
        """``mma.sync.m16n8``: fragments by the figures of the PTX manual, sums in float64."""
        if op.accumulate == "f64":
            return self.multiply_wide(op, a, b, acc)
        left, right = elements(op.a_type, a), elements(op.b_type, b)
        each = len(left) // 4  # elements of a register
        blocks = len(b) // 2
        whole = op.accumulate == "s32"
        start = (
            np.broadcast_to(acc, (4 * blocks, self.threads))
            if len(acc) == 4 * blocks
            else (np.tile(acc, (blocks, 1)))
        )
        start = start.view(np.int32 if whole else np.float32).astype(np.float64)
        out = np.empty((4 * blocks, self.threads))
        for warp in range(self.threads // 32):
            lanes = slice(32 * warp, 32 * warp + 32)
            tile_a = np.empty((16, 8 * each))
            for lane, (group, t) in enumerate(divmod(n, 4) for n in range(32)):
                for i in range(4 * each):
                    row = group + 8 * (i // each % 2)
                    column = t * each + i % each + 4 * each * (i // each // 2)
                    tile_a[row, column] = left[i, 32 * warp + lane]
            for block in range(blocks):
                tile_b = np.empty((8 * each, 8))
                for lane, (group, t) in enumerate(divmod(n, 4) for n in range(32)):
                    for i in range(2 * each):
                        row = t * each + i % each + 4 * each * (i // each)
                        tile_b[row, group] = right[2 * each * block + i, 32 * warp + lane]
                total = tile_a @ tile_b
                for i in range(4):
                    rows = np.arange(32) // 4 + 8 * (i // 2)
                    columns = 2 * (np.arange(32) % 4) + i % 2
                    out[4 * block + i, lanes] = total[rows, columns]
        out += start
        return out.astype(np.int32 if whole else np.float32).view(np.uint32)

    def multiply_wide(self, op: ptx.Mma, a: Bits, b: Bits, acc: Bits) -> Bits:
        """The same of f64: element i of A is in column t + 4 (i // halves), of B in row t + 4 i."""
        halves, deep = op.rows // 8, op.k // 4
        blocks, each = len(b) // deep, 2 * halves
        left, right, start = (x.view(np.float64) for x in (a, b, acc))
        start = start if len(acc) == each * blocks else np.tile(start, (blocks, 1))
        out = np.empty((each * blocks, self.threads))
        group, t = np.divmod(np.arange(32), 4)
        for warp in range(self.threads // 32):
            lanes = slice(32 * warp, 32 * warp + 32)
            tile_a = np.empty((op.rows, op.k))
            for i in range(halves * deep):
                tile_a[group + 8 * (i % halves), t + 4 * (i // halves)] = left[i, lanes]
            for block in range(blocks):
                tile_b = np.empty((op.k, 8))
                for i in range(deep):
                    tile_b[t + 4 * i, group] = right[deep * block + i, lanes]
                total = tile_a @ tile_b
                for i in range(each):
                    found = total[group + 8 * (i // 2), 2 * t + i % 2]
                    out[each * block + i, lanes] = found + start[each * block + i, lanes]
        return out.view(np.uint64)


def elements(name: str, registers: Bits) -> Bits:
    """Packed registers as float64, the lowest element first."""
    dtype = DTYPES[name]
    raw = np.ascontiguousarray(registers.T).view(np.uint32)
    if name == "tf32":
        return (raw & np.uint32(0xFFFFE000)).view(np.float32).T.astype(np.float64)
    packed = raw.view(storage(dtype))
    return np.asarray(decode(dtype, packed)).T.astype(np.float64)
