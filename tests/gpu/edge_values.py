"""Does a GPU compute the edge values of every element type as the interpreter does, bit for bit?

Idea: the programs of ``tests/numbers`` have an array for each operation, so that one launch shows
all of a type. What is open in the last bits is held against float64 instead: the functions of the
language within the bounds that docs/language.md states, those of ``std.math`` within 4 units in
the last place, on dense samples. The functions of f64 have no open bits.

    python -m tests.gpu.edge_values --json out.json [--only WORDS] [--jobs 8]
    python -m tests.gpu.edge_values --assemble-only        needs no GPU, but ptxas

Invariants: every program ends up with exactly one record, the failures are printed last; a child
that hangs or crashes costs one program. Of 16-bit types every value is cast.

Never: runs a kernel in this process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.gpu.cta_case import Placed, fault
from tests.gpu.cta_ops import Record, launched_twice, run_chunk, run_named, summary
from tests.numbers import programs
from tests.numbers.functions import BUILTIN, SHIPPED, Function, functions
from tests.numbers.programs import Program
from tests.numbers.wide_functions import wide_functions, wide_rows
from tilec.backend_ptx.assemble import AssemblyError, assemble
from tilec.diagnostics import DiagnosticError

_MODULE = "tests.gpu.edge_values"
CHUNK = 12


def everything() -> list[Program]:
    """All programs, the exact ones first."""
    exact = [*programs.programs(whole=True), *wide_functions(), *wide_rows()]
    return [*exact, *functions(BUILTIN), *functions(SHIPPED)]


def run(program: Program) -> str:
    """Launch a program twice; what is wrong, empty if nothing."""
    outputs = program.outputs
    judge: Callable[[Placed, Any], str] = partial(fault, error=None)
    if isinstance(program, Function):
        judge = program.judge
    else:
        outputs = program.expected()
    return launched_twice(program.compiled(), program.inputs, outputs, judge)


def assembly_fault(program: Program) -> str:
    """What ptxas has against a program; empty if nothing."""
    try:
        made = assemble(program.compiled().ptx)
    except (AssemblyError, DiagnosticError) as error:
        return f"{type(error).__name__}: {error}"
    return "; ".join(note.text for note in made.losses)


def run_all(names: Sequence[str], jobs: int) -> list[Record]:
    """Records of the named programs, ``jobs`` children at a time."""
    pieces = [names[start : start + CHUNK] for start in range(0, len(names), CHUNK)]
    records: list[Record] = []
    with ThreadPoolExecutor(jobs) as pool:
        asked = pool.map(lambda piece: run_chunk("all", piece, _MODULE), pieces)
        for number, found in enumerate(asked, start=1):
            records += found
            print(f"chunk {number} of {len(pieces)}", flush=True)
    return records


def assemble_all(chosen: Sequence[Program], jobs: int) -> list[Record]:
    """Records of what ptxas says."""
    with ThreadPoolExecutor(jobs) as pool:
        wrong = list(pool.map(assembly_fault, chosen))
    return [
        {"case": program.name} | ({"failure": text} if text else {})
        for program, text in zip(chosen, wrong, strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the programs, or the part of them that is asked for."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", type=Path, help="write all records here")
    parser.add_argument("--only", default="", help="words that a program's name must hold")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--assemble-only", action="store_true", help="needs no GPU")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        _, request, report = options.child
        return run_named(everything(), run, Path(request), Path(report))
    words = set(options.only.split())
    chosen = [program for program in everything() if words <= set(program.name.split())]
    if options.assemble_only:
        records = assemble_all(chosen, options.jobs)
    else:
        records = run_all([program.name for program in chosen], options.jobs)
    if options.json:
        options.json.write_text(json.dumps({"records": records}, indent=1))
    print(summary(records))
    return int(any("failure" in record for record in records))


if __name__ == "__main__":
    sys.exit(main())
