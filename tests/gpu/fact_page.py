"""The page of hardware facts: from the readings of one or more runs to Markdown.

Idea: a run leaves facts as data; this file sets them in the places of `fact_places`, behind a table
that answers the questions that were open before anything was measured.

Invariants: every answer and every verdict is computed from readings, so that the page of an old run
says what that run can say; a fact that no run has is left out, one without a place is still shown;
where several runs have a fact, the last one counts and its device and date are named.

Never: measures, or says what a run could not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.gpu import fact_images as images
from tests.gpu.fact_costs import instruction_rates, ordering_cost, wgmma_rate
from tests.gpu.fact_edges import load_fill, store_clipping
from tests.gpu.fact_places import DESCRIPTORS, OPEN, SECTIONS, Place
from tests.gpu.fact_record import Fact
from tests.gpu.fact_tma import inner_coordinate

COMMAND = "python -m tests.gpu.hardware_facts"

#: Facts whose sentences are made from the readings again, whatever the run wrote.
_RESTATED: dict[str, Callable[[Mapping[str, Any]], Fact]] = {
    "TMA store clipping": store_clipping,
    "TMA load fill": load_fill,
    "TMA load inner coordinate": partial(inner_coordinate, "load"),
    "TMA store inner coordinate": partial(inner_coordinate, "store"),
    "wgmma rate": wgmma_rate,
    "instruction rates": instruction_rates,
    "cost of ordering": ordering_cost,
}


@dataclass(frozen=True)
class Found:
    """A fact with its run and the batch that measures it again."""

    fact: Fact
    batch: str
    run: Mapping[str, Any]

    @property
    def source(self) -> str:
        """How, on what and when it was measured."""
        device = self.run["device"]["name"]
        return f"`{COMMAND} --batch {self.batch}`, {device}, {self.run['taken']}"


def render(*runs: Mapping[str, Any]) -> str:
    """The Markdown page of the facts of these runs, the later ones over the earlier."""
    facts = _found(runs)
    lines = [
        "# Hardware facts, measured",
        "",
        "What tilec believes of the hardware, each belief a question that small kernels answered. "
        "A claim that the compiler relies on is marked **holds** or **does not hold**; the others "
        "are readings.",
        "",
        *dict.fromkeys(f"- {_run_line(run)}" for run in runs),
        "",
        f"Made from the readings of these runs by `{COMMAND} --render READINGS... > "
        f"docs/hardware.md`; `{COMMAND} --json READINGS` measures again, with `--batch NAME` a "
        "part.",
        "",
        "## What was open",
        "",
        "| | question | answer |",
        "| --- | --- | --- |",
    ]
    for number, (question, name, sentence) in enumerate(OPEN, start=1):
        answer = sentence or _summary(_section_of(name), _matching(facts, name))
        lines.append(f"| {number} | {_cell(question)} | {_cell(answer)} |")
    placed: set[str] = set()
    for section in SECTIONS:
        part = [(place, _matching(facts, place.name)) for place in section.places]
        if not any(found for _, found in part):
            continue
        lines += ["", f"## {section.title}"]
        for place, found in part:
            placed.update(one.fact.name for one in found)
            lines += _entries(place, found)
    rest = [one for name, one in facts.items() if name not in placed]
    if rest:
        lines += ["", "## Other readings", "", *_rows(rest)]
    lines += _failures(runs)
    return "\n".join([*lines, ""])


def _found(runs: Sequence[Mapping[str, Any]]) -> dict[str, Found]:
    facts: dict[str, Found] = {}
    for run in runs:
        for batch, content in run["batches"].items():
            for record in content["facts"]:
                fact = Fact(**record)
                if fact.name in _RESTATED:
                    fact = _RESTATED[fact.name](fact.readings)
                facts[fact.name] = Found(fact, _BATCH.get(fact.name, batch), run)
    return facts


#: Facts that have moved to another batch since the first runs.
_BATCH = {"TMA store clipping": "edges"}


def _matching(facts: Mapping[str, Found], name: str) -> list[Found]:
    return [one for key, one in facts.items() if key.startswith(name)]


def _section_of(name: str) -> str:
    return next(s.title for s in SECTIONS for place in s.places if place.name == name)


def _run_line(run: Mapping[str, Any]) -> str:
    device = run["device"]
    major, minor = device["compute_capability"]
    return (
        f"{run['taken']}: {device['name']}, compute capability {major}.{minor}, "
        f"{device['sm_count']} SMs, {device['l2_bytes'] >> 20} MB of L2, "
        f"{device['shared_bytes_per_cta']} bytes of shared memory a CTA; CUDA {device['cuda']}, "
        f"ptxas {run['ptxas'] or 'not installed'}"
    )


def _summary(section: str, found: Sequence[Found]) -> str:
    """One sentence for all facts of a place, and where they stand."""
    if not found:
        return "Not measured in these runs."
    if len(found) > 2:
        right = sum(one.fact.holds is True for one in found)
        answer = f"{'yes' if right == len(found) else 'no'}, {right} of {len(found)} cases hold"
    else:
        answer = "; ".join(dict.fromkeys(one.fact.answer for one in found))
    name = found[0].fact.name
    return f"{answer} ([{section}](#{_anchor(section if len(found) > 2 else name)}))"


def _anchor(title: str) -> str:
    """The link target that Markdown renderers make of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _verdict(fact: Fact) -> str:
    return {True: "holds", False: "**does not hold**", None: ""}[fact.holds]


