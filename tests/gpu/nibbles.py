"""Elements of four bits on the GPU that is here, every program, target and alignment.

    python -m tests.gpu.nibbles [--json PATH] [--jobs N] [--only WORDS]

The programs and what they give are those of ``tests.numbers.nibbles``, at all its sizes. Outputs
that are given lie in rows longer than they need to be, at addresses of every alignment, between
bytes that must stay what they were. Each target runs in a child process with a time limit, ``N`` of
them at a time; a failure names its case.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import tilec
from tests.gpu.in_parts import Record, run_parts
from tests.numbers.nibbles import SIZES, SOURCE, Case, cases

TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90")
ALIGNMENTS = (0, 1, 2, 4, 8)
LIMIT_S = 900.0
PROGRAM = tilec.compile(SOURCE)
_AROUND = 0x5A


def _placed(data: Any, offset: int) -> Any:
    """Bytes on the GPU in rows that are a little longer, ``offset`` bytes from an aligned place."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    pitch = data.shape[-1] + (offset or 16 - data.shape[-1] % 16)
    rows = int(np.prod(data.shape[:-1]))
    block = torch.full((offset + rows * pitch,), _AROUND, dtype=torch.uint8, device="cuda")
    view = block[offset:].view(*data.shape[:-1], pitch)[..., : data.shape[-1]]
    view.copy_(torch.from_numpy(data.view(np.uint8)))
    return block, view


def differences(case: Case, target: str, offset: int) -> list[str]:
    """What is wrong with a call whose byte arrays lie ``offset`` bytes from an aligned place."""
    import torch

    kernel = getattr(PROGRAM, case.kernel).using(target=target, **case.bindings)
    outs = [p for p in kernel.parameters if p.mode != "in"]
    in_place = [p.name for p in outs if p.mode == "inout"]
    given, blocks = {}, []
    inputs = [p.name for p in kernel.parameters if p.mode != "out"]
    for name, data in zip(inputs, case.arguments, strict=True):
        if data.dtype.itemsize == 1 and data.dtype != np.bool_:
            block, given[name] = _placed(np.ascontiguousarray(data), offset)
            if name in in_place:
                blocks.append((block, given[name]))
        else:
            given[name] = torch.from_numpy(np.array(data)).cuda()
    for parameter, wanted in zip(outs, case.wanted, strict=True):
        if parameter.type_name in ("s4", "u4") and parameter.mode == "out":
            block, given[parameter.name] = _placed(np.zeros(wanted.shape, np.uint8), offset)
            blocks.append((block, given[parameter.name]))
    bytes_of = {p.name for p in kernel.parameters if p.type_name == "s8"}
    given = {n: v.view(torch.int8) if n in bytes_of else v for n, v in given.items()}
    found = kernel(**given)
    outputs = found if isinstance(found, tuple) else (found,)
    wrong = []
    for number, (got, wanted) in enumerate(zip(outputs, case.wanted, strict=True)):
        differing = int((got.cpu().numpy() != wanted).sum())
        if differing:
            wrong.append(f"output {number}: {differing} of {wanted.size} differ")
    for block, view in blocks:
        view.fill_(_AROUND)
        if not bool((block == _AROUND).all()):
            wrong.append("bytes around an output were written")
    return wrong


def child(target: str, only: str) -> list[Record]:
    """All cases of one target, in this process."""
    records: list[Record] = []
    for sizes in SIZES:
        for case in cases(*sizes):
            for offset in ALIGNMENTS:
                name = f"{target}.{case.kernel}.{'x'.join(map(str, sizes))}.{offset}"
                if only not in name:
                    continue
                try:
                    wrong = differences(case, target, offset)
                except (tilec.DiagnosticError, RuntimeError) as error:
                    wrong = [str(error)]
                records.append({"case": name, "ok": not wrong, "why": "; ".join(wrong)})
    return records


def main() -> int:
    """Run all; the exit code says whether any failed."""
    return run_parts("elements of four bits on a GPU", child, TARGETS, str, LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
