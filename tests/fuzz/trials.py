"""One random program through everything that takes no GPU: what goes wrong, in words.

Idea: the interpreter at its first tile sizes says what the program means. Its other tile sizes, the
other end of each ``anchor``, and the program after each pass of level ``tile`` must agree: bit for
bit where the generator knows a result to be exact, else within its bound. Then the same module
becomes PTX, or is refused at a line for a reason that the page of the language lists.

Never: decides that a disagreement does not matter.
"""

from __future__ import annotations

import contextlib
import io
import re
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from tests.fuzz.programs import Program
from tilec import compiler, pipeline
from tilec.backend_ptx.assemble import AssemblyError, assemble
from tilec.diagnostics import Diagnostic, DiagnosticError
from tilec.interp.interpret import interpret_launches
from tilec.interp.numbers import decode, encode, storage
from tilec.ir.core import Kernel, Module
from tilec.ir.facts import Schedule
from tilec.ir.printer import module_text
from tilec.ir.types import DType
from tilec.runtime import trial
from tilec.source import SourceFile
from tilec.targets import by_name

LIMIT_S = 30
"""What one program may take; beyond it hangs."""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "language.md"
LISTED = {
    "parts and transposes of what a product": r"^(a transpose|part of what|a part of) ",
    "updates in memory of integers of 8 and 16 bits": r"update",
    "products of what `zeros` or `full` makes": r"^no register layout is known for a tile",
    "`reduce` and `scan` of `f16`": r"are not combined by a function in this version",
    "combining a vector that warps have copies of": r"^some warps of a row hold copies",
    "products of 8-bit elements along a loop pinned": r"^no tensor core .* is no multiple of 32$",
    "homes in shared memory of tiles": r"windows of \d+ rows do not lie evenly",
    "tiles that are more than registers": r"elements for each of|does not fit the registers",
}
"""Openings of the items under "What this version refuses", and what their messages hold."""


_TILE_PASSES = pipeline.PIPELINE[: pipeline.position("apply-tiles") + 1]


class Hang(Exception):
    """A program took longer than ``LIMIT_S``."""


