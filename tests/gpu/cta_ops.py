"""Is every way to lower a ``cta`` op right?  A table of small kernels, each with its expectation.

Idea: the kernels start after the last decision (``place-shared``), so what runs is selection and
emission alone.  Children run them by families; a child that hangs or crashes costs one kernel: its
report names it, and a new child takes the rest.

    python -m tests.gpu.cta_ops --json out.json [--only WORDS] [--family NAME] [--jobs 4]
    python -m tests.gpu.cta_ops --assemble-only        needs no GPU, but ptxas

Invariants: every kernel ends up with exactly one record; the failures are printed last; arrays are
poisoned anew before each of two launches.

Never: runs a kernel in this process, or retries one.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.gpu import (
    cta_control,
    cta_elementwise,
    cta_memory,
    cta_mma,
    cta_pieces,
    cta_products,
    cta_registers,
    cta_shared,
)
from tests.gpu.cta_case import Case, Placed, fault
from tilec.compiler import Compiled, compile_module
from tilec.diagnostics import DiagnosticError
from tilec.ir.parser import parse_module
from tilec.layout.linear import LayoutRefusal
from tilec.runtime.supervise import SupervisedError, run_script
from tilec.targets import by_name

FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "elementwise": cta_elementwise.cases,
    "registers": cta_registers.cases,
    "pieces": cta_pieces.cases,
    "memory": cta_memory.cases,
    "shared": cta_shared.cases,
    "products": cta_products.cases,
    "mma": cta_mma.cases,
    "control": cta_control.cases,
}
LAST_PASS = "place-shared"
CHUNK = 100
CASE_LIMIT_S = 20.0
_START_S, _EACH_S = 90.0, 3.0
_MOST_CRASHES = 8  # of one chunk; more than that is one fault seen again and again
_REPORTED = (
    DiagnosticError,
    LayoutRefusal,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What a kernel may fail with and leave the child as it was; a CUDA error is not among them."""
_CHECKOUT = Path(__file__).resolve().parents[2]

Record = dict[str, Any]


def compiled(case: Case) -> Compiled:
    """The kernel's PTX."""
    module = parse_module(case.text)
    return compile_module(module, by_name(module.target), start_after=LAST_PASS)


def chosen(family: str, words: Sequence[str] = ()) -> list[Case]:
    """A family's kernels whose names hold all the words; names are unique."""
    cases = list(FAMILIES[family]())
    twice = [name for name, count in Counter(case.name for case in cases).items() if count > 1]
    if twice:
        raise ValueError(f"several kernels are called {twice[0]}")
    return [case for case in cases if all(word in case.name.split() for word in words)]


# --- without a GPU -------------------------------------------------------------------------------


def assembly_fault(case: Case) -> str:
    """What ptxas has against the kernel; empty if nothing."""
    from tilec.backend_ptx.assemble import AssemblyError, assemble

    try:
        made = assemble(compiled(case).ptx)
    except (AssemblyError, *_REPORTED) as error:
        return f"{type(error).__name__}: {error}"
    if made.spill_bytes or made.losses:
        return f"{made.spill_bytes} bytes spilled; {'; '.join(n.text for n in made.losses)}"
    return ""


# --- in the child --------------------------------------------------------------------------------


def run(case: Case) -> str:
    """Launch a kernel twice on fresh arrays; what is wrong, empty if nothing."""
    return launched_twice(
        compiled(case), case.inputs, case.outputs, partial(fault, error=case.error)
    )


def launched_twice(
    code: Compiled,
    inputs: Mapping[str, Placed],
    outputs: Mapping[str, Placed],
    judge: Callable[[Placed, Any], str],
) -> str:
    """What a judge of each output's storage has against two launches; empty if nothing."""
    from tilec.backend_ptx.module import DeviceBuffer, synchronize
    from tilec.runtime.arrays import ArrayView
    from tilec.runtime.launch import Loaded

    loaded = Loaded(code, 0)
    faults = []
    for _ in range(2):
        buffers, views = {}, {}
        for name, _ in code.arrays:
            array = inputs.get(name) or outputs[name]
            given = array.values if name in inputs else None
            buffers[name] = DeviceBuffer.of(array.stored(given))
            views[name] = ArrayView(
                buffers[name].address + array.first,
                array.values.shape,
                array.steps,
                array.dtype,
                ("cuda", 0),
                buffers[name],
            )
        loaded(views, {}, 0)
        synchronize()
        for name, want in outputs.items():
            raw = buffers[name].read((buffers[name].size_bytes,), "u1")
            wrong = judge(want, raw)
            if wrong:
                faults.append(f"{name}: {wrong}")
        for buffer in buffers.values():
            buffer.close()
        if faults:
            break
    return "; ".join(faults)


def child(family: str, request: Path, report: Path) -> int:
    """Run the named kernels of a family."""
    return run_named(chosen(family), run, request, report)


