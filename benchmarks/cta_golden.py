"""The hand-written `cta` kernels, through the backend alone, against the reference PTX.

    python -m benchmarks.cta_golden [NAME ...] [--assemble-only]

Idea: tests/cta holds kernels at level `cta` as good as anyone knows to write them.  Selection and
emission are all that stands between them and the PTX, so their rate over the reference's says
whether level `cta` can express what the fastest kernels do.

Invariants: both read the same tensors in the same run; no pass before selection touches the text;
an error above 1.25 times the reference's is a failure.

Never: changes a golden file to fit a card.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import reference
from benchmarks.harness import Case, Comparison, Protocol, compare, torch_case
from tilec.compiler import Compiled, compile_module
from tilec.ir.parser import parse_module
from tilec.targets import by_name

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "cta"
LAST_PASS = "place-shared"  # what a hand-written kernel has already decided
LEAST_RATIO = 0.97
TIMES_REFERENCE = 1.25


@dataclass(frozen=True)
class Golden:
    """A file of tests/cta, the workload it competes in, and its parameters by role."""

    file: str
    workload: str
    inputs: tuple[str, ...]
    output: str


GOLDENS: dict[str, Golden] = {
    "gemm": Golden("gemm.tir", "gemm_tn_8192", ("a", "b"), "c"),
    "attention": Golden("attention.tir", "attention_d128", ("q", "k", "v"), "o"),
    "attention_causal": Golden(
        "attention_causal.tir", "attention_d128_causal", ("q", "k", "v"), "o"
    ),
}


def compiled(text: str) -> Compiled:
    """PTX of a `cta` module in which all is decided but the instructions."""
    module = parse_module(text)
    return compile_module(module, by_name(module.target), start_after=LAST_PASS)


def launcher(
    code: Compiled, tensors: Mapping[str, Any], scalars: Mapping[str, float]
) -> Callable[[], None]:
    """A launch of the kernel on torch's current stream."""
    import torch

    from tilec.runtime.arrays import view
    from tilec.runtime.launch import Loaded

    loaded = Loaded(code, torch.cuda.current_device())
    views = {name: view(tensors[name]) for name, _ in code.arrays}

    def run() -> None:
        loaded(views, scalars, torch.cuda.current_stream().cuda_stream)

    return run


def golden_case(golden: Golden, text: str, work: reference.Workload) -> Case:
    """The golden kernel as a contestant on the workload's tensors."""
    import torch

    code = compiled(text)
    output = torch.empty(work.expected.shape, dtype=torch.bfloat16, device="cuda")
    tensors = dict(zip(golden.inputs, work.inputs, strict=True)) | {golden.output: output}
    depth = work.inputs[0].shape[-1]
    scalars = {name: 1 / math.sqrt(depth) for name, _ in code.scalars}
    run = launcher(code, tensors, scalars)
    return torch_case("tilec cta", run, lambda: output, work.expected, reference.TOLERANCE)


def assembler_report(code: Compiled) -> str:
    """Registers, spills and losses as ptxas sees them, where it is installed."""
    from tilec.backend_ptx.assemble import ToolMissing, assemble

    try:
        made = assemble(code.ptx, code.target)
    except ToolMissing as missing:
        return str(missing)
    losses = "; ".join(note.text for note in made.losses) or "none"
    return f"{made.registers} registers, {made.spill_bytes} bytes spilled, losses: {losses}"


def verdict(found: Comparison) -> tuple[bool, str]:
    """Whether ours keeps up with the reference, and the sentence that says so."""
    ours, peer = found.cases[0], found.best("reference", "cool")
    if ours.failure is not None or peer is None:
        return False, f"{found.title}: {ours.failure or 'the reference failed'}"
    ratios = []
    for kind in ("cool", "hot"):
        mine, theirs = ours.seconds(kind), peer.seconds(kind)
        if mine is not None and theirs is not None:
            ratios.append(theirs[0] / mine[0])
    right = ours.error <= TIMES_REFERENCE * peer.error
    good = right and all(ratio >= LEAST_RATIO for ratio in ratios)
    figures = " / ".join(f"{ratio:.3f}" for ratio in ratios)
    return good, (
        f"{found.title}: {figures} of the reference (cool / hot), error {ours.error:.2e} "
        f"against {peer.error:.2e}: {'pass' if good else 'FAIL'}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Race the golden kernels; exit status 1 if one falls behind or is wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help=f"which (default all): {', '.join(GOLDENS)}")
    parser.add_argument("--assemble-only", action="store_true", help="needs no GPU")
    parser.add_argument("--reference", help="folder of the reference PTX")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.6)
    parser.add_argument("--no-hot", action="store_true", help="leave out the back-to-back reading")
    parser.add_argument("--results", type=Path, help="folder for the JSON files")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(GOLDENS))
    if unknown:
        parser.error(f"no golden kernel {', '.join(unknown)}; there are {', '.join(GOLDENS)}")
    protocol = Protocol(rounds=options.rounds, pause_s=options.pause, hot=not options.no_hot)
    good = True
    lines: list[str] = []
    for name in options.names or GOLDENS:
        golden = GOLDENS[name]
        text = (FOLDER / golden.file).read_text(encoding="utf-8")
        print(f"{golden.file}: {assembler_report(compiled(text))}", flush=True)
        if options.assemble_only:
            continue
        work = reference.WORKLOADS[golden.workload](reference.reference_folder(options.reference))
        cases = [golden_case(golden, text, work), *work.cases]
        found = compare(f"cta {work.title}", work.work, work.unit, cases, protocol)
        found.save(f"cta-{name}", *([options.results] if options.results else []))
        passed, line = verdict(found)
        good, lines = good and passed, [*lines, line]
    print("\n".join(lines))
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
