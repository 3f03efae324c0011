"""examples/gemm.tk against cuBLAS, Triton, QuACK and the hand-written reference, in one run.

    python -m benchmarks.gemm [--shape M,N,K ...] [--form TN|TT|NN|NT] [--dtype bf16|f16]
        [--schedule PINS ...]
    python -m benchmarks.gemm --suite [dense|layouts|skinny|types|epilogue|batched|random|all]

Idea: single shapes with the protocol of the published tables, or whole suites with a shorter one.

Invariants: ours has the compiler's own schedule. What `--schedule` pins runs beside it, under its
pins' name, and such a run is saved nowhere but where `--results` says; with `--pin` ours is pinned,
and every record says so.

Never: decides who takes part (`gemm_cases`) or what a suite holds (`gemm_suite`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.gemm_cases import EXAMPLES, FORMS, REFERENCE_SHAPE, Row, contestants, exact, operand
from benchmarks.gemm_suite import QUICK, SUITES, run_suites
from benchmarks.harness import RESULTS, Comparison, Protocol, compare
from tilec.ir.facts import Schedule

__all__ = ["EXAMPLES", "FORMS", "exact", "main", "operand", "run"]


def run(row: Row, options: argparse.Namespace, protocol: Protocol) -> Comparison:
    """One comparison, with a table on standard output."""
    title = f"{row.title} pinned {options.pin}" if options.pin else row.title
    beside = options.schedule or ()
    cases = contestants(row, options.reference, _schedule(options.pin), beside)
    found = compare(title, row.work, "TFLOP/s", cases, protocol)
    if options.results or not beside:
        found.save(title.replace(" ", "-"), options.results or RESULTS)
    return found


def _shape(text: str) -> tuple[int, int, int]:
    sizes = tuple(int(word) for word in text.split(","))
    if len(sizes) == 1:
        sizes *= 3
    if len(sizes) != 3:
        raise argparse.ArgumentTypeError("a shape is M,N,K, or one number for all three")
    return sizes


def _schedule(text: str | None) -> Schedule | None:
    from tilec.cli_options import read_schedule

    return read_schedule((text,)) if text else None


def _protocol(options: argparse.Namespace) -> Protocol:
    protocol = QUICK if options.suite else Protocol(hot=not options.no_hot)
    given = {"rounds": options.rounds, "pause_s": options.pause}
    return replace(protocol, **{k: v for k, v in given.items() if v is not None})


def main(arguments: Sequence[str] | None = None) -> None:
    """Time products against their peers."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--shape", type=_shape, action="append", help="M,N,K; default 8192 cubed")
    parser.add_argument("--form", choices=FORMS, default="TN", help="TN: both K-major")
    parser.add_argument("--dtype", choices=("bf16", "f16"), default="bf16")
    parser.add_argument(
        "--suite", nargs="?", const="all", choices=(*SUITES, "all"), help="all rows of a suite"
    )
    parser.add_argument("--pin", metavar="KEY=VALUE,...", help="a schedule for ours, as recorded")
    parser.add_argument(
        "--schedule", action="append", metavar="PINS",
        help="time these choices too, as `tilec compile --schedule` takes them",
    )  # fmt: skip
    parser.add_argument("--reference", help="folder of the reference PTX")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--pause", type=float, help="seconds of rest before each reading")
    parser.add_argument("--no-hot", action="store_true", help="leave out the back-to-back reading")
    parser.add_argument("--no-plot", action="store_true", help="draw nothing for a suite")
    parser.add_argument("--results", type=Path, help="folder for the JSON files")
    options = parser.parse_args(arguments)
    protocol = _protocol(options)
    if options.suite:
        names = tuple(SUITES) if options.suite == "all" else (options.suite,)
        run_suites(
            names, protocol, _schedule(options.pin), options.pin or "", options.reference,
            options.results, not options.no_plot,
        )  # fmt: skip
        return
    for shape in options.shape or [REFERENCE_SHAPE]:
        run(Row("gemm", shape, options.form, options.dtype), options, protocol)


if __name__ == "__main__":
    main()