def _entries(place: Place, found: Sequence[Found]) -> list[str]:
    if not found:
        return []
    because = ["", f"**So the compiler:** {place.because}", ""]
    if place.name == DESCRIPTORS:
        return [*_descriptors(found), *because, f"**Measured:** {found[0].source}"]
    lines: list[str] = []
    for one in found:
        fact = one.fact
        verdict = f" ({_verdict(fact)})" if fact.holds is not None else ""
        answer = fact.answer if not place.columns or fact.name in _RESTATED else ""
        lines += ["", f"### {fact.name}", "", f"**Question:** {fact.question}", ""]
        lines += [f"**Answer{verdict}:** {answer}".rstrip()]
        if place.columns:
            lines += ["", *_figures(place.columns, fact.readings)]
        lines += [*because, f"**Measured:** {one.source}"]
    return lines


# --- descriptors ----------------------------------------------------------------------------------

_SWIZZLES = (0, 32, 64, 128)
_ROWS = 128


def _descriptors(found: Sequence[Found]) -> list[str]:
    """The descriptors that were tried, and for which forms they read right."""
    lines = [
        "",
        f"**Question:** Do descriptors such as these, of an operand of {_ROWS} rows (M or N) and "
        f"{images.K_BYTES} bytes of K in bf16, read what lies there? Distances are in bytes; the "
        "steps are where the instructions along K start.",
        "",
        "| operand | swizzle | LBO | SBO | steps |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for major, make in (("K-major", images.k_major), ("MN-major", images.mn_major)):
        for swizzle in _SWIZZLES:
            operand = make(_ROWS, 2, swizzle)
            steps = ", ".join(map(str, operand.steps_bytes))
            lines.append(
                f"| {major} | {swizzle} | {operand.leading_bytes} | {operand.stride_bytes} "
                f"| {steps} |"
            )
    forms: dict[str, list[Found]] = {}
    for one in found:
        form = one.fact.name.removeprefix("wgmma ").rsplit(", ", 1)[0]
        forms.setdefault(form, []).append(one)
    lines += ["", "**Answer:**", "", "| form | swizzles | measured | claim |"]
    lines += ["| --- | --- | --- | --- |"]
    for form, ones in forms.items():
        answers: dict[tuple[str, str], list[str]] = {}
        for one in ones:
            width = one.fact.name.rsplit(", ", 1)[1].removesuffix(" swizzle")
            key = one.fact.answer, _verdict(one.fact)
            answers.setdefault(key, []).append(width.removesuffix("-byte"))
        for (answer, verdict), swizzles in answers.items():
            cells = (form, ", ".join(swizzles), answer, verdict)
            lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return lines


# --- pieces ---------------------------------------------------------------------------------------


def _rows(found: Sequence[Found]) -> list[str]:
    lines = ["| fact | question | measured | claim |", "| --- | --- | --- | --- |"]
    for one in found:
        fact = one.fact
        cells = (fact.name, fact.question, fact.answer, _verdict(fact))
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return lines


def _figures(columns: Sequence[str], readings: Mapping[str, Any]) -> list[str]:
    """One row a case; a column that is a share is shown in percent."""
    lines = ["| | " + " | ".join(column or "cycles" for column in columns) + " |"]
    lines += ["| --- |" + " ---: |" * len(columns)]
    for case, row in readings.items():
        cells = (_figure(row[c] if c else row, share=c.startswith("share")) for c in columns)
        lines.append(f"| {_cell(case)} | " + " | ".join(cells) + " |")
    return lines


def _figure(value: float, share: bool) -> str:
    return f"{value:.1%}" if share else f"{value:.4g}"


def _failures(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    failures = [
        f"Not measured: {name}: {why.splitlines()[0]}"
        for run in runs
        for batch in run["batches"].values()
        for name, why in batch["failures"].items()
    ]
    return [line for text in failures for line in ("", text)]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
