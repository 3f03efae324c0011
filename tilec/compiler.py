"""From a program to PTX: one kernel, for one target, under given promises and choices.

A kernel is one launch or several in a row; a compilation lists them, and the workspace that its
launcher makes for the time between the first and the last.

A compilation starts from ``.tk`` text or from a module at any level (a dump that was parsed), and
both end in the same bytes, because the module carries all that decides them. Failures that the
kernel's author can act on leave as ``DiagnosticError``; anything else is a bug and stays visible as
what it is.

Nothing here touches a file or a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec import pipeline
from tilec.diagnostics import Diagnostic, DiagnosticError, require_utf8
from tilec.ir.core import Kernel, Module
from tilec.ir.declare import Refused
from tilec.ir.facts import ArrayFacts, Facts, Remark, Schedule
from tilec.ir.levels import tile
from tilec.ir.types import Array, DType, Scalar
from tilec.ir.verify import VerifyError, verify
from tilec.passes.base import Context
from tilec.passes.check_schedule import BadChoice, BadChoices, shape_faults, shown_value
from tilec.passes.refusal import InnerRefusal
from tilec.passes.split_launches import handed_out
from tilec.source import SourceFile, Span
from tilec.targets.base import Target


@dataclass(frozen=True)
class Entry:
    """One launch: an entry of the PTX, and what it is launched with."""

    name: str
    parameters: tuple[Any, ...]
    """Kernel parameters in order; see ``runtime.parameters`` for the kinds."""
    grid: Any
    """Number of CTAs, as an expression over extents."""
    threads: int
    shared_bytes: int
    schedule: Schedule


@dataclass(frozen=True)
class Workspace:
    """An array that the launcher makes for one call: extents as expressions over the arguments."""

    name: str
    dtype: DType
    extents: tuple[Any, ...]


@dataclass(frozen=True)
class Compiled:
    """The PTX of a kernel and what a launcher must know about it."""

    name: str
    ptx: str
    arrays: tuple[tuple[str, Array], ...]
    scalars: tuple[tuple[str, Scalar], ...]
    launches: tuple[Entry, ...]
    """In the order in which they run."""
    workspace: tuple[Workspace, ...]
    requirements: tuple[Any, ...]
    """Pairs of source line and condition that a launch must meet."""
    target: str
    facts: Facts
    remarks: tuple[Remark, ...]
    module: Module
    """The last level."""

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Parameters of the first launch."""
        return self.launches[0].parameters

    @property
    def grid(self) -> Any:
        """Number of CTAs of the first launch."""
        return self.launches[0].grid

    @property
    def threads(self) -> int:
        """Threads of a CTA of the first launch."""
        return self.launches[0].threads

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of the first launch."""
        return self.launches[0].shared_bytes

    @property
    def schedule(self) -> Schedule:
        """Choices of the first launch."""
        return self.launches[0].schedule


def front(
    source: SourceFile, kernel: str | None, bindings: Mapping[str, object], target: Target
) -> Module:
    """The ``tile`` level module of one kernel of a ``.tk`` text.

    Without a name the text must have just one kernel.
    """
    from tilec.frontend.check import check
    from tilec.frontend.lower import lower
    from tilec.frontend.parse import parse

    tree = parse(source)
    name = kernel or only_kernel([k.name for k in tree.kernels], source.name)
    return lower(check(tree, dict(bindings), name), name, target.name)


def only_kernel(names: list[str], where: str) -> str:
    """The single name, or a diagnostic that lists what there is to choose from."""
    names = list(dict.fromkeys(names))  # that one name is there twice is said by the checker
    if len(names) == 1:
        return names[0]
    found = f"there are {', '.join(names)}" if names else "there is none"
    raise DiagnosticError(
        Diagnostic("which-kernel", f"{where} does not have just one kernel: {found}")
    )


DEFAULT_WHOLE_EXTENT = 4096
"""The bound on an axis that ``:`` takes whole, where compiling without arrays gives none."""


def whole_dims(kernel: Kernel) -> list[str]:
    """Names of the sizes known at launch only of which a program holds all at once."""
    found: dict[str, None] = {}
    for op in kernel.body.walk():
        if isinstance(op, tile.Whole) and isinstance(op.size, str):
            found[str(op.array.type.shape[op.axis])] = None
    return list(found)


def default_facts(kernel: Kernel) -> Facts:
    """Facts for compiling without arrays at hand: row-major, aligned for every copy, and rows of
    ``DEFAULT_WHOLE_EXTENT`` where a program holds whole ones.
    """
    arrays = tuple(
        (p.name, ArrayFacts(len(p.type.shape) - 1, 16))
        for p in kernel.body.args
        if isinstance(p.type, Array) and p.type.shape and p.name not in _workspace_names(kernel)
    )
    return Facts(arrays, tuple((dim, DEFAULT_WHOLE_EXTENT) for dim in whole_dims(kernel)))


def _workspace_names(kernel: Kernel) -> set[str]:
    return {str(name) for name, *_ in kernel.attributes.get("workspace", ())}


def prepare(module: Module, facts: Facts | None, schedule: Schedule) -> Module:
    """Write promises and pinned choices into a module's kernels; given ones win over the text's."""
    launches = all("launch" in kernel.attributes for kernel in module.kernels)
    parts = handed_out(module.kernels, schedule) if launches else [schedule] * len(module.kernels)
    for kernel, schedule in zip(module.kernels, parts, strict=True):
        if facts is not None:
            pipeline.record_facts(kernel, facts)
        elif "arrays" not in kernel.attributes and module.level == "tile":
            pipeline.record_facts(kernel, default_facts(kernel))
        asked = schedule.as_attributes()
        faults = [*shape_faults(asked), *shape_faults(kernel.schedule)]
        if faults:
            raise DiagnosticError(_bad_choice(fault, module) for fault in faults)
        before = pipeline.recorded_schedule(kernel)
        merged = before.merged(schedule)
        late = [
            name
            for name in asked
            if getattr(merged, name) != getattr(before, name) and _is_made(module, kernel, name)
        ]
        if late:
            raise DiagnosticError(_late_choice(name, asked[name], kernel) for name in late)
        kernel.schedule = merged.as_attributes()
    return module


_MADE_BY = {
    "tiles": "apply-tiles",
    "registers": "split-roles",
    "splits": "split-loops",
    "checks": "drop-checks",
    "repacks": "repack-operands",
}
"""The pass that reads a choice last, where it is not ``form-ctas``."""


def _is_made(module: Module, kernel: Kernel, choice: str) -> bool:
    """Whether the pass that reads a choice has run, so that a pin would change nothing."""
    reader = _MADE_BY.get(choice, "form-ctas")
    done = kernel.attributes.get("after")
    if done is None:
        return module.level != "tile"
    return pipeline.position(str(done)) >= pipeline.position(reader)


def _late_choice(choice: str, value: object, kernel: Kernel) -> Diagnostic:
    reader = _MADE_BY.get(choice, "form-ctas")
    return Diagnostic(
        "choice-is-made",
        f"{choice} = {shown_value(value)} comes too late: this text is from after {reader}",
        help=f"pin it in a text from before {reader}, such as the dump of choose-tiles",
    )


def compile_source(
    source: SourceFile,
    kernel: str | None,
    bindings: Mapping[str, object],
    target: Target,
    facts: Facts | None = None,
    schedule: Schedule | None = None,
    dump: pipeline.Observer | None = None,
) -> Compiled:
    """Compile one kernel of a ``.tk`` text."""
    module = front(source, kernel, bindings, target)
    prepare(module, facts, schedule or Schedule())
    return compile_module(module, target, dump=dump)


def compile_module(
    module: Module,
    target: Target,
    *,
    dump: pipeline.Observer | None = None,
    start_after: str | None = None,
) -> Compiled:
    """Take a module, in place, through the passes that remain, and emit PTX."""
    remarks = run_passes(module, target, dump=dump, start_after=start_after)
    return emit_module(module, remarks)


def read_module(text: SourceFile) -> Module:
    """A module from the text of a dump; what is wrong in it is reported on its own lines."""
    from tilec.ir.parser import IRSyntaxError, parse_module

    require_utf8(text)
    try:
        module = parse_module(text.text)
    except IRSyntaxError as error:
        start = text.line_starts[min(error.line, len(text.line_starts)) - 1] + error.column - 1
        message = str(error).split(": ", 1)[-1]
        raise DiagnosticError(
            Diagnostic("ir-syntax", message, [(Span(text, start, start + 1), "found here")])
        ) from None
    choices = [fault for kernel in module.kernels for fault in shape_faults(kernel.schedule)]
    if choices:
        line = next(n for n, t in enumerate(text.text.splitlines(), 1) if "schedule" in t)
        labels = [(line_span(text, line), "in this schedule")]
        raise DiagnosticError(
            Diagnostic(fault.code, fault.message, labels, fault.notes, fault.help)
            for fault in choices
        )
    try:
        verify(module)
    except VerifyError as error:
        raise DiagnosticError(_faults(error, module, text)) from error
    return module


def run_passes(
    module: Module,
    target: Target,
    *,
    dump: pipeline.Observer | None = None,
    stop_after: str | None = None,
    start_after: str | None = None,
    only: tuple[str, ...] | None = None,
) -> list[Remark]:
    """Run passes on a module, in place; refusals and faults become diagnostics."""
    ctx = Context(target)
    try:
        verify(module)
        pipeline.run(
            module, ctx, dump=dump, stop_after=stop_after, start_after=start_after, only=only
        )
    except BadChoices as bad:
        raise DiagnosticError(_bad_choice(f, module) for f in bad.faults) from bad
    except Refused as refusal:
        raise DiagnosticError(_refusal(refusal, module, ctx.current)) from refusal
    except VerifyError as error:
        raise DiagnosticError(_faults(error, module)) from error
    except pipeline.UnknownPass as error:
        raise DiagnosticError(Diagnostic("unknown-pass", str(error))) from None
    return ctx.remarks


def emit_module(module: Module, remarks: list[Remark]) -> Compiled:
    """PTX of a module at level ``ptx`` that has one kernel, or all launches of one."""
    from tilec.backend_ptx.emit import emit

    name, kernels = launches_of(module)
    first = kernels[0]
    made = {str(n): Workspace(str(n), dtype, extents) for n, dtype, extents in _workspace(kernels)}
    arguments = [a for a in first.body.args if a.name not in made]
    return Compiled(
        name=name,
        ptx=emit(module),
        arrays=tuple((a.name, a.type) for a in arguments if isinstance(a.type, Array)),
        scalars=tuple((a.name, a.type) for a in arguments if isinstance(a.type, Scalar)),
        launches=tuple(_entry(kernel) for kernel in kernels),
        workspace=tuple(made.values()),
        requirements=tuple(first.attributes.get("requirements", ())),
        target=module.target,
        facts=pipeline.recorded_facts(first),
        remarks=tuple(remarks),
        module=module,
    )


def _entry(kernel: Kernel) -> Entry:
    attributes = kernel.attributes
    return Entry(
        kernel.name,
        tuple(attributes.get("parameters", ())),
        attributes.get("grid", 1),
        int(attributes.get("threads", 0)),
        int(attributes.get("shared_bytes", 0)),
        pipeline.recorded_schedule(kernel),
    )


def _workspace(kernels: Sequence[Kernel]) -> list[tuple[Any, DType, tuple[Any, ...]]]:
    """What each kernel says of workspace; two that name the same must mean the same."""
    found: dict[str, tuple[Any, DType, tuple[Any, ...]]] = {}
    for kernel in kernels:
        for item in kernel.attributes.get("workspace", ()):
            known = found.setdefault(str(item[0]), item)
            if known != item:
                raise DiagnosticError(
                    Diagnostic(
                        "invalid-ir",
                        f"{kernel.name} has other workspace called {item[0]} than the launches "
                        "before it",
                    )
                )
    return list(found.values())


def launches_of(module: Module) -> tuple[str, list[Kernel]]:
    """The name of a module's kernel, and its launches in order; a diagnostic if there are more."""
    kernels = module.kernels
    parts = [kernel.attributes.get("launch") for kernel in kernels]
    name = str(parts[0][0]) if parts and parts[0] else ""
    if [p and (str(p[0]), *p[1:]) for p in parts] == [
        (name, number, len(parts)) for number in range(1, len(parts) + 1)
    ]:
        return name, list(kernels)
    if any(parts):
        said = ", ".join(f"{p[1]} of {p[2]} of {p[0]}" if p else "none" for p in parts)
        raise DiagnosticError(
            Diagnostic("which-kernel", f"these are not all launches of one kernel: {said}")
        )
    name = only_kernel([k.name for k in kernels], "this module")
    return name, [module.kernel(name)]


