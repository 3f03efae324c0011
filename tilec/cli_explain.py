"""What `tilec explain` prints: why the compiler chose what it chose, line by line of the source.

Idea: passes leave remarks; here they stand under the line that asked for them, in the order in
which the passes ran, and a remark that weighed candidates has its table: the best of them with the
terms of their estimate, the chosen one marked, and the rejected ones counted by their reason.

Invariants: everything said comes from remarks of a whole compilation for the given sizes; the JSON
holds all of every remark.

Never: estimates or chooses anything itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tilec.ir.core import Module
from tilec.ir.facts import Remark
from tilec.source import SourceFile
from tilec.targets.base import Target

_COLUMNS = (
    ("us", "microseconds"),
    ("compute", "compute_us"),
    ("memory", "memory_us"),
    ("merge", "merge_us"),
    ("tiles", "tiles"),
    ("waves", "waves"),
    ("rounds", "rounds"),
    ("a round", "round_cycles"),
    ("tensor", "tensor_cycles"),
    ("shared", "shared_cycles"),
    ("L2", "l2_cycles"),
    ("limit", "limit"),
)
"""Heads, and the terms of an estimate that stand under them: times in us, engines in cycles."""


def explained(module: Module, target: Target, source: SourceFile, most: int, as_json: bool) -> str:
    """All remarks of a compilation, as text or JSON."""
    from tilec.compiler import run_passes

    name = module.kernels[0].name
    remarks = run_passes(module, target)
    if as_json:
        return _json(name, target, remarks)
    head = f"{source.name}: {name} for {target.name}"
    return "\n".join([head, *_by_line(remarks, source.text.splitlines(), most)])


def _json(name: str, target: Target, remarks: Sequence[Remark]) -> str:
    listed = [
        {"pass": r.decided_by, "line": r.line, "column": r.column, "text": r.text, "data": r.data}
        for r in remarks
    ]
    return json.dumps({"kernel": name, "target": target.name, "remarks": listed}, indent=1)


def _by_line(remarks: Sequence[Remark], lines: Sequence[str], most: int) -> Iterator[str]:
    """Remarks under their lines; those of no line come first."""
    for number in sorted({r.line for r in remarks}):
        yield ""
        shown = lines[number - 1] if 0 < number <= len(lines) else "(no line of this file)"
        yield f"{number:4} | {shown}"
        for remark in remarks:
            if remark.line == number:
                yield f"       {remark.decided_by}: {remark.text}"
                yield from _candidates(remark.data, most)


def _candidates(data: Mapping[str, Any], most: int) -> Iterator[str]:
    """The table of a remark that weighed candidates, and why others were none."""
    found = data.get("candidates", ())
    if not found:
        return
    chosen = data["chosen"]
    shown = [c for place, c in enumerate(found) if place < most or c == chosen]
    rows = [("", "tile", *(head for head, _ in _COLUMNS))]
    for candidate in shown:
        terms = [_term(candidate[key]) for _, key in _COLUMNS]
        rows.append(("*" if candidate == chosen else "", _tile(candidate), *terms))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.rjust(w) for cell, w in zip(row[:-1], widths[:-1], strict=True)]
        yield f"         {'  '.join([*cells, row[-1]])}".rstrip()
    left = len(found) - len(shown)
    legal = f"{len(found)} legal candidates"
    yield (
        f"         {legal}, {left} of them not shown; * is chosen"
        if left
        else (f"         {legal}; * is chosen")
    )
    for reason, count in Counter(r["reason"] for r in data.get("rejected", ())).items():
        tiles = ", ".join(_tile(r) for r in data["rejected"] if r["reason"] == reason)
        yield f"         {count} rejected, {reason}: {tiles}"


def _tile(terms: Mapping[str, Any]) -> str:
    """Rows, columns and depth, warpgroups, and the cluster where there is one."""
    sizes = "x".join(str(terms[key]) for key in ("rows", "columns", "depth"))
    cluster = tuple(terms.get("cluster", (1, 1)))
    beside = f" c{cluster[0]}:{cluster[1]}" if cluster != (1, 1) else ""
    return f"{sizes} w{terms['warpgroups']}{beside}"


def _term(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("more", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "-D", "bindings", multiple=True, metavar="NAME=VALUE", help="Bind compile-time parameters."
)
@click.option("--kernel", metavar="NAME", help="Which kernel of the file.")
@click.option(
    "--schedule", multiple=True, metavar="KEY=VALUE,...", help="Pin choices, as `compile` does."
)
@click.option("--sm", "target", default="90", show_default=True, help="The target.")
@click.option("--shape", multiple=True, metavar="M=..,N=..", help="Sizes that calls will have.")
@click.option(
    "--array", "arrays", multiple=True, metavar="NAME=AXIS[:ALIGNMENT]",
    help="The contiguous axis of an array (-1: none) and its alignment in bytes.",
)  # fmt: skip
@click.option(
    "--most", type=click.IntRange(min=1), default=10, show_default=True,
    help="Candidates to show of each table, beside the chosen one.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Every remark with all its numbers.")
def explain(
    file: Path, more: tuple[str, ...], bindings: tuple[str, ...], kernel: str | None,
    schedule: tuple[str, ...], target: str, shape: tuple[str, ...], arrays: tuple[str, ...],
    most: int, as_json: bool,
) -> None:  # fmt: skip
    """Say why a kernel of a .tk FILE is compiled as it is, line by line."""
    from tilec.cli_options import pairs, read_facts, read_schedule, read_sizes, read_target
    from tilec.compiler import front, prepare

    if file.suffix in (".tir", ".ptx", ".cubin"):
        raise click.UsageError(f"`tilec explain` takes .tk files; {file.name} is none")
    source, wanted = SourceFile.read(file), read_target(target)
    chosen = read_schedule(schedule)
    bound = pairs((*bindings, *more), "a compile-time parameter")
    module = front(source, kernel, bound, wanted)
    prepare(module, read_facts(module, read_sizes(shape), arrays), chosen)
    click.echo(explained(module, wanted, source, most, as_json))
