"""Mutation testing of the emulator: does it notice each planted fault, in some order of events?

``python -m tests.emulator.mutation --json FILE [--reference FOLDER]`` runs all mutants of the
subjects and writes the records; with ``--docs`` the table in docs/emulator.md is made anew from
records. A mutant is killed by a finding, a deadlock, a wrong result, or a run without end; it is
equivalent when a rule of ``equivalence`` says why it is no fault; or it survived.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.emulator.equivalence import Probe, probe, reason
from tests.emulator.operators import Mutant, mutants
from tests.emulator.subjects import EXAMPLES, REFERENCES, Subject
from tilec.diagnostics import DiagnosticError
from tilec.emulator.findings import classes_table
from tilec.emulator.launch import start
from tilec.emulator.machine import StepLimit
from tilec.emulator.schedule import Choice

TRIALS = (("random", 0), ("late", 0), ("early", 0), ("in order", 0), ("random", 1), ("random", 2))
RECORDS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "mutation.json"
MANUAL = Path(__file__).resolve().parents[2] / "docs" / "emulator.md"
CLASSES_BEGIN, CLASSES_END = "<!-- classes: begin -->", "<!-- classes: end -->"
BEGIN, END = "<!-- mutation: begin -->", "<!-- mutation: end -->"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    subject: str
    operator: str
    detail: str
    outcome: str
    """killed, equivalent, survived."""
    by: str
    """The class of the first finding, ``wrong result``, ``no end``, or the reason."""
    order: str = ""


@dataclass
class Case:
    """A subject with the mutants of what it reaches, and what it does unchanged."""

    subject: Subject
    mutants: list[Mutant]
    right: dict[str, Any]
    steps: int
    probe: Probe


@cache
def case(name: str, folder: str) -> Case:
    """A subject by name, made once in each process."""
    made = EXAMPLES[name]() if name in EXAMPLES else REFERENCES[name](Path(folder))
    launch, arrays = made.fresh()
    findings, machine = start(made.program, made.text, launch)
    if len(findings):
        raise ValueError(f"{name} has findings unchanged: {[f.message for f in findings]}")
    right = {n: a.tobytes() for n, a in arrays.items()}
    reached = [m for m in mutants(made.program) if any(machine.executed[n] for n in m.sites)]
    return Case(made, reached, right, machine.steps_taken, probe(made))


def judge(name: str, folder: str, number: int) -> Verdict:
    """Run one mutant until something notices it."""
    known = case(name, folder)
    mutant = known.mutants[number]
    head = (name, mutant.operator, mutant.detail)
    why = reason(known.subject, mutant, known.probe)
    for order, seed in TRIALS[:2] if why else TRIALS:
        by = _fate(known, mutant, Choice(order, seed))
        if by:
            return Verdict(*head, "killed", by, f"{order} {seed}" if order == "random" else order)
    return Verdict(*head, "equivalent" if why else "survived", why)


def _fate(known: Case, mutant: Mutant, choice: Choice) -> str:
    launch, arrays = known.subject.fresh()
    try:
        findings, _ = start(
            mutant.program, known.subject.text, launch, choice, limit=5 * known.steps + 2000
        )
    except StepLimit:
        return "no end"
    except DiagnosticError as refused:
        return f"refused: {refused.diagnostics[0].message}"
    for finding in findings:
        return str(finding.kind)
    same = all(a.tobytes() == known.right[n] for n, a in arrays.items())
    return "" if same else "wrong result"


def judge_all(names: Iterable[str], folder: str, *, workers: int, every: int = 1) -> list[Verdict]:
    """All mutants of the subjects, or each ``every``-th one."""
    jobs = [
        (name, folder, n)
        for name in names
        for n in range(0, len(case(name, folder).mutants), every)
    ]
    if workers == 1:
        return [judge(*job) for job in jobs]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(judge, *zip(*jobs, strict=True), chunksize=4))


def table(records: list[dict[str, str]]) -> str:
    """The records as tables of Markdown."""
    lines = []
    subjects = list(dict.fromkeys(r["subject"] for r in records))
    lines.append("| operator | mutants | killed | equivalent | survived | killed by |")
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for operator in [*dict.fromkeys(r["operator"] for r in records), None]:
        rows = [r for r in records if operator in (r["operator"], None)]
        count = Counter(r["outcome"] for r in rows)
        by = Counter(r["by"].partition(":")[0] for r in rows if r["outcome"] == "killed")
        said = ", ".join(f"{kind} {n}" for kind, n in by.most_common())
        counts = " | ".join(str(count[k]) for k in ("killed", "equivalent", "survived"))
        lines.append(f"| {operator or '**all**'} | {len(rows)} | {counts} | {said} |")
    lines += [
        "",
        "| subject | mutants | killed | equivalent | survived |",
        "| --- | --- | --- | --- | --- |",
    ]
    for subject in subjects:
        rows = [r for r in records if r["subject"] == subject]
        count = Counter(r["outcome"] for r in rows)
        counts = " | ".join(str(count[k]) for k in ("killed", "equivalent", "survived"))
        lines.append(f"| {subject} | {len(rows)} | {counts} |")
    why = Counter(r["by"] for r in records if r["outcome"] == "equivalent")
    lines += ["", "Why a mutant is no fault, and how often:", ""]
    lines += [f"- {said} ({count})" for said, count in why.most_common()]
    left = [r for r in records if r["outcome"] == "survived"]
    if left:
        lines += ["", "Survivors:", ""]
        lines += [f"- {r['subject']}, {r['operator']}: {r['detail']}" for r in left]
    return "\n".join(lines)


def write_manual(records: list[dict[str, str]]) -> None:
    """Put the tables into the manual, between their marks."""
    text = _between(MANUAL.read_text(), BEGIN, END, table(records))
    MANUAL.write_text(_between(text, CLASSES_BEGIN, CLASSES_END, classes_table()))


def _between(text: str, begin: str, end: str, made: str) -> str:
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{made}\n{end}{rest.partition(end)[2]}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the records here")
    parser.add_argument("--reference", default="", help="folder of the reference texts")
    parser.add_argument("--only", help="one subject")
    parser.add_argument("--operator", help="only one operator")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--docs", action="store_true", help="make the table of the manual anew")
    given = parser.parse_args()
    if given.docs:
        write_manual(json.loads(RECORDS.read_text()))
        return
    names = [given.only] if given.only else [*EXAMPLES, *(REFERENCES if given.reference else ())]
    begun = time.time()
    verdicts = judge_all(names, given.reference, workers=given.workers, every=given.every)
    records = [asdict(v) for v in verdicts]
    if given.json:
        given.json.write_text(json.dumps(records, indent=0) + "\n")
    print(table(records))
    print(f"{time.time() - begun:.0f} s")


if __name__ == "__main__":
    main()