# --- what went wrong, for people ------------------------------------------------------------------

_LINE = re.compile(r"^line (\d+): ")


def line_span(source: SourceFile, line: int) -> Span:
    """The text of a whole line, without its indentation."""
    text = source.line(line)
    start = source.line_starts[line - 1] + len(text) - len(text.lstrip())
    return Span(source, start, source.line_starts[line - 1] + len(text.rstrip()))


def _op_span(source: SourceFile, line: int, name: str) -> Span:
    """The name of an op in its line of a dump; the line, if it does not stand there."""
    at = re.search(rf"(?<![\w.]){re.escape(name)}(?=\()", source.line(line))
    if at is None:
        return line_span(source, line)
    start = source.line_starts[line - 1] + at.start()
    return Span(source, start, start + len(name))


def at_line(module: Module, line: int, note: str) -> list[tuple[Span, str]]:
    """A label on a source line of the module, if the module knows its source."""
    if module.source is None or not 0 < line <= len(module.source.line_starts):
        return []
    return [(line_span(module.source, line), note)]


def _bad_choice(fault: BadChoice, module: Module) -> Diagnostic:
    line = fault.op.loc.line if fault.op is not None and fault.op.loc is not None else 0
    labels = at_line(module, line, f"this asks for {fault.found}" if line else "")
    return Diagnostic(fault.code, fault.message, labels, fault.notes, fault.help)


