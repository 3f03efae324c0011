"""Runs a list of example cases on the GPU, one line of JSON each, as a child of `test_examples`.

Idea: the inputs and the truth are those of ``tests/examples``; here they get strides, outputs get
guards and poison, and a case runs twice, which must give the same bits (but for sums by atomics,
which the example declares).

Invariants: a case's line is written before the kernel runs and again with its result; a hung case
ends this process after its own time limit.

Never: retries a case.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

import tilec
from tests.examples.spec import (
    Data,
    Example,
    Given,
    all_examples,
    decoded,
    fault,
    repeats,
    run_inputs,
    stored,
    truth_of,
)
from tests.gpu.example_cases import ExampleCase
from tests.gpu.program_child import _REPORTED
from tests.gpu.torch_kernels import KERNELS
from tilec.interp.numbers import storage
from tilec.ir.types import DTYPES

CASE_LIMIT_S = 60.0
TIMES_TORCH = 1.25
_GUARD = 64
_TORCH = {
    "bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "f64": torch.float64,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bool": torch.bool,
    "s8": torch.int8, "s16": torch.int16, "s32": torch.int32, "s64": torch.int64,
    "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64,
}  # fmt: skip
_POISON_BYTE = 0xFF  # NaN in every float type, -1 in every integer


@cache
def examples() -> dict[str, Example]:
    """All examples by kernel name."""
    return {e.kernel: e for e in all_examples()}


class Placed:
    """One array in memory of its own, laid out as a view says, between guards."""

    def __init__(self, dtype: str, shape: tuple[int, ...], view: str, repeated: bool) -> None:
        """Room for the array, all of it poison."""
        kind = _TORCH[dtype]
        self._repeated = repeated
        pitch = shape[-1] if shape else 1
        start = _GUARD
        if view == "padded":
            pitch += 16 // kind.itemsize
        elif view == "offset":
            pitch, start = pitch | 1, _GUARD + 1
        steps = [1]
        for extent in reversed(shape[1:]):
            steps.append(steps[-1] * max(pitch if len(steps) == 1 else extent, 1))
        strides = list(reversed(steps[: len(shape)]))
        if view == "turned" and len(shape) >= 2:
            strides[-1], strides[-2] = max(shape[-2], 1), 1
            for axis in range(len(shape) - 3, -1, -1):
                strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
                if axis == len(shape) - 3:
                    strides[axis] = max(shape[-1], 1) * max(shape[-2], 1)
        if repeated:
            strides[0] = 0
        last = (
            sum((e - 1) * s for e, s in zip(shape, strides, strict=True)) if 0 not in shape else 0
        )
        count = start + last + 1 + _GUARD
        self.bytes = torch.full((count * kind.itemsize,), _POISON_BYTE, dtype=torch.uint8).cuda()
        self.view = self.bytes.view(kind).as_strided(shape, strides, start)
        inside = torch.zeros(count, dtype=torch.bool, device="cuda")
        inside.as_strided(shape, strides, start).fill_(True)
        self._outside = ~inside.repeat_interleave(kind.itemsize)

    def poison(self) -> None:
        """As nobody wrote it."""
        self.bytes.fill_(_POISON_BYTE)

    def put(self, values: Data) -> None:
        """Fill the view with elements in their storage type."""
        source = torch.from_numpy(np.ascontiguousarray(values)).cuda()
        if values.size:
            into = self.view[:1] if self._repeated else self.view
            into.copy_(source.view(self.view.dtype))

    def bits(self, dtype: str) -> Data:
        """The view's elements in their storage type, on the host."""
        flat = self.view.contiguous().reshape(-1).view(torch.uint8).cpu().numpy()
        found: Data = flat.view(storage(DTYPES[dtype])).reshape(self.view.shape)
        return found

    def strays(self) -> int:
        """Bytes outside the view that changed."""
        return int((self._outside & (self.bytes != _POISON_BYTE)).sum())


@cache
def kernel(name: str, target: str, bindings: tuple[tuple[str, Any], ...]) -> Any:
    """The kernel of an example for a target, or for the GPU that is here."""
    example = examples()[name]
    found = getattr(tilec.load(str(example.path)), name)
    chosen = {"target": target} if target else {}
    return found.using(**chosen, **dict(bindings))


