"""Do the budgets hold: compile times, import time, size of the wheel?

    python -m benchmarks.budgets [--json FILE]

Idea: a compiler that is called while a program runs has to be quick, and quickness is lost a
little at a time; so each budget is a number here, measured the way a user meets it.

Invariants: in-process times are medians after one compile that loads the modules, and the first
compile is shown beside them; process times include Python's own start; needs no GPU.

Never: times with a cache of compiled kernels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
EXAMPLES = CHECKOUT / "examples"
_REPEATS = 7

#: Seconds from a program's text to PTX in a running process; the product kernels are the slowest.
IN_PROCESS_S = {"gemm": 0.200, "add": 0.200, "softmax": 0.200, "attention": 0.400}
PROCESS_S = 1.2
#: What calls are promised to bring: `:` in softmax needs a bound, and products read by TMA.
SIZES = {
    "gemm": {"M": 8192, "N": 8192, "K": 8192},
    "add": {"M": 8192, "N": 8192},
    "softmax": {"M": 32768, "N": 4096},
    "attention": {"B": 1, "H": 16, "HK": 16, "M": 16384, "N": 16384},
}
IMPORT_S = 0.120
WHEEL_BYTES = 1_000_000


@dataclass(frozen=True)
class Budget:
    """One measured figure and its limit."""

    name: str
    measured: float
    limit: float
    unit: str
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the figure is within its limit."""
        return self.measured <= self.limit

    def row(self) -> str:
        """A row of the printed table."""
        verdict = "pass" if self.holds else "FAIL"
        cells = [self.name, f"{self.measured:.4g}", f"{self.limit:g}", self.unit, verdict]
        return f"| {' | '.join([*cells, self.note])} |"


def _median_s(run: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def in_process(program: str) -> Budget:
    """`.tk` to PTX in this process."""
    from tilec.compiler import compile_module, default_facts, front, prepare
    from tilec.ir.facts import Schedule
    from tilec.source import SourceFile
    from tilec.targets import by_name

    path = EXAMPLES / f"{program}.tk"
    source = SourceFile(path.name, path.read_text(encoding="utf-8"))
    sizes = tuple(SIZES[program].items())

    def compile_once() -> None:
        module = front(source, program, {}, by_name("90"))
        arrays = default_facts(module.kernels[0])
        promised = replace(arrays, extents=sizes, multiples=tuple((n, 16) for n, _ in sizes))
        compile_module(prepare(module, promised, Schedule()), by_name("90"))

    start = time.perf_counter()
    compile_once()
    first = time.perf_counter() - start
    return Budget(
        f"{program}.tk to PTX, in-process",
        _median_s(compile_once),
        IN_PROCESS_S[program],
        "s",
        f"first {first:.3f} s, with the imports it makes",
    )


def as_process(program: str) -> Budget:
    """`tilec compile` from the shell."""
    with tempfile.TemporaryDirectory(prefix="tilec-budget-") as folder:
        command = [sys.executable, "-m", "tilec", "compile", str(EXAMPLES / f"{program}.tk")]
        shape = ",".join(f"{name}={size}" for name, size in SIZES[program].items())
        command += ["--sm", "90", "--shape", shape, "-o", f"{folder}/out.ptx"]

        def run() -> None:
            subprocess.run(command, check=True, capture_output=True, cwd=CHECKOUT)

        return Budget(f"tilec compile {program}.tk, as a process", _median_s(run), PROCESS_S, "s")


def importing() -> Budget:
    """`import tilec` in a fresh interpreter."""
    program = "import time; t = time.perf_counter(); import tilec; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", program]
    times = [
        float(subprocess.run(command, check=True, capture_output=True, cwd=CHECKOUT).stdout)
        for _ in range(_REPEATS)
    ]
    return Budget("import tilec", statistics.median(times), IMPORT_S, "s")


def wheel() -> Budget:
    """The wheel's size."""
    with tempfile.TemporaryDirectory(prefix="tilec-wheel-") as folder:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", folder]
        subprocess.run([*command, str(CHECKOUT)], check=True, capture_output=True)
        (path,) = Path(folder).glob("*.whl")
        return Budget("wheel", path.stat().st_size, WHEEL_BYTES, "bytes")


def measure() -> list[Budget]:
    """All budgets."""
    found = [importing(), wheel()]
    found += [in_process(program) for program in IN_PROCESS_S]
    found += [as_process(program) for program in IN_PROCESS_S]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each budget with its verdict; exit status 1 if one is broken."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args(arguments)
    budgets = measure()
    print("| budget | measured | limit | unit | verdict | note |")
    print("| --- | --- | --- | --- | --- | --- |")
    for budget in budgets:
        print(budget.row())
    if options.json:
        records = [{**asdict(budget), "holds": budget.holds} for budget in budgets]
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(records, indent=1) + "\n")
    return int(not all(budget.holds for budget in budgets))


if __name__ == "__main__":
    sys.exit(main())
