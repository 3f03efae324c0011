"""What ``tilec run`` does and prints; the numbers come from ``runtime.trial``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from tilec.cli_report import Wanted
from tilec.compiler import only_kernel, prepare, run_passes
from tilec.diagnostics import Diagnostic, DiagnosticError, did_you_mean, render
from tilec.interp.looking import AssertError
from tilec.interp.numbers import shape_of
from tilec.ir.core import Module
from tilec.ir.facts import Schedule
from tilec.passes.check_schedule import BadChoices
from tilec.pipeline import SIZES_SETTLED_BY
from tilec.runtime import trial
from tilec.runtime.call import Call, check_requirements
from tilec.runtime.checks import at_assertion, tell
from tilec.runtime.kernel import Kernel, Program, fresh, gpu_available
from tilec.runtime.specialise import LaunchError, facts_for
from tilec.source import SourceFile
from tilec.targets import by_name
from tilec.targets.base import Target

if TYPE_CHECKING:
    from tilec.runtime.emulated import Emulator


def run_kernel(
    source: SourceFile,
    name: str | None,
    bindings: Mapping[str, Any],
    schedule: Schedule,
    sizes: Mapping[str, int],
    given: Mapping[str, str],
    where: str | Emulator,
    seed: int,
    dump_folder: Path | None,
    save: Path | None,
    wanted: Target | None = None,
    report: Wanted | None = None,
) -> bool:
    """Run, compare, print; whether the result is as close as its element types allow."""
    kernel = chosen_kernel(source, name).using(schedule, **bindings)
    chosen = kernel.name
    target = wanted or by_name("90")
    module = kernel.front_end(bindings, target)
    ir = module.kernel(chosen)
    check_names(kernel, sizes, given, ir)
    inputs = trial.make_inputs(ir, sizes, given, seed)
    call = kernel.sort_out(trial.views_of(kernel, inputs.arrays), inputs.scalars, target)
    check_requirements(source, call, chosen)
    _check_choices(kernel, call)
    compiled = _compile(kernel, call, dump_folder, target) if dump_folder is not None else None
    on_gpu = where in ("auto", "gpu") and gpu_available()
    if where == "gpu" and not on_gpu:
        raise LaunchError("there is no GPU that CUDA can use here; `--on interp` needs none")
    faults: list[Diagnostic] = []
    reports: list[Any] = []
    if not isinstance(where, str):
        where = replace(where, told=reports.append) if report else where
        found, faults = trial.on_emulator(kernel, ir, inputs, target, where)
    elif on_gpu:
        found = trial.on_gpu(kernel, ir, inputs)
    elif where == "cta":
        found = trial.on_cta(kernel, ir, inputs, target)
    else:
        found = _interpreted(kernel, module, inputs)
    if faults:
        click.echo(render(faults, color=sys.stderr.isatty()), err=True)
    tell(found.said, module)
    reference = trial.on_interpreter(ir, inputs, choice=1, wide=True, lazy=True)
    rows = trial.compare(ir, found, reference)
    click.echo(_title(kernel, inputs, ir, found))
    for row in rows:
        verdict = "ok" if row.ok else "TOO FAR"
        click.echo(
            f"  {row.name}: largest error {row.largest:.3g} where values reach {row.scale:.3g} "
            f"(allowed {row.allowed:.3g}): {verdict}"
        )
    click.echo(f"  reference: {reference.where}, {_sizes(reference.sizes)}")
    spent = "a launch" if on_gpu else "interpreted" if isinstance(where, str) else "emulated"
    click.echo(f"  time: {_time(found.seconds)} {spent}")
    if not isinstance(where, str):
        click.echo(f"  findings: {sum(f.severity == 'error' for f in faults)}")
    if compiled is not None:
        click.echo(f"  PTX: {compiled}\n  dump: {compiled.parent / 'index.md'}")
    if report:
        report.give(reports)
    if save is not None:
        named: dict[str, Any] = dict(found.outputs)
        np.savez(save, **named)
    return all(row.ok for row in rows) and all(f.severity != "error" for f in faults)


def _interpreted(kernel: Kernel, module: Module, inputs: trial.Inputs) -> trial.Trial:
    """Run on the interpreter; an assertion that fails is shown at its line."""
    silent = kernel.checks_of(module) is False
    ir = module.kernel(kernel.name)
    try:
        return trial.on_interpreter(ir, inputs, pinned=kernel.schedule.tiles, silent=silent)
    except AssertError as error:
        raise at_assertion(error, module) from None


def chosen_kernel(source: SourceFile, name: str | None) -> Kernel:
    """The kernel of a text by its name, or its only one."""
    program = Program(source)
    chosen = name or only_kernel([k.name for k in program.kernels], source.name)
    kernel = next((k for k in program.kernels if k.name == chosen), None)
    if kernel is None:
        hint = did_you_mean(chosen, [k.name for k in program.kernels])
        raise LaunchError(f"{source.name} has no kernel {chosen}; {hint}".rstrip("; "))
    return kernel


def check_names(
    kernel: Kernel, sizes: Mapping[str, int], given: Mapping[str, str], ir: Any
) -> None:
    """Refuse sizes and inputs that the kernel has not."""
    extents = (e for t in trial.array_parameters(ir).values() for e in t.shape)
    dims = {e for e in extents if isinstance(e, str)}
    parameters = [a.name for a in ir.body.args]
    for what, word, known in (("size", sizes, dims), ("parameter", given, parameters)):
        for name, value in word.items():
            if name in known:
                continue
            hint = did_you_mean(name, known)
            if name in kernel.comptime:
                hint = f"it is bound when the kernel is compiled: `-D {name}={value}`"
            hint = hint or (f"there are {', '.join(sorted(known))}" if known else "it has none")
            raise LaunchError(f"{ir.name} has no {what} `{name}`; {hint}")


def _check_choices(kernel: Kernel, call: Call) -> None:
    """Refuse pinned choices that the compiler refuses, wherever the kernel is to run.

    What a program asks for beyond its choices is another matter: the interpreter may have it.
    """
    module = replace(call.module, kernels=[fresh(call.module, kernel.name)])
    prepare(module, facts_for(call.views, call.dims), kernel.schedule)
    if not module.kernels[0].schedule:
        return
    try:
        run_passes(module, by_name("90"), stop_after=SIZES_SETTLED_BY)
    except DiagnosticError as error:
        if isinstance(error.__cause__, BadChoices):
            raise


def _compile(kernel: Kernel, call: Call, folder: Path, target: Target) -> Path:
    """Compile for these arguments, leaving every step in the folder; the path of the PTX."""
    from tilec.dump import Dump

    with Dump(folder) as dump:
        return dump.finish(kernel.compile(call, target, dump=dump))


def _title(kernel: Kernel, inputs: trial.Inputs, ir: Any, found: trial.Trial) -> str:
    shown = [
        f"{name}: {t.dtype}[{', '.join(map(str, shape_of(t.dtype, inputs.arrays[name])))}]"
        for name, t in trial.array_parameters(ir).items()
    ]
    sizes = f", {_sizes(found.sizes)}" if found.sizes else ""
    return f"{kernel.name}({', '.join(shown)}) on {found.where}{sizes}"


def _sizes(sizes: Mapping[str, int]) -> str:
    return "tiles " + " ".join(f"{n.removeprefix('$')}={s}" for n, s in sizes.items())


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
