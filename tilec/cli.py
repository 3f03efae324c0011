"""The command line: ``tilec compile | opt | run | emulate | check | fmt | layout | passes ...``.

Every error is a rendered diagnostic on stderr and exit code 1 (2 for a command line that makes no
sense); a traceback means a bug of tilec. Standard output holds only what was asked for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from tilec import pipeline
from tilec.cli_explain import explain
from tilec.cli_fmt import fmt
from tilec.cli_options import (
    check_folder,
    pairs,
    read_facts,
    read_schedule,
    read_sizes,
    read_target,
)
from tilec.cli_report import read_report, with_report
from tilec.diagnostics import Diagnostic, DiagnosticError, did_you_mean, render, render_json
from tilec.ir.core import Module
from tilec.source import SourceFile
from tilec.targets import TARGETS, by_name
from tilec.targets.base import Target

EMITTED = ("tile", "cta", "ptx", "cubin", "sass")
_LAST_OF = {"tile": "apply-tiles", "cta": "place-shared"}

F = TypeVar("F", bound=Callable[..., Any])


class Commands(click.Group):
    """The group of commands: errors become diagnostics, and near misses get a suggestion."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run a command line; exits with the code unless ``standalone_mode`` is off."""
        code = 0
        try:
            result = super().main(args, standalone_mode=False, **extra)
            code = result if isinstance(result, int) else 0
        except click.Abort:
            code = 130
        except click.ClickException as error:
            _say([Diagnostic("command-line", error.format_message())])
            code = 2
        except DiagnosticError as error:
            _say(error.diagnostics)
            code = 1
        except MemoryError as error:
            found = Diagnostic("out-of-memory", str(error) or "this machine has not enough memory")
            _say([found])
            code = 1
        except OSError as error:
            where = f"{error.filename}: " if error.filename is not None else ""
            _say([Diagnostic(_code_of(error), f"{where}{error.strerror or error}")])
            code = 1
        except _expected() as error:
            # A child's traceback says nothing to the author of a kernel.
            said = str(error).removesuffix(getattr(error, "output", "")).rstrip()
            _say([Diagnostic(_code_of(error), said)])
            code = 1
        if standalone_mode:
            sys.exit(code)
        return code

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one may have been meant."""
        if args and self.get_command(ctx, args[0]) is None:
            hint = did_you_mean(args[0], self.list_commands(ctx))
            known = f"there are {', '.join(self.list_commands(ctx))}"
            ctx.fail(f"there is no command `{args[0]}`; {hint or known}")
        return super().resolve_command(ctx, args)


def _expected() -> tuple[type[Exception], ...]:
    """Errors that speak to the user; their modules are imported only if something went wrong."""
    from tilec.backend_ptx.assemble import AssemblyError, ToolMissing
    from tilec.backend_ptx.module import CudaError
    from tilec.interp.memory import InterpretError
    from tilec.layout.linear import LayoutError
    from tilec.runtime.arrays import ArrayError
    from tilec.runtime.supervise import SupervisedError

    return (
        AssemblyError, ToolMissing, CudaError, InterpretError, LayoutError, ArrayError,
        SupervisedError, UnicodeDecodeError,
    )  # fmt: skip


def _code_of(error: Exception) -> str:
    """``CudaError`` is reported as ``cuda``."""
    words = type(error).__name__.removesuffix("Error")
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in words).lstrip("-")


def _say(diagnostics: Sequence[Diagnostic]) -> None:
    click.echo(render(diagnostics, color=sys.stderr.isatty()), err=True)


class _PrintAfter:
    """Prints the module after some passes, and passes every step on to a dump folder."""

    def __init__(self, names: Sequence[str], dump: Any) -> None:
        self.names, self.dump = names, dump

    def before(self, name: str, module: Module) -> None:
        """Tell the dump."""
        if self.dump is not None:
            self.dump.before(name, module)

    def after(self, name: str, module: Module) -> None:
        """Tell the dump, and print."""
        if self.dump is not None:
            self.dump.after(name, module)
        if name in self.names:
            from tilec.ir.printer import module_text

            click.echo(f"// after {name}\n{module_text(module)}")


def _common(function: F) -> F:
    """The options of commands that compile."""
    options = [
        click.option("-D", "bindings", multiple=True, metavar="NAME=VALUE",
                     help="Bind compile-time parameters."),
        click.option("--kernel", metavar="NAME", help="Which kernel of the file."),
        click.option("--schedule", "schedule", multiple=True, metavar="KEY=VALUE,...",
                     help="Pin choices: stages=3,tiles.i=128,registers=24:240."),
        click.option("--dump", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
                     help="Write every step there."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OTHER_FILES = {
    ".ptx": "PTX, the last result; what leads to it is edited in the `.tir` files of `--dump`",
    ".cubin": "machine code; what leads to it is edited in the `.tir` files of `--dump`",
    ".tk": "a source; `tilec compile` starts from it",
    ".tir": "a dump; `tilec opt` goes on from it",
    ".diff": "the change between two dumps; the dump beside it ends in `.tir`",
}


def _takes(command: str, file: Path, *suffixes: str) -> None:
    """Refuse a file that is known to be something else than a command reads."""
    what = _OTHER_FILES.get(file.suffix)
    if what is not None and file.suffix not in suffixes:
        wanted = " and ".join(suffixes)
        raise click.UsageError(f"`tilec {command}` takes {wanted} files; {file.name} is {what}")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tilec", prog_name="tilec")
def main() -> None:
    """Compile kernels on tiles to PTX; every step is a readable file."""


# --- compile and opt ------------------------------------------------------------------------------


def _through(
    module: Module,
    target: Target,
    emit: str,
    output: Path | None,
    dump_folder: Path | None,
    start: str,
    *,
    print_after: Sequence[str] = (),
    stop_after: str | None = None,
    start_after: str | None = None,
    only: tuple[str, ...] | None = None,
) -> None:
    """Take a module to what is to be emitted, and write it."""
    from contextlib import nullcontext

    from tilec.compiler import emit_module, run_passes
    from tilec.dump import Dump
    from tilec.ir.printer import module_text

    for name in (*print_after, *filter(None, (stop_after, start_after)), *(only or ())):
        if name not in pipeline.PIPELINE:
            hint = did_you_mean(name, pipeline.PIPELINE) or "`tilec passes` lists them"
            raise click.UsageError(f"there is no pass `{name}`; {hint}")
    stop = stop_after or _LAST_OF.get(emit)
    dump = Dump(dump_folder) if dump_folder is not None else None
    if dump is not None:
        dump.start(module, start)
    watch = _PrintAfter(print_after, dump)
    with dump if dump is not None else nullcontext():
        remarks = run_passes(
            module, target, dump=watch, stop_after=stop, start_after=start_after, only=only
        )
    if module.level != "ptx" or stop is not None or only is not None:
        _write(module_text(module), output)
        if dump is not None:
            dump.finish_early(remarks)
        return
    compiled = emit_module(module, remarks)
    if dump is not None:
        dump.finish(compiled)
    if emit == "ptx":
        _write(compiled.ptx, output)
        return
    from tilec.backend_ptx.assemble import assemble, disassemble
    from tilec.runtime.findings import findings

    assembled = assemble(compiled.ptx, compiled.target)
    found = findings(compiled, assembled.notes)
    if found:
        _say(found)
    if emit == "sass":
        _write(disassemble(assembled.cubin), output)
    else:
        (output or Path(f"{compiled.name}.cubin")).write_bytes(assembled.cubin)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
    else:
        output.write_text(text, encoding="utf-8", newline="\n")


@main.command("compile")
@click.argument("file", type=_FILE)
@click.argument("more", nargs=-1, metavar="[NAME=VALUE]...")
@_common
@click.option("--sm", "target", default="90", show_default=True, help="The target.")
@click.option("-o", "output", type=click.Path(dir_okay=False, path_type=Path), help="Output file.")
@click.option("--emit", type=click.Choice(EMITTED), default="ptx", show_default=True)
@click.option("--print-after", multiple=True, metavar="PASS", help="Print the IR after a pass.")
@click.option("--stop-after", metavar="PASS", help="Stop after a pass and write the IR.")
@click.option("--shape", multiple=True, metavar="M=..,N=..", help="Sizes that calls will have.")
@click.option(
    "--array",
    "arrays",
    multiple=True,
    metavar="NAME=AXIS[:ALIGNMENT]",
    help="The contiguous axis of an array (-1: none) and its alignment in bytes.",
)
def compile_command(
    file: Path, more: tuple[str, ...], bindings: tuple[str, ...], kernel: str | None,
    schedule: tuple[str, ...], dump: Path | None, target: str, output: Path | None, emit: str,
    print_after: tuple[str, ...], stop_after: str | None, shape: tuple[str, ...],
    arrays: tuple[str, ...],
) -> None:  # fmt: skip
    """Compile a kernel of a .tk FILE (or go on from a .tir FILE) to PTX or an earlier level."""
    from tilec.compiler import DEFAULT_WHOLE_EXTENT, front, prepare, read_module, whole_dims

    _takes("compile", file, ".tk", ".tir")
    check_folder(output, dump)
    chosen, source = read_schedule(schedule), SourceFile.read(file)
    if file.suffix == ".tir":
        module, start = read_module(source), "input"
        wanted = by_name(module.target)
    else:
        wanted, start = read_target(target), "lower"
        bound = pairs((*bindings, *more), "a compile-time parameter")
        module = front(source, kernel, bound, wanted)
    sizes = read_sizes(shape)
    for dim in whole_dims(module.kernels[0]):
        if dim not in sizes and "extents" not in module.kernels[0].attributes:
            assumed = f"{dim} is taken to be at most {DEFAULT_WHOLE_EXTENT}"
            _say([Diagnostic("assumed-size", assumed, help=f"give --shape {dim}=...",
                             severity="remark")])  # fmt: skip
    prepare(module, read_facts(module, sizes, arrays), chosen)
    _through(module, wanted, emit, output, dump, start,
             print_after=print_after, stop_after=stop_after)  # fmt: skip


@main.command()
@click.argument("file", type=_FILE)
@click.option("--passes", metavar="NAME,...", help="Run these passes only, and write the IR.")
@click.option(
    "--start-after", metavar="PASS", help="Go on after this pass, not where the text says."
)
@click.option("--stop-after", metavar="PASS", help="Stop after a pass and write the IR.")
@click.option("--print-after", multiple=True, metavar="PASS", help="Print the IR after a pass.")
@click.option("--schedule", multiple=True, metavar="KEY=VALUE,...", help="Pin choices.")
@click.option("--emit", type=click.Choice(EMITTED), default="ptx", show_default=True)
@click.option("-o", "output", type=click.Path(dir_okay=False, path_type=Path), help="Output file.")
@click.option("--dump", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER")
def opt(
    file: Path, passes: str | None, start_after: str | None, stop_after: str | None,
    print_after: tuple[str, ...], schedule: tuple[str, ...], emit: str, output: Path | None,
    dump: Path | None,
) -> None:  # fmt: skip
    """Go on from a .tir FILE, edited or not: to the end, or through named passes."""
    from tilec.compiler import prepare, read_module

    _takes("opt", file, ".tir")
    check_folder(output, dump)
    module = read_module(SourceFile.read(file))
    if schedule:
        prepare(module, None, read_schedule(schedule))
    only = tuple(passes.split(",")) if passes is not None else None
    _through(module, by_name(module.target), emit, output, dump, "input", print_after=print_after,
             stop_after=stop_after, start_after=start_after, only=only)  # fmt: skip


_SEED = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True,
    help="Of random inputs, and of the order `random`.",
)  # fmt: skip
_ORDER = click.option(
    "--order", type=click.Choice(("in order", "random", "late", "early")), default="in order",
    show_default=True, help="In which of the legal orders the emulator does things.",
)  # fmt: skip
_ADVICE = click.option(
    "--advice", is_flag=True, help="Tell of bank conflicts and uncoalesced accesses as well."
)


# --- run ------------------------------------------------------------------------------------------


@main.command()
@click.argument("file", type=_FILE)
@click.argument("more", nargs=-1, metavar="[NAME=VALUE]...")
@_common
@click.option("--shape", multiple=True, metavar="M=..,N=..", help="Sizes of the arrays.")
@click.option(
    "--on",
    "where",
    type=click.Choice(("auto", "interp", "cta", "emulator", "gpu")),
    default="auto",
    show_default=True,
    help="A GPU if there is one, else the interpreter.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE|NUMBER",
    help="A .npy or .npz file (FILE:member) for an array, a number for a scalar.",
)
@_SEED
@_ORDER
@_ADVICE
@with_report
@click.option(
    "--sm",
    "target",
    metavar="TARGET",
    help="What to compile for where no GPU runs it; sm_90 if not given.",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.npz",
    help="Keep the outputs.",
)
def run(
    file: Path, more: tuple[str, ...], bindings: tuple[str, ...], kernel: str | None,
    schedule: tuple[str, ...], dump: Path | None, shape: tuple[str, ...], where: str,
    inputs: tuple[str, ...], seed: int, order: str, advice: bool, target: str | None,
    save: Path | None, report: str | None, timeline: str | None,
) -> None:  # fmt: skip
    """Run a kernel of a .tk FILE and compare the result with a reference."""
    from tilec.cli_run import run_kernel

    _takes("run", file, ".tk")
    check_folder(save, dump)
    if where != "emulator" and (advice or order != "in order"):
        raise click.UsageError("--order and --advice go with `--on emulator`")
    asked = read_report(report, timeline, dump)
    if where != "emulator" and asked:
        raise click.UsageError("--report and --timeline go with `--on emulator`")
    if where not in ("cta", "emulator") and target is not None:
        raise click.UsageError("--sm goes with `--on emulator` and `--on cta`")
    wanted = read_target(target) if target is not None else None
    on: Any = where
    if where == "emulator":
        from tilec.runtime.emulated import Emulator

        on = Emulator(order, seed, advise=advice)
    bound = pairs((*bindings, *more), "a compile-time parameter")
    ok = run_kernel(
        SourceFile.read(file), kernel, bound, read_schedule(schedule), read_sizes(shape),
        pairs(inputs, "an input"), on, seed, dump, save, wanted, asked,
    )  # fmt: skip
    if not ok:
        sys.exit(1)


@main.command()
@click.argument("file", type=_FILE)
@click.argument("more", nargs=-1, metavar="[NAME=VALUE]...")
@_common
@click.option("--shape", multiple=True, metavar="M=..,N=..", help="Sizes of the arrays.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE|NUMBER",
    help="A .npy or .npz file (FILE:member) for an array, a number for a scalar.",
)
@click.option(
    "--inputs",
    "archive",
    type=_FILE,
    metavar="FILE.npz",
    help="Arrays by the names of parameters.",
)
@_SEED
@_ORDER
@click.option("--sm", "target", default="90", show_default=True, help="The target.")
def bisect(
    file: Path, more: tuple[str, ...], bindings: tuple[str, ...], kernel: str | None,
    schedule: tuple[str, ...], dump: Path | None, shape: tuple[str, ...],
    inputs: tuple[str, ...], archive: Path | None, seed: int, order: str, target: str,
) -> None:  # fmt: skip
    """Name the first pass after which a kernel of a .tk FILE means something else."""
    from tilec.cli_bisect import bisect_kernel
    from tilec.runtime.emulated import Emulator

    _takes("bisect", file, ".tk")
    bound = pairs((*bindings, *more), "a compile-time parameter")
    ok = bisect_kernel(
        SourceFile.read(file), kernel, bound, read_schedule(schedule), read_sizes(shape),
        pairs(inputs, "an input"), archive, seed, dump, read_target(target),
        Emulator(order, seed),
    )  # fmt: skip
    if not ok:
        sys.exit(1)


@main.command()
@click.argument("file", type=_FILE)
@click.option("--kernel", metavar="NAME", help="Which kernel of the file.")
@click.option("--grid", required=True, metavar="X[xYxZ]", help="CTAs.")
@click.option(
    "--block", metavar="X[xYxZ]", help="Threads of a CTA; what the text says if not given."
)
@click.option(
    "--shared", type=click.IntRange(min=0), default=0, help="Dynamic shared memory, bytes."
)
@click.option("--array", "arrays", multiple=True, metavar="NAME=...", help="An array, for maps.")
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="ARRAY|NUMBER|map:...",
    help="A parameter, in their order.",
)
@_SEED
@_ORDER
@_ADVICE
@with_report
@click.option("--limit", type=click.IntRange(min=1), help="Instructions to run at most.")
@click.option("--json", "as_json", is_flag=True, help="Findings as JSON on standard output.")
@click.option(
    "-o",
    "output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.npz",
    help="Keep all arrays.",
)
def emulate(
    file: Path, kernel: str | None, grid: str, block: str | None, shared: int,
    arrays: tuple[str, ...], arguments: tuple[str, ...], seed: int, order: str, advice: bool,
    limit: int | None, as_json: bool, output: Path | None, report: str | None,
    timeline: str | None,
) -> None:  # fmt: skip
    """Run a PTX FILE on the emulator and say what is wrong with it."""
    from tilec.cli_emulate import emulate_text
    from tilec.emulator.schedule import Choice

    _takes("emulate", file, ".ptx")
    check_folder(output)
    asked = read_report(report, timeline)
    if as_json and asked.text:
        raise click.UsageError(
            "--json and --report both write to standard output; give --report FILE.json"
        )
    fine = emulate_text(
        SourceFile.read(file), kernel, arrays, arguments, grid, block, shared,
        Choice(order, seed), limit, advice, as_json, output, asked,
    )  # fmt: skip
    if not fine:
        sys.exit(1)


# --- questions ------------------------------------------------------------------------------------


@main.command()
@click.argument("files", type=_FILE, nargs=-1, required=True)
@click.option("-D", "bindings", multiple=True, metavar="NAME=VALUE")
@click.option("--json", "as_json", is_flag=True, help="Diagnostics as JSON on standard output.")
def check(files: tuple[Path, ...], bindings: tuple[str, ...], as_json: bool) -> None:
    """Say what is wrong in .tk FILES, and nothing else."""
    from tilec.frontend.check import check as check_module
    from tilec.frontend.parse import parse

    found: list[Diagnostic] = []
    for file in files:
        _takes("check", file, ".tk")
        try:
            checked = check_module(parse(SourceFile.read(file)), pairs(bindings, "a parameter"))
        except DiagnosticError as error:
            found.extend(error.diagnostics)
            continue
        if not as_json:
            names = ", ".join(k.name for k in checked.kernels)
            click.echo(f"{file}: {names or 'no kernel'}")
    if as_json:
        click.echo(render_json(found))
    elif found:
        raise DiagnosticError(found)
    if found:
        sys.exit(1)


@main.command()
@click.argument("text")
@click.option("--bits", default=16, show_default=True, help="Bits of an element.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw to a file.")
def layout(text: str, bits: int, svg: Path | None) -> None:
    """Draw a layout, such as '(reg: j1 i8 | lane: j2 j4 i1 i2 i4)'."""
    from tilec.layout.draw import draw_svg, draw_text
    from tilec.layout.linear import Layout

    check_folder(svg)
    try:
        parsed = Layout.parse(text)
    except ValueError as error:
        raise DiagnosticError(Diagnostic("bad-layout", str(error))) from None
    if svg is not None:
        svg.write_text(draw_svg(parsed, bits), encoding="utf-8")
    else:
        click.echo(draw_text(parsed, bits))


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


@main.command()
def passes() -> None:
    """The pipeline, a sentence a pass."""
    _table("", ("pass", "level", "what it ensures"), pipeline.describe())


@main.command()
@click.option("--json", "as_json", is_flag=True)
def targets(as_json: bool) -> None:
    """The GPUs that can be compiled for."""
    if as_json:
        facts = {name: asdict(target) for name, target in TARGETS.items()}
        click.echo(json.dumps(facts, indent=1))
        return
    rows = [
        (t.name, str(t.sms), f"{t.shared_per_cta // 1024} KB", "yes" if t.has_wgmma else "no")
        for t in TARGETS.values()
    ]
    _table("", ("target", "SMs", "shared memory a CTA", "wgmma"), rows)


main.add_command(explain)
main.add_command(fmt)


if __name__ == "__main__":
    main()