def run_named(cases: Iterable[Any], run: Callable[[Any], str], request: Path, report: Path) -> int:
    """Run those cases whose names are asked for, a line of JSON before and after each."""
    from tilec.backend_ptx.module import activate

    wanted = set(json.loads(request.read_text()))
    activate(0)
    with report.open("a") as lines:
        for case in cases:
            if case.name not in wanted:
                continue
            print(json.dumps({"case": case.name, "started": True}), file=lines, flush=True)
            faulthandler.dump_traceback_later(CASE_LIMIT_S, exit=True)
            try:
                wrong = run(case)
            except _REPORTED as error:
                wrong = f"{type(error).__name__}: {error}"
            faulthandler.cancel_dump_traceback_later()
            record = {"case": case.name} | ({"failure": wrong} if wrong else {})
            print(json.dumps(record), file=lines, flush=True)
    return 0


# --- in the parent -------------------------------------------------------------------------------


def run_chunk(family: str, names: Sequence[str], module: str = "tests.gpu.cta_ops") -> list[Record]:
    """Records of some kernels of a family, in as many children of a script as it takes."""
    records: list[Record] = []
    left, crashes = list(names), 0
    with tempfile.TemporaryDirectory(prefix="tilec-cta-") as folder:
        while left:
            request, report = Path(folder) / "names.json", Path(folder) / f"report{crashes}.jsonl"
            request.write_text(json.dumps(left))
            command = [sys.executable, "-m", module, "--child", family, str(request), str(report)]
            reason = _ended(command, _START_S + _EACH_S * len(left))
            done, running = _read(report)
            records += done
            seen = {record["case"] for record in done}
            left = [name for name in left if name not in seen]
            if not left:
                if reason and records:
                    records[-1].setdefault("failure", reason)
                break
            crashes += 1
            blamed = running or left[0]
            records.append({"case": blamed, "failure": reason or "the child left it out"})
            left = [name for name in left if name != blamed]
            if crashes == _MOST_CRASHES:
                why = f"not run: {crashes} children of this chunk crashed, the last: {reason}"
                records += [{"case": name, "failure": why} for name in left]
                break
    return records


def _ended(command: list[str], limit_s: float) -> str:
    """Run a child; empty when it ended well, else why not, with its last lines."""
    paths = [str(_CHECKOUT), os.environ.get("PYTHONPATH", "")]
    environment = {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    try:
        run_script(command, limit_s=limit_s, environment=environment)
    except SupervisedError as error:
        lines = [line.strip() for line in error.output.splitlines() if line.strip()]
        head = str(error).partition("\n")[0].rpartition(command[-1])[2].strip()
        return " | ".join([f"the child {head}", *lines[-3:]])
    return ""


def _read(report: Path) -> tuple[list[Record], str]:
    """The finished records of a report, and the kernel that was running at its end."""
    done: list[Record] = []
    running = ""
    for line in report.read_text().splitlines() if report.exists() else ():
        record = json.loads(line)
        running = record["case"] if record.get("started") else ""
        if not running:
            done.append(record)
    return done, running


def run_all(families: Sequence[str], words: Sequence[str], jobs: int) -> list[Record]:
    """Records of all kernels, ``jobs`` children at a time."""
    pieces = []
    for family in families:
        names = [case.name for case in chosen(family, words)]
        pieces += [(family, names[at : at + CHUNK]) for at in range(0, len(names), CHUNK)]
    records: list[Record] = []
    with ThreadPoolExecutor(jobs) as pool:
        for number, found in enumerate(pool.map(lambda piece: run_chunk(*piece), pieces), start=1):
            records += found
            bad = sum("failure" in record for record in found)
            print(
                f"chunk {number} of {len(pieces)}: {len(found)} kernels, {bad} failed", flush=True
            )
    return records


def assemble_all(families: Sequence[str], words: Sequence[str], jobs: int) -> list[Record]:
    """Records of what ptxas says."""
    records: list[Record] = []
    for family in families:
        cases = chosen(family, words)
        with ThreadPoolExecutor(jobs) as pool:
            for case, wrong in zip(cases, pool.map(assembly_fault, cases), strict=True):
                records.append({"case": case.name} | ({"failure": wrong} if wrong else {}))
        print(f"{family}: {len(cases)} kernels", flush=True)
    return records


def summary(records: Sequence[Record]) -> str:
    """Counts, then the failures, which come last."""
    bad = [record for record in records if "failure" in record]
    lines = [f"{len(records) - len(bad)} passed, {len(bad)} failed"]
    if bad:
        lines += ["", "| kernel | failure |", "| --- | --- |"]
        lines += [f"| {r['case']} | {' '.join(str(r['failure']).split())[:300]} |" for r in bad]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the table, or the part of it that is asked for."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", type=Path, help="write all records here")
    parser.add_argument("--only", default="", help="words that a kernel's name must hold")
    parser.add_argument("--family", choices=FAMILIES, action="append", help="default: all")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--assemble-only", action="store_true", help="needs no GPU")
    parser.add_argument("--text", action="store_true", help="print the kernels instead")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        family, request, report = options.child
        return child(family, Path(request), Path(report))
    families, words = options.family or list(FAMILIES), options.only.split()
    if options.text:
        for family in families:
            print("\n".join(f"// {case.name}\n{case.text}" for case in chosen(family, words)))
        return 0
    work = assemble_all if options.assemble_only else run_all
    records = work(families, words, options.jobs)
    if options.json:
        options.json.write_text(json.dumps({"records": records}, indent=1))
    print(summary(records))
    return int(any("failure" in record for record in records))


if __name__ == "__main__":
    sys.exit(main())
