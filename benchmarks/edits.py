"""Edit decisions in dumps and resume: each edit shows in the PTX and stays right, or is refused.

    python -m benchmarks.edits [--gpu] [--json FILE]

Idea: a dump is the program, so a person may change a decision in it (a swizzle, the stages of a
ring, who does what, a tile's size, the place of a wait) and compile on from there.  This script
does so by text substitution, as an editor would: five decisions in the dumps of examples/gemm.tk
and five in the hand-written attention, and for each subject edits that must be refused.

Invariants: a substitution that does not find exactly the text it expects is a failure, so an edit
cannot silently do nothing; with --gpu each edited kernel runs in a supervised child on outputs
filled with NaN and is compared with float32.

Never: rebuilds a module by hand; all goes through the text.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.cta_golden import FOLDER, LAST_PASS, TIMES_REFERENCE, launcher
from benchmarks.gemm import EXAMPLES
from tilec.compiler import Compiled, compile_module, compile_source
from tilec.diagnostics import DiagnosticError
from tilec.ir.core import Module
from tilec.ir.parser import parse_module
from tilec.ir.printer import module_text
from tilec.layout.shared import swizzled
from tilec.runtime.supervise import SupervisedError
from tilec.runtime.supervise import run as run_supervised
from tilec.source import SourceFile
from tilec.targets import by_name

LIMIT_S = 120.0


class EditMissed(RuntimeError):
    """The dump does not hold the text that an edit is about."""


# --- editing text ------------------------------------------------------------------------------


def swap(text: str, pattern: str, replacement: str, times: int = 1) -> str:
    """Replace a pattern that must occur exactly `times` times (0: at least once)."""
    edited, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
    if count != times and not (times == 0 and count):
        raise EditMissed(f"`{pattern}` occurs {count} times, not {times or 'at least once'}")
    return edited


def lift(text: str, moved: str, above: str) -> str:
    """Move the first line that matches `moved` to just above the last `above` line before it."""
    lines = text.splitlines(keepends=True)
    start = next((n for n, line in enumerate(lines) if re.search(moved, line)), None)
    places = [n for n, line in enumerate(lines[:start]) if re.search(above, line)]
    if start is None or not places:
        raise EditMissed(f"no `{moved}` below a `{above}`")
    lines.insert(places[-1], lines.pop(start))
    return "".join(lines)


def found(text: str, pattern: str) -> re.Match[str]:
    """The first match, which must exist."""
    match = re.search(pattern, text, flags=re.MULTILINE)
    if match is None:
        raise EditMissed(f"there is no `{pattern}`")
    return match


# --- the subjects and their edits --------------------------------------------------------------


@dataclass(frozen=True)
class Edit:
    """One changed decision; `after` is the pass whose dump is edited.

    `refused` holds words of the reason when the edited text must be refused.
    """

    subject: str
    decision: str
    says: str
    after: str
    change: Callable[[str], str]
    refused: str = ""

    @property
    def name(self) -> str:
        """Subject, decision and what was done."""
        return f"{self.subject}: {self.decision}: {self.says}"


class _Steps:
    """Keeps the text after each pass."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def before(self, name: str, module: Module) -> None:
        """Only results are kept."""

    def after(self, name: str, module: Module) -> None:
        """Keep one."""
        self.texts[name] = module_text(module)


@cache
def dumps(subject: str) -> dict[str, str]:
    """The dumps of a subject by the pass that left them."""
    if subject == "gemm":
        path = EXAMPLES / "gemm.tk"
        steps = _Steps()
        source = SourceFile(path.name, path.read_text(encoding="utf-8"))
        compile_source(source, "gemm", {}, by_name("90"), dump=steps)
        return steps.texts
    text = (FOLDER / f"{subject}.tir").read_text(encoding="utf-8")
    return {LAST_PASS: module_text(parse_module(text))}


def resumed(text: str, after: str) -> Compiled:
    """Compile a dump from where it stands."""
    module = parse_module(text)
    return compile_module(module, by_name(module.target), start_after=after)


def _halved(text: str, pattern: str) -> str:
    size = int(found(text, pattern)[2])
    return swap(text, pattern, rf"\g<1>{size // 2}\g<3>")


def _one_warpgroup(text: str) -> str:
    return _halved(swap(text, r"\bwarpgroups = 2\b", "warpgroups = 1"), r"(\(i, )(\d+)(\))")