def run(case: ExampleCase) -> dict[str, Any]:
    """One case; the record has `failure` when something is wrong."""
    example = examples()[case.kernel]
    sizes = (*example.sizes, *example.larger)[case.number]
    given = run_inputs(example, sizes, case.view, case.seed)
    truth = truth_of(example, given, sizes)
    placed: dict[str, Placed] = {}
    for name, value in given.items():
        if isinstance(value, Given):
            repeated = case.view == "repeated" and repeats(example, name, value)
            placed[name] = Placed(value.dtype, value.values.shape, case.view, repeated)
            bits = stored(value.dtype, value.values)
            placed[name].put(bits[:1] if repeated else bits)
    for name, output in example.outputs.items():
        if name not in placed:
            placed[name] = Placed(output.dtype, output.extents(sizes), case.view, False)
    arguments = {k: placed[k].view if isinstance(v, Given) else v for k, v in given.items()}
    arguments |= {name: placed[name].view for name in example.outputs}
    run_it = kernel(case.kernel, case.target, tuple(example.bindings(sizes).items()))
    record: dict[str, Any] = {"case": case.name}
    failures: list[str] = []
    before: dict[str, Data] = {}
    for again in (False, True):
        for name in example.outputs:
            if name in given:
                placed[name].put(stored(given[name].dtype, given[name].values))
            else:
                placed[name].poison()
        run_it(**arguments)
        torch.cuda.synchronize()
        for name, output in example.outputs.items():
            found = placed[name].bits(output.dtype)
            if placed[name].strays():
                failures.append(f"{name}: {placed[name].strays()} bytes outside were written")
            if (
                again
                and not example.unordered
                and not np.array_equal(
                    before[name].view(np.uint8), np.ascontiguousarray(found).view(np.uint8)
                )
            ):
                failures.append(f"{name}: two runs differ")
            before[name] = found
    worst: dict[str, float] = {}
    for name, output in example.outputs.items():
        values = decoded(output.dtype, before[name])
        why = fault(output, values, truth[name])
        if why:
            failures.append(f"{name}: {why}")
        worst[name] = _distance(values, truth[name])
    record["error"] = worst
    failures += _beyond_torch(case, example, arguments, sizes, truth, worst, record)
    if failures:
        record["failure"] = "; ".join(failures)
    return record


def _distance(found: Data, truth: Data) -> float:
    """Root mean square of the differences of finite elements."""
    if found.shape != truth.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        difference = np.where(found == truth, 0.0, found - truth)
        difference = difference[np.isfinite(truth)]
    return float(np.sqrt(np.mean(np.square(difference)))) if difference.size else 0.0


def _beyond_torch(
    case: ExampleCase,
    example: Example,
    arguments: dict[str, Any],
    sizes: Any,
    truth: dict[str, Data],
    worst: dict[str, float],
    record: dict[str, Any],
) -> list[str]:
    """Outputs that are further from the truth than torch's own kernel."""
    if case.kernel not in KERNELS or 0 in {int(v) for v in sizes.values()}:
        return []
    ins = {k: v for k, v in arguments.items() if k not in example.outputs}
    failures = []
    record["torch"] = {}
    for name, result in KERNELS[case.kernel](ins, sizes).items():
        theirs = _distance(result.double().cpu().numpy(), truth[name])
        record["torch"][name] = theirs
        finite = np.abs(truth[name][np.isfinite(truth[name])])
        noise = 2.0**-21 * float(finite.max(initial=0.0))
        # Torch's own kernel may give NaN, as its attention does on unaligned tensors.
        if not np.isnan(theirs) and not worst[name] <= TIMES_TORCH * theirs + noise:
            failures.append(f"{name}: error {worst[name]:.3g}, torch's {theirs:.3g}")
    return failures


def run_all(cases: list[ExampleCase], report: TextIO, limit_s: float = CASE_LIMIT_S) -> None:
    """Run the cases in order; an exception ends a case, a CUDA error or a hang the process."""
    torch.backends.cuda.matmul.allow_tf32 = False
    for case in cases:
        print(json.dumps({"case": case.name, "started": True}), file=report, flush=True)
        faulthandler.dump_traceback_later(limit_s, exit=True)
        try:
            record = run(case)
        except torch.cuda.OutOfMemoryError:
            raise
        except _REPORTED as error:
            record = {"case": case.name, "failure": f"{type(error).__name__}: {error}"}
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(record), file=report, flush=True)
        if "failure" in record:
            torch.cuda.synchronize()  # raises when the context is lost: the parent starts afresh


def main(arguments: list[str]) -> int:
    """`example_child CASES.json REPORT.jsonl`."""
    cases = [ExampleCase(**record) for record in json.loads(Path(arguments[0]).read_text())]
    with Path(arguments[1]).open("a") as report:
        run_all(cases, report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