def _refusal(refusal: Refused, module: Module, running: str) -> Diagnostic:
    text = str(refusal)
    found = _LINE.match(text)
    labels = at_line(module, int(found[1]), "asked for here") if found else []
    message = text[found.end() :] if found and labels else text
    notes = [f"the pass {running} declined"]
    if isinstance(refusal, InnerRefusal) and labels:
        message, notes = refusal.reason, [f"the pass {running} declined, at {refusal.path[-1]}"]
    if isinstance(refusal, InnerRefusal) and len(refusal.path) > 1:
        notes.append(f"within {', '.join(reversed(refusal.path[:-1]))}")
    return Diagnostic("refused", message, labels, notes, refusal.help)


def _lines_in(text: SourceFile, module: Module) -> dict[int, int]:
    """The line of each op in a text that was parsed into the module, keyed by ``id(op)``."""
    lines = [line.split("//", 1)[0] for line in text.text.splitlines()]
    found: dict[int, int] = {}
    at = 0
    for kernel in module.kernels:
        for op in kernel.body.walk():
            while at < len(lines) and not re.search(rf"(^|[\s=]){re.escape(op.name)}\(", lines[at]):
                at += 1
            at += 1
            found[id(op)] = at
    return found


def _faults(error: VerifyError, module: Module, text: SourceFile | None = None) -> list[Diagnostic]:
    """One diagnostic a fault, on its line of the text, or else of what the module prints as."""
    from tilec.ir.printer import module_text, value_lines

    if text is not None:
        lines = _lines_in(text, module)
    else:
        text = SourceFile(f"<{module.level} level>", module_text(module))
        lines = value_lines(module)
    head = str(error).splitlines()[0]
    made = []
    for fault in error.faults:
        line = lines.get(id(fault.op), 0)
        labels = [(_op_span(text, line, fault.op.name), "this op")] if line else []
        source_line = fault.op.loc.line if fault.op.loc is not None else 0
        labels += at_line(module, source_line, "made from this")
        message = f"{fault.op.name}: {fault.message}"
        made.append(Diagnostic("invalid-ir", message, labels, [head]))
    return made
