"""What ``tilec bisect`` does and prints; the comparing is ``runtime.bisect``'s."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from tilec.cli_run import check_names, chosen_kernel
from tilec.ir.facts import Schedule
from tilec.runtime import trial
from tilec.runtime.bisect import Bisection, Step, bisect_inputs
from tilec.runtime.call import check_requirements
from tilec.runtime.emulated import Emulator
from tilec.runtime.kernel import Kernel
from tilec.runtime.specialise import LaunchError
from tilec.source import SourceFile
from tilec.targets.base import Target

_SHOWN = 60
"""Lines of the change that are printed."""


def bisect_kernel(
    source: SourceFile,
    name: str | None,
    bindings: Mapping[str, Any],
    schedule: Schedule,
    sizes: Mapping[str, int],
    given: Mapping[str, str],
    archive: Path | None,
    seed: int,
    dump_folder: Path | None,
    target: Target,
    how: Emulator,
) -> bool:
    """Run, compare, print; whether every pass keeps the meaning."""
    kernel = chosen_kernel(source, name).using(schedule, **bindings)
    ir = kernel.front_end(kernel.bindings, target).kernel(kernel.name)
    known = [argument.name for argument in ir.body.args]
    given = {**(_members(archive, known) if archive is not None else {}), **given}
    check_names(kernel, sizes, given, ir)
    inputs = trial.make_inputs(ir, sizes, given, seed)
    call = kernel.sort_out(trial.views_of(kernel, inputs.arrays), inputs.scalars, target)
    check_requirements(source, call, kernel.name)
    found = _bisected(kernel, inputs, target, how, dump_folder)
    shapes = ", ".join(f"{n}: {list(a.shape)}" for n, a in inputs.arrays.items())
    click.echo(f"{kernel.name}({shapes}), after each pass")
    for step in found.steps:
        click.echo(f"  {step.name:<20} {_verdict(step)}")
    if found.first is None:
        click.echo("every pass keeps the meaning")
        return True
    _show(found.first, dump_folder)
    return False


def _members(archive: Path, known: list[str]) -> dict[str, str]:
    """Each parameter that the archive has an array for."""
    try:
        with np.load(archive) as arrays:
            return {name: f"{archive}:{name}" for name in arrays.files if name in known}
    except (OSError, ValueError, AttributeError) as error:
        raise LaunchError(f"{archive} cannot be read as an .npz file: {error}") from None


def _bisected(
    kernel: Kernel, inputs: trial.Inputs, target: Target, how: Emulator, folder: Path | None
) -> Bisection:
    if folder is None:
        return bisect_inputs(kernel, inputs, target, emulator=how)
    from tilec.dump import Dump

    with Dump(folder) as dump:
        found = bisect_inputs(kernel, inputs, target, emulator=how, dump=dump)
        dump.finish_early([])
    return found


def _verdict(step: Step) -> str:
    if step.verdict == "same":
        executor = {"tile": "interpreter", "cta": "cta interpreter", "ptx": "emulator"}[step.level]
        return f"the same on the {executor}, {step.largest:.3g} apart at most"
    return {
        "unchanged": "changed nothing",
        "differs": "MEANS SOMETHING ELSE",
        "faulty": "CANNOT BE RUN",
        "not run": f"not run: {step.message}",
    }[step.verdict]


def _show(step: Step, folder: Path | None) -> None:
    """The pass that is to blame, the first difference, and what it changed."""
    click.echo(f"{step.name} is the first pass whose output means something else:")
    said = step.message or str(step.difference)
    click.echo("\n".join(f"  {line}" for line in said.splitlines()))
    lines = step.diff().splitlines()
    click.echo("\n".join(lines[:_SHOWN]))
    if folder is not None:
        click.echo(f"the program before and after it, and its change: {folder / 'index.md'}")
    elif len(lines) > _SHOWN:
        click.echo(f"({len(lines) - _SHOWN} more lines: `--dump FOLDER` keeps both programs)")