def _operand_swizzle(text: str) -> str:
    part = found(text, r"%ring = .*: ring<\d+, \[shared<bf16, (\d+) x 64, (#\w+)>")
    layout = swizzled(int(part[1]), 64, 16, 64, "row")
    text = swap(text, rf"^{part[2]} = .*$", f"{part[2]} = {layout}")
    return swap(text, r"(%map_a = .*)<bf16, 64 x (\d+), 128>", r"\1<bf16, 32 x \2, 64>")


def _query_swizzle(text: str) -> str:
    name = found(text, r"%ring_q = .*shared<bf16, 192 x 128, (#\w+)>")[1]
    layout = swizzled(192, 128, 16, 64, "row")
    text = swap(text, rf"^{name} = .*$", f"{name} = {layout}")
    return swap(text, r"(%map_q = .*)<bf16, 64 x 192 x 1, 128>", r"\1<bf16, 32 x 192 x 1, 64>")


def _fewer_keys(text: str) -> str:
    text = swap(text, r"\b([ij])8\*10\b", r"\g<1>8 \g<1>16 \g<1>32", 0)
    return swap(text, r"\b80\b", "64", 0)


_SCHEDULE, _PLACED = "choose-tiles", LAST_PASS

EDITS: tuple[Edit, ...] = (
    Edit(
        "gemm",
        "swizzle",
        "64 bytes for operand a",
        _PLACED,
        _operand_swizzle,
    ),
    Edit(
        "gemm",
        "stages",
        "two instead of three or more",
        _SCHEDULE,
        lambda text: swap(text, r"\bstages = [3-9]\b", "stages = 2"),
    ),
    Edit("gemm", "roles", "one consumer warpgroup", _SCHEDULE, _one_warpgroup),
    Edit(
        "gemm",
        "tile",
        "half as many columns",
        _SCHEDULE,
        lambda text: _halved(text, r"(\(j, )(\d+)(\))"),
    ),
    Edit(
        "gemm",
        "wait",
        "for the product just issued, not for the one before it",
        _PLACED,
        lambda text: swap(text, r"cta\.settle\(\) \{pending = 1\}", "cta.settle() {pending = 0}"),
    ),
    Edit(
        "gemm",
        "wait",
        "a stage given back above the wait that covers its products",
        _PLACED,
        lambda text: lift(text, r"cta\.release\(", r"cta\.settle\("),
        "release",
    ),
    Edit(
        "gemm",
        "stages",
        "more than lie before what follows in shared memory",
        _PLACED,
        lambda text: swap(text, r"(cta\.ring\(\).*): ring<\d+,", r"\1: ring<64,"),
        "inside the ring",
    ),
    Edit("attention", "swizzle", "64 bytes for the queries", _PLACED, _query_swizzle),
    Edit(
        "attention",
        "stages",
        "two of keys instead of three",
        _PLACED,
        lambda text: swap(text, r"(%ring_k = .*): ring<3,", r"\1: ring<2,"),
    ),
    Edit(
        "attention",
        "roles",
        "values loaded by another warp",
        _PLACED,
        lambda text: swap(text, r"(label = load_v, first = )1", r"\g<1>2"),
    ),
    Edit("attention", "tile", "64 keys a block instead of 80", _PLACED, _fewer_keys),
    Edit(
        "attention",
        "wait",
        "for both products before the exponentials",
        _PLACED,
        lambda text: swap(text, r"(cta\.settle\(%sf\w+\) )\{pending = 1\}", r"\1{pending = 0}", 0),
    ),
    Edit(
        "attention",
        "wait",
        "keys given back above the wait that covers their product",
        _PLACED,
        lambda text: lift(text, r"cta\.release\(%ring_k, %ksua\)", r"cta\.settle\("),
        "release",
    ),
    Edit(
        "attention",
        "roles",
        "both producers in one warp",
        _PLACED,
        lambda text: swap(text, r"(label = load_v, first = )1", r"\g<1>0"),
        "warp",
    ),
    Edit(
        "attention",
        "wait",
        "no fence between the staging writes and the store",
        _PLACED,
        lambda text: swap(text, r"^ *cta\.publish\(\)\n", ""),
        "publish",
    ),
)
"""What is edited; the decisions are those that an author most often wants to try."""


# --- what comes of an edit ---------------------------------------------------------------------


@dataclass
class Outcome:
    """What an edit led to."""

    edit: str
    expected: str
    good: bool
    says: str
    error: float | None = None


