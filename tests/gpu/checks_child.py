"""Runs a list of check cases, one line of JSON each, as a child of `test_checks`.

Idea: the interpreter says what has to be printed and which element has to be named; the outputs
must be those of the kernel without its checks, whether an assertion fails or not, and the next
call of the same kernel must be as if nothing had been. Beside the cases stand a few settings of a
GPU: a graph, a stream, arrays of the host, and a buffer that is too small.

Invariants: a hung case ends this process after its own time limit.

Never: retries a case.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

import tilec
from tests.gpu.check_cases import PROGRAMS, Arrays, CheckCase
from tilec.runtime.checks import AssertFails

CASE_LIMIT_S = 120
_REPORTED = (tilec.DiagnosticError, AssertionError, ValueError, RuntimeError)


def said(kernel: Any, arrays: Any) -> tuple[str, str, Any]:
    """What a call prints, what its error says, and what it gives."""
    text, error, out = io.StringIO(), "", None
    with contextlib.redirect_stdout(text):
        try:
            out = kernel(*arrays)
        except AssertFails as raised:
            error = str(raised)
    return text.getvalue(), error, out


def on_device(arrays: Arrays, on: str) -> list[Any]:
    """Arrays where they are to be used."""
    if on != "gpu":
        return list(arrays)
    import torch  # type: ignore[import-not-found,unused-ignore]

    return [torch.from_numpy(array).cuda() for array in arrays]


def on_host(array: Any) -> np.ndarray[Any, Any]:
    """The elements of an output."""
    found: np.ndarray[Any, Any] = array.cpu().numpy() if hasattr(array, "cpu") else array
    return found


def differ(what: str, found: str, wanted: str) -> str:
    """The first line at which two texts differ; empty if they are the same."""
    if found == wanted:
        return ""
    pairs = zip(found.splitlines(), wanted.splitlines(), strict=False)
    one, other = next(((a, b) for a, b in pairs if a != b), (found[-100:], wanted[-100:]))
    return f"{what}: {one!r} for {other!r}"


def run(case: CheckCase, on: str) -> str:
    """What is wrong with one case; empty when nothing is."""
    program = PROGRAMS[case.program]
    kernel = tilec.compile(program.text, "checks.tk").k
    compiled = kernel.using(target=case.target, on=on)
    for fails in dict.fromkeys((case.fails, False)):  # a call that fails, and one after it
        arrays = program.inputs(fails)
        printed, error, _ = said(kernel.using(on="interp"), arrays)
        out = kernel.using(on="interp", checks=False)(*arrays)
        if bool(error) is not fails:
            return f"the interpreter says {error!r}"
        y = on_device((np.full_like(out, -77),), on)[0]
        found = said(compiled, [*on_device(arrays, on), y])
        wrong = differ("prints", found[0], printed) or differ("says", found[1], error)
        if wrong:
            return wrong
        if not np.array_equal(on_host(y), out):
            return f"{int((on_host(y) != out).sum())} elements are wrong"
    return ""


# --- settings of a GPU -------------------------------------------------------------------------


def graph_is_refused() -> str:
    """A capture is refused with what to type, and what that makes is captured and right."""
    import torch

    kernel = tilec.compile(PROGRAMS["tiles"].text).k
    (x,) = on_device(PROGRAMS["tiles"].inputs(False), "gpu")
    y = torch.zeros_like(x)
    said(kernel, (x, y))
    kernel.using(checks=False)(x, y)
    graph = torch.cuda.CUDAGraph()
    refused = ""
    with torch.cuda.graph(graph):
        try:
            kernel(x, y)
        except tilec.LaunchError as error:
            refused = error.diagnostics[0].code
        kernel.using(checks=False)(x, y)
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    if refused != "checks-in-graph":
        return f"the capture said {refused!r}"
    return "" if bool((y == x + 1).all()) else "the graph gave other numbers"


def other_stream() -> str:
    """Calls on a stream of one's own report what was computed there."""
    import torch

    kernel = tilec.compile(PROGRAMS["tiles"].text).k
    inputs = PROGRAMS["tiles"].inputs(True)
    wanted = said(kernel.using(on="interp"), inputs)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        found = said(kernel, on_device(inputs, "gpu"))
    return differ("prints", found[0], wanted[0]) or differ("says", found[1], wanted[1])


def full_buffer() -> str:
    """What has no room is counted, no failure is silent, and outputs are untouched."""
    import torch

    text = """
kernel k(x: f32[M, N], y: out f32[M, N]):
    for i, j in parallel(tiles(M, 64), tiles(N, 64)):
        print("x", x[i, j])
        assert x[i, j] > 0, "x is positive"
        y[i, j] = x[i, j] + 1
"""
    x = torch.ones(4096, 4096, device="cuda")
    printed, _, y = said(tilec.compile(text).k, (x,))
    if not bool((y == 2).all()):
        return "elements are wrong"
    if "had no room in the buffer" not in printed or "[0." in printed:
        return f"it says {printed[-100:]!r}"
    printed, error, _ = said(tilec.compile(text).k, (-x,))
    if "had no room in the buffer" not in printed or "x is positive (element [0, 0]" not in error:
        return f"a failure beside many prints says {error!r}"
    alone = "".join(n for n in text.replace("64", "16").splitlines(True) if "print" not in n)
    y = torch.full_like(x, 7)
    printed, error, _ = said(tilec.compile(alone).k, (-x, y))
    if printed or "x is positive" not in error or "had no room in the buffer" not in error:
        return f"many failures say {error!r}"
    return "" if bool((y == 0).all()) else "elements are wrong where much fails"


def host_arrays() -> str:
    """Arrays of the host come back written, though an assertion fails."""
    kernel = tilec.compile(PROGRAMS["tiles"].text).k
    (x,) = PROGRAMS["tiles"].inputs(True)
    y = np.zeros_like(x)
    _, error, _ = said(kernel.using(on="gpu"), (x, y))
    if "x stays below five" not in error:
        return f"it says {error!r}"
    return "" if np.array_equal(y, x + 1) else "elements are wrong"


SETTINGS: dict[str, Callable[[], str]] = {
    "a graph": graph_is_refused,
    "a stream": other_stream,
    "a full buffer": full_buffer,
    "host arrays": host_arrays,
}


def run_all(cases: list[CheckCase], on: str, report: TextIO) -> None:
    """Run the cases in order; an exception ends a case, a CUDA error or a hang the process."""
    for case in cases:
        print(json.dumps({"case": case.name, "started": True}), file=report, flush=True)
        faulthandler.dump_traceback_later(CASE_LIMIT_S, exit=True)
        try:
            setting = SETTINGS.get(case.program)
            wrong = setting() if setting is not None else run(case, on)
        except _REPORTED as error:
            wrong = f"{type(error).__name__}: {error}"
        faulthandler.cancel_dump_traceback_later()
        record = {"case": case.name, **({"failure": wrong} if wrong else {})}
        print(json.dumps(record), file=report, flush=True)


def main(arguments: list[str]) -> int:
    """`checks_child CASES.json REPORT.jsonl [ON]`."""
    cases = [CheckCase(**record) for record in json.loads(Path(arguments[0]).read_text())]
    with Path(arguments[1]).open("a") as report:
        run_all(cases, (*arguments[2:], "gpu")[0], report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
