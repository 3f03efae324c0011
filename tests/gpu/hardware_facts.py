"""The hardware facts that the compiler relies on, measured.

    python -m tests.gpu.hardware_facts --json facts.json             measure (needs a GPU)
    python -m tests.gpu.hardware_facts --assemble-only               only assemble every kernel
    python -m tests.gpu.hardware_facts --batch edges --json edges.json     measure a part
    python -m tests.gpu.hardware_facts --render facts.json edges.json      print docs/hardware.md

Idea: what a manual leaves open (which bytes a descriptor reads, what a clipped store touches, what
a fence costs) is settled by small kernels whose answer is compared byte for byte with numpy.

Invariants: each experiment runs in a supervised child, so that a fault or a hang spoils that one
only and is reported; the JSON holds every reading; `fact_page` makes the page from the JSON alone.

Never: uses the compiler, or writes a fact by hand.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.gpu.fact_kernels import module_text
from tests.gpu.fact_page import render
from tilec.backend_ptx.assemble import assemble, find_tool, version
from tilec.backend_ptx.module import device_facts, driver
from tilec.runtime.supervise import SupervisedError, run

#: Batches by name; each is a module `fact_NAME` with `kernels()` and `EXPERIMENTS`.
BATCHES = ("tma", "edges", "wgmma", "costs", "latencies", "assembler")
LIMIT_S = 120.0


def _module(batch: str) -> Any:
    return importlib.import_module(f"tests.gpu.fact_{batch}")


def measure_batch(batch: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """The facts of one batch as plain data, and by experiment what kept others from being found."""
    facts: list[dict[str, Any]] = []
    failures: dict[str, str] = {}
    for experiment in _module(batch).EXPERIMENTS:
        try:
            facts += [fact.record() for fact in experiment.facts(limit_s)]
        except SupervisedError as error:
            failures[experiment.name] = str(error)
    return {"facts": facts, "failures": failures}


def describe_device() -> dict[str, Any]:
    """Device and driver; runs inside the child."""
    facts = device_facts()
    _, release = driver().cuDriverGetVersion()
    return {
        "name": facts.name,
        "compute_capability": list(facts.compute_capability),
        "sm_count": facts.sm_count,
        "l2_bytes": facts.l2_bytes,
        "shared_bytes_per_cta": facts.shared_bytes_per_cta,
        "cuda": f"{release // 1000}.{release % 1000 // 10}",
    }


def measure(batches: Sequence[str], limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Run the batches, each experiment in its own child, and collect what they found."""
    page: dict[str, Any] = {
        "taken": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": run(describe_device, limit_s=limit_s),
        "ptxas": version() if find_tool("ptxas") else None,
        "batches": {},
    }
    for batch in batches:
        page["batches"][batch] = measure_batch(batch, limit_s)
        print(f"{batch}: {_summary(page['batches'][batch])}", file=sys.stderr, flush=True)
    return page


def _summary(batch: dict[str, Any]) -> str:
    against = [fact["name"] for fact in batch["facts"] if fact["holds"] is False]
    lines = [f"{len(batch['facts'])} facts"]
    lines += [f"does not hold: {name}" for name in against]
    lines += [f"failed: {name}: {why}" for name, why in batch["failures"].items()]
    return "\n  ".join(lines)


def assemble_all(batches: Sequence[str]) -> int:
    """Assemble every kernel; prints what ptxas says and returns the number of complaints."""
    complaints = 0
    for batch in batches:
        kernels = _module(batch).kernels()
        done = assemble(module_text(kernels))
        bad = [note for note in done.notes if note.kind != "registers" and _is_bad(note)]
        complaints += len(bad)
        print(f"{batch}: {len(kernels)} kernels, up to {done.registers} registers")
        for note in bad:
            print(f"  {note.kernel or ''} line {note.line}: {note.text}")
    return complaints


def _is_bad(note: Any) -> bool:
    return note.kind in ("warning", "error", "advisory") or note.value > 0


def main() -> int:
    """Measure, render or assemble, by option."""
    parser = argparse.ArgumentParser(description="measure the facts in docs/hardware.md")
    parser.add_argument("--json", type=Path, help="where to write the readings")
    parser.add_argument(
        "--render",
        type=Path,
        nargs="+",
        metavar="JSON",
        help="print the page made from these readings; a later file's facts replace an earlier's",
    )
    parser.add_argument("--assemble-only", action="store_true", help="assemble, run nothing")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds a child may take")
    parser.add_argument("--batch", action="append", choices=BATCHES, help="only these")
    options = parser.parse_args()
    batches = options.batch or BATCHES
    if options.render:
        print(render(*(json.loads(path.read_text()) for path in options.render)), end="")
        return 0
    if options.assemble_only:
        return int(assemble_all(batches) > 0)
    page = measure(batches, options.limit)
    if options.json:
        options.json.write_text(json.dumps(page, indent=1) + "\n")
    else:
        print(render(page), end="")
    return int(any(found["failures"] for found in page["batches"].values()))


if __name__ == "__main__":
    sys.exit(main())