def outcome(edit: Edit, gpu: bool) -> Outcome:
    """Edit, resume, and judge."""
    expected = "refused" if edit.refused else "right"
    try:
        text = dumps(edit.subject)[edit.after]
        edited = edit.change(text)
    except EditMissed as missed:
        return Outcome(edit.name, expected, False, f"the edit does not apply: {missed}")
    try:
        code = resumed(edited, edit.after)
    except DiagnosticError as refusal:
        return _refused(edit, refusal, expected)
    if edit.refused:
        return Outcome(edit.name, expected, False, "compiled, though it must be refused")
    before = resumed(text, edit.after).ptx
    changes = sum(line[:1] in "+-" for line in _changed(before, code.ptx))
    if not changes:
        return Outcome(edit.name, expected, False, "the PTX did not change")
    says = f"{changes} lines of PTX differ"
    if not gpu:
        return Outcome(edit.name, expected, True, says)
    return _measured(edit, edited, expected, says)


def _changed(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in lines if not line.startswith(("+++", "---"))]


def _refused(edit: Edit, refusal: DiagnosticError, expected: str) -> Outcome:
    first = refusal.diagnostics[0]
    place = ""
    if first.labels:
        span = first.labels[0][0]
        place = f"line {span.file.position(span.start)[0]}: "
    good = bool(edit.refused) and edit.refused in first.message.lower() and bool(place)
    return Outcome(edit.name, expected, good, f"refused: {place}{first.message}")


def _measured(edit: Edit, edited: str, expected: str, says: str) -> Outcome:
    try:
        ours, plain = run_supervised(
            f"benchmarks.edits:execute_{edit.subject}", edited, edit.after, limit_s=LIMIT_S
        )
    except SupervisedError as error:
        return Outcome(edit.name, expected, False, f"{says}; {str(error).splitlines()[0]}")
    good = ours <= TIMES_REFERENCE * plain
    return Outcome(edit.name, expected, good, f"{says}; error {ours:.2e} ({plain:.2e})", ours)


# --- on the GPU, in a child --------------------------------------------------------------------


def _errors(
    code: Compiled, tensors: dict[str, Any], output: str, exact: Any
) -> tuple[float, float]:
    """The relative error of the kernel, and that of rounding the exact result."""
    import torch

    made = tensors[output]
    made.fill_(float("nan"))
    launcher(code, tensors, {})()
    torch.cuda.synchronize()

    def error(values: Any) -> float:
        return float((values.float() - exact).square().mean().sqrt() / exact.square().mean().sqrt())

    return error(made), error(exact.to(made.dtype))


def execute_gemm(edited: str, after: str) -> tuple[float, float]:
    """The edited gemm on a ragged problem."""
    import torch

    torch.manual_seed(0)
    m, n, k = 520, 392, 200
    a = torch.randn(m, k, device="cuda").bfloat16()
    b = torch.randn(n, k, device="cuda").bfloat16()
    c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    exact = (a.double() @ b.double().T).float()
    return _errors(resumed(edited, after), {"a": a, "b": b, "c": c}, "c", exact)


def execute_attention(edited: str, after: str) -> tuple[float, float]:
    """The edited attention; its reference is what torch makes of bf16 inputs in bf16."""
    import torch

    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 1920, 128, device="cuda").bfloat16() for _ in range(3))
    o = torch.empty_like(q)
    scores = (q.double() @ k.double().mT) / 128**0.5
    exact = (torch.softmax(scores, -1) @ v.double()).float()
    ours, _ = _errors(resumed(edited, after), {"q": q, "k": k, "v": v, "o": o}, "o", exact)
    theirs = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
    difference = (theirs.float() - exact).square().mean().sqrt()
    return ours, float(difference / exact.square().mean().sqrt())


def main(arguments: Sequence[str] | None = None) -> int:
    """Do all edits; exit status 1 if one came out otherwise than expected."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--gpu", action="store_true", help="also run what compiles")
    parser.add_argument("--only", default="", help="subject, such as gemm or attention")
    parser.add_argument("--json", type=Path, help="write the outcomes here")
    options = parser.parse_args(arguments)
    outcomes = []
    for edit in EDITS:
        if options.only in ("", edit.subject):
            outcomes.append(outcome(edit, options.gpu))
            done = outcomes[-1]
            print(f"{'ok  ' if done.good else 'FAIL'} {done.edit}\n     {done.says}", flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n")
    bad = sum(not each.good for each in outcomes)
    print(f"{len(outcomes) - bad} passed, {bad} failed")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