@dataclass
class Outcome:
    """What became of a program: failures are bugs, refusals are listed."""

    failure: str = ""
    refusal: str = ""
    ptx: dict[str, str] = field(default_factory=dict)
    """Text by target."""


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise ``Hang`` in what takes longer."""

    def expire(_signal: int, _frame: FrameType | None) -> None:
        raise Hang(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def quarters(generator: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Any:
    """Elements as ``expressions`` expects them: floats are quarters up to 2."""
    if dtype.is_float:
        drawn = generator.integers(-8, 9, shape) / 4
        return encode(dtype, decode(dtype, drawn), storage(dtype))
    if dtype.kind == "bool":
        return generator.integers(0, 2, shape).astype(np.bool_)
    if generator.random() < 0.3:
        kept = storage(dtype)
        return generator.integers(np.iinfo(kept).min, np.iinfo(kept).max, shape, kept)
    low = -8 if dtype.kind == "signed" else 0
    return generator.integers(low, 9, shape).astype(storage(dtype))


def inputs_of(kernel: Kernel, program: Program) -> trial.Inputs:
    """Arrays for a program."""
    made = trial.make_inputs(kernel, program.dims, {}, seed=0)
    generator = np.random.default_rng(program.seed)
    for name, type in trial.array_parameters(kernel).items():
        if type.mode != "out":
            made.arrays[name] = quarters(generator, type.dtype, made.arrays[name].shape)
    return made


def apart(
    kernel: Kernel, program: Program, found: Mapping[str, Any], want: Mapping[str, Any]
) -> str:
    """Where two runs give results that the program does not allow to differ; empty if nowhere."""
    for name, type in trial.array_parameters(kernel).items():
        if name not in found or name not in want:
            continue
        wide = type.dtype.name in ("s64", "u64")
        x, y = (a if wide else decode(type.dtype, a) for a in (found[name], want[name]))
        same = (x == y) | ((x != x) & (y != y))
        bound = program.errors.get(name, 0.0)
        if bound:
            with np.errstate(invalid="ignore"):
                near = np.abs(x.astype(np.float64) - y.astype(np.float64)) <= bound
            same |= near
        if not same.all():
            at = tuple(int(p) for p in np.argwhere(~same)[0])
            count = int((~same).sum())
            return (
                f"{name}{list(at)} is {x[at]} and not {y[at]}, allowed {bound:.3g} "
                f"({count} of {same.size} elements differ)"
            )
    return ""


def listed(refusal: Diagnostic) -> str:
    """The item of the page that a refusal belongs to; empty if there is none."""
    items = page_items()
    for opening, pattern in LISTED.items():
        if re.search(pattern, refusal.message) and any(i.startswith(opening) for i in items):
            return opening
    return ""


def page_items() -> list[str]:
    """What the page lists as refused."""
    end = PAGE.read_text(encoding="utf-8").split("## What this version refuses", 1)[1]
    return [" ".join(m[1].split()) for m in re.finditer(r"^- (.*(?:\n  .*)*)", end, re.M)]


def attempt(program: Program, target: str = "90", assembled: bool = False) -> Outcome:
    """Run a program through everything; what is raised becomes a failure."""
    outcome = Outcome()
    try:
        with limited(LIMIT_S), contextlib.redirect_stdout(io.StringIO()):
            _attempt(program, outcome, target, assembled)
    except DiagnosticError as error:
        outcome.failure = "refused by the frontend: " + said(error)
    except (Hang, AssemblyError) as error:
        outcome.failure = f"{type(error).__name__}: {error}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        where = [f for f in frames if "/tilec/" in f.filename] or list(frames)
        outcome.failure = f"{type(error).__name__} in {Path(where[-1].filename).name}: {error}"
    return outcome


def said(error: DiagnosticError) -> str:
    """Code, message and line of each diagnostic."""
    return "; ".join(
        f"{d.code}: {d.message} (line {d.span.line if d.span else '?'})" for d in error.diagnostics
    )


def facts_of(module: Module, program: Program) -> Any:
    """Promises as a launch with these arrays makes them."""
    facts = compiler.default_facts(module.kernels[0])
    return replace(facts, extents=tuple((d, max(n, 1)) for d, n in program.dims.items()))


def _attempt(program: Program, outcome: Outcome, name: str, assembled: bool) -> None:
    target = by_name(name)
    module, inputs, want = meaning_of(program, name)
    kernel = module.kernels[0]
    for lazy in (False, True):
        found = trial.on_interpreter(kernel, inputs, 1, lazy=lazy).outputs
        if not outcome.failure:
            outcome.failure = apart(kernel, program, found, want)
        if outcome.failure:
            outcome.failure = f"at two tile sizes: {outcome.failure}"
            return
        if "anchor" not in program.text:
            break
    compiler.prepare(module, facts_of(module, program), Schedule())
    if not _refused(
        outcome, program, lambda: _passes(module, program, inputs, want, outcome, target)
    ):
        _refused(outcome, program, lambda: _finish(module, outcome, target, assembled))


def _refused(outcome: Outcome, program: Program, step: Callable[[], None]) -> bool:
    """Do a step; whether it was refused, or failed."""
    try:
        step()
    except DiagnosticError as error:
        first = error.diagnostics[0]
        item = listed(first)
        if first.code in ("not-in-this-version", "refused") and first.span and item:
            outcome.refusal = f"{item}: {first.message}"
        else:
            outcome.failure = "refused, and the page does not say so: " + said(error)
        return True
    return bool(outcome.failure)


def _passes(
    module: Module, program: Program, inputs: trial.Inputs, want: Any, outcome: Outcome, target: Any
) -> None:
    """Level ``tile``: each pass that changes something keeps the meaning."""
    before, explicit = "", False
    for name in _TILE_PASSES:
        compiler.run_passes(module, target, only=(name,))
        explicit = explicit or name == "fill-padding"
        text = re.sub(r"after = [\w-]+", "", module_text(module))
        if "ptx[" in program.text and name == "simplify":
            return  # what the author says that an instruction means is no part of the code
        if text == before:
            continue
        before = text
        arrays = {k: v.copy() for k, v in inputs.arrays.items()}
        interpret_launches(module.kernels, arrays, inputs.scalars, explicit=explicit)
        fault = apart(module.kernels[0], program, arrays, want)
        if fault:
            outcome.failure = f"after {name}: {fault}"
            return


def _finish(module: Module, outcome: Outcome, target: Any, assembled: bool) -> None:
    """The rest of the way, to PTX."""
    made = compiler.compile_module(module, target)
    outcome.ptx[target.name] = made.ptx
    if assembled:
        assemble(made.ptx)


def meaning_of(program: Program, target: str = "90") -> tuple[Module, trial.Inputs, Any]:
    """The module of level ``tile``, inputs, and what the interpreter makes of them."""
    module = compiler.front(SourceFile("k.tk", program.text), None, {}, by_name(target))
    inputs = inputs_of(module.kernels[0], program)
    return module, inputs, trial.on_interpreter(module.kernels[0], inputs, 0).outputs
