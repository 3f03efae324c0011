"""Runs the emulator's vectors on this GPU and records what came out.

    python -m tests.gpu.record_vectors --out recorded.json [--compare]

The file goes to ``tests/emulator/recorded.json``; with ``--compare`` what differs from the emulator
is printed as well. Each part of the list runs in a supervised child, which a hang would end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulator.vectors import Vector, all_vectors, differs, keep
from tilec.emulator.launch import BufferMap, BufferPointer, emulate
from tilec.runtime.supervise import SupervisedError, run_script
from tilec.source import SourceFile

_CHUNK, _LIMIT_S = 60, 60.0
_CHECKOUT = Path(__file__).resolve().parents[2]
_TYPES = {1: "u8", 2: "u16", 4: "u32"}


def on_device(vector: Vector) -> np.ndarray:
    """The bytes that the GPU writes."""
    from tilec.backend_ptx import module
    from tilec.backend_ptx.arguments import pack as arguments
    from tilec.backend_ptx.tensormap import encode

    module.activate()
    launch, out = vector.launch()
    buffers = {name: module.DeviceBuffer.of(data) for name, data in launch.buffers.items()}
    values: list[tuple[str, Any]] = []
    for value in launch.values:
        match value:
            case BufferPointer(buffer, offset):
                values.append(("ptr", buffers[buffer].address + offset))
            case BufferMap():
                made = encode(
                    buffers[value.buffer].address, _TYPES[value.element_bytes], value.extents,
                    value.strides, value.box, value.swizzle,
                )  # fmt: skip
                values.append(("map", made))
    loaded = module.Module.load(vector.text(), log=False)
    module.Launch(
        loaded.function("k"), launch.grid, launch.block, launch.dynamic_shared, arguments(values)
    )(0)
    module.synchronize()
    name = next(n for n, data in launch.buffers.items() if data is out)
    found = buffers[name].read(out.shape, np.uint8)
    for buffer in buffers.values():
        buffer.close()
    return np.asarray(found)


def child(first: int, report: Path) -> None:
    """Run one part of the list; a line a vector."""
    with report.open("a") as lines:
        for vector in list(all_vectors())[first : first + _CHUNK]:
            kept = keep(vector, on_device(vector))
            print(json.dumps({"name": vector.name, "kept": kept}), file=lines)


def compare(vector: Vector, kept: dict[str, str]) -> str:
    """What the emulator makes otherwise."""
    launch, out = vector.launch()
    findings, _ = emulate(SourceFile(vector.name, vector.text()), launch)
    wrong = [f.message for f in findings]
    return "; ".join([*wrong, *filter(None, [differs(vector, out, kept)])])


def main() -> int:
    """Record everything."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--child", type=int)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child, options.out)
        return 0
    report = options.out.with_suffix(".lines")
    report.write_text("")
    vectors = list(all_vectors())
    for first in range(0, len(vectors), _CHUNK):
        command = [sys.executable, "-m", "tests.gpu.record_vectors", "--out", str(report),
                   "--child", str(first)]  # fmt: skip
        paths = [str(_CHECKOUT), os.environ.get("PYTHONPATH", "")]
        try:
            run_script(
                command, limit_s=_LIMIT_S,
                environment={"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )  # fmt: skip
        except SupervisedError as error:
            print(f"from {first}: {error} {error.output[-300:]}")
    found = {r["name"]: r["kept"] for r in map(json.loads, report.read_text().splitlines())}
    report.unlink()
    options.out.write_text(json.dumps(found, indent=0) + "\n")
    print(f"{len(found)} of {len(vectors)} recorded")
    if options.compare:
        for vector in vectors:
            if vector.name in found:
                why = compare(vector, found[vector.name])
                if why:
                    print(f"{vector.name}: {why}"[:200])
    return 0


if __name__ == "__main__":
    sys.exit(main())
