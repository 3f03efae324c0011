"""The dump folder: every step of a compilation as files that can be read, edited and resumed.

``NN-pass.tir`` is the module after each pass that changed it, ``NN-pass.diff`` the change;
``index.md`` is the table of contents. The same input gives the same bytes: nothing depends on
time, paths of the machine, or what was in the folder before (older dump files there are removed).
When a pass fails, its input is kept as ``failed-pass.tir`` with the command that fails again.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilec.compiler import Compiled, Workspace
from tilec.diagnostics import DiagnosticError
from tilec.ir.core import Module
from tilec.ir.facts import Remark
from tilec.ir.printer import module_text
from tilec.ir.types import DTYPES
from tilec.layout.linear import Layout

_OURS = re.compile(
    r"(\d\d-.*\.(tir|diff|tk)|failed-.*\.tir|failure\.txt|index\.md|remarks\.jsonl|resources\.txt"
    r"|layouts\.txt|schedule\.json|layout-.*\.svg|.*\.ptx)"
)
_AFTER = re.compile(r"(, )?after = [\w-]+|\{after = [\w-]+\} ")
_DRAWN = (16, 16)


def same_but_for_marks(old: str, new: str) -> bool:
    """Whether two texts of a module differ in nothing but the name of the last pass."""
    return _AFTER.sub("", old) == _AFTER.sub("", new)


class Dump:
    """One folder for one compilation; an ``Observer`` of the pipeline."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.iterdir()):
            if path.is_file() and _OURS.fullmatch(path.name):
                path.unlink()
        self.count = 0
        self.rows: list[tuple[str, str, str]] = []
        self.last: tuple[str, str] | None = None
        self._text = ""
        self._running = ""

    def write(self, name: str, text: str) -> Path:
        """One file of the folder."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8", newline="\n")
        return path

    def start(self, module: Module, what: str) -> None:
        """The module with which the compilation starts, and its source."""
        if module.source is not None:
            stem = re.sub(r"\W", "_", Path(module.source.name).stem)
            self._add(f"00-{stem}.tk", "the source", module.source.text)
        self._text = module_text(module)
        self.last = (f"01-{what}.tir", self._text)
        self._add(self.last[0], f"level {module.level}, as {what} gives it", self._text)
        self.count = 1

    def _add(self, name: str, says: str, text: str, more: str = "") -> None:
        self.write(name, text)
        self.rows.append((name, says, more))

    # The pipeline's observer ------------------------------------------------------------------

    def before(self, name: str, module: Module) -> None:
        """Remember the input, in case the pass fails."""
        self._running = name
        self._text = module_text(module)

    def after(self, name: str, module: Module) -> None:
        """Write the module if the pass changed more than its own mark."""
        self.count += 1
        text = module_text(module)
        self._running, self._text = "", text
        old_name, old = self.last or ("nothing", "")
        if same_but_for_marks(old, text):
            self.rows.append(("", f"`{name}` changed nothing", ""))
            return
        stem = f"{self.count:02d}-{name}"
        lines = difflib.unified_diff(
            old.splitlines(keepends=True), text.splitlines(keepends=True), old_name, f"{stem}.tir"
        )
        self.write(f"{stem}.diff", "".join(lines))
        self._add(f"{stem}.tir", f"level {module.level}, after `{name}`", text, f"{stem}.diff")
        self.last = (f"{stem}.tir", text)

    # The end ------------------------------------------------------------------------------------

    def __enter__(self) -> Dump:
        """Watch a compilation: a pass that fails within the block leaves its input behind."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Keep the input of the pass that failed, and say how to fail again."""
        if error is None or not self._running:
            return
        name = f"failed-{self._running}.tir"
        self.write(name, self._text)
        diagnosed = isinstance(error, DiagnosticError)
        said = str(error) if diagnosed else f"{type(error).__name__}: {error}"
        command = f"tilec opt {name} --passes {self._running}"
        self.write("failure.txt", f"{said}\n\nIn this folder, this fails again:\n{command}\n")
        self.rows.append((name, f"the input on which `{self._running}` failed", ""))
        self._index("", [])

    def finish_early(self, remarks: list[Remark]) -> None:
        """Write the index of a compilation that stopped before PTX."""
        self._layouts()
        self._index("", [_remark(r) for r in remarks])

    def finish(self, compiled: Compiled) -> Path:
        """Write what belongs to the result; returns the path of the PTX."""
        ptx = self.write(f"{compiled.name}.ptx", compiled.ptx)
        remarks = [
            json.dumps(
                {
                    "pass": r.decided_by,
                    "line": r.line,
                    "column": r.column,
                    "text": r.text,
                    "data": r.data,
                },
                default=str,
            )
            for r in compiled.remarks
        ]
        self.write("remarks.jsonl", "".join(f"{line}\n" for line in remarks))
        self.write("schedule.json", f"{json.dumps(_choices(compiled), indent=1)}\n")
        self.write("resources.txt", _resources(compiled))
        self._layouts()
        self._index(compiled.name, [_remark(r) for r in compiled.remarks])
        return ptx

    def _layouts(self) -> None:
        """Draw each layout that a dump names, once, with the first place that names it.

        Which bank an offset lies in depends on the elements, so a layout in shared memory is drawn
        once for each width of the tiles that have it.
        """
        from tilec.layout.draw import draw_svg, draw_text

        found: dict[tuple[str, int], tuple[str, str]] = {}
        for name, _, _ in self.rows:
            if name.endswith(".tir"):
                body = (self.folder / name).read_text(encoding="utf-8")
                for layout_name, line, dtypes in _named_layouts(body):
                    placed = "off:" in line
                    for dtype in dtypes if placed else dtypes[:1]:
                        tiles = f", a tile of {dtype}" if placed else ""
                        place = f"#{layout_name} in {name}{tiles}"
                        key = (line, DTYPES[dtype].bits if placed else 0)
                        found.setdefault(key, (f"layout-{len(found):02d}", place))
        parts = []
        for (line, bits), (name, place) in found.items():
            layout = Layout.parse(line)
            if layout.rank == 0:
                continue
            self.write(f"{name}.svg", draw_svg(layout, bits, limit=_DRAWN))
            parts.append(f"{name}.svg: {place}\n{draw_text(layout, bits, limit=_DRAWN)}\n")
        self.write("layouts.txt", "\n".join(parts))

    def _index(self, kernel: str, remarks: list[str]) -> None:
        lines = ["# What the compiler did", ""]
        lines += ["| file | what it is | change |", "| --- | --- | --- |"]
        for name, says, more in self.rows:
            change = f"[{more}]({more})" if more else ""
            lines.append(f"| {f'[{name}]({name})' if name else ''} | {says} | {change} |")
        if kernel:
            lines += [
                "",
                f"The result is [{kernel}.ptx]({kernel}.ptx); its registers, shared memory and "
                "spills are in [resources.txt](resources.txt), the choices in "
                "[schedule.json](schedule.json), drawings of the layouts in "
                "[layouts.txt](layouts.txt) and `layout-*.svg`. What the passes say about their "
                "choices is below; [remarks.jsonl](remarks.jsonl) has it an object a line for "
                "programs, the numbers of a remark under `data` (boxes of TMA innermost first).",
                "",
                "Any `.tir` file can be edited and taken on from: `tilec opt FILE.tir -o new.ptx`.",
            ]
        if remarks:
            lines += ["", "## Why", "", *(f"- {remark}" for remark in remarks)]
        if (self.folder / "failure.txt").exists():
            lines += ["", "The compilation failed: see [failure.txt](failure.txt)."]
        self.write("index.md", "\n".join(lines) + "\n")


def _named_layouts(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Name, layout, and the element types of the tiles that have it, of each that a dump names."""
    users: dict[str, dict[str, None]] = {}
    for dtype, layout in re.findall(r"<(\w+), [^<>]*?#(\w+)>", text):
        users.setdefault(layout, {})[dtype] = None
    for layout, line in re.findall(r"^#(\w+) = (\(.*\))$", text, re.MULTILINE):
        yield layout, line, list(users.get(layout, {}))


def _remark(remark: Remark) -> str:
    place = f"line {remark.line}:{remark.column}: " if remark.line else ""
    return f"{place}{remark.text} (`{remark.decided_by}`)"


def _choices(compiled: Compiled) -> dict[str, Any]:
    """The schedule, or that of each launch by its entry's name."""
    if len(compiled.launches) == 1:
        return compiled.schedule.as_attributes()
    return {entry.name: entry.schedule.as_attributes() for entry in compiled.launches}


def _resources(compiled: Compiled) -> str:
    from tilec.backend_ptx.assemble import AssemblyError, ToolMissing, assemble

    head: list[Any] = []
    for entry in compiled.launches:
        of = f" of {entry.name}" if len(compiled.launches) > 1 else ""
        head += [
            f"threads a CTA{of}: {entry.threads}",
            f"dynamic shared memory{of}: {entry.shared_bytes} bytes",
        ]
    head += [f"workspace {w.name}: {w.dtype}[{_extents(w, compiled)}]" for w in compiled.workspace]
    try:
        made = assemble(compiled.ptx, compiled.target)
    except ToolMissing as missing:
        return "\n".join([*head, f"ptxas: {missing}"]) + "\n"
    except AssemblyError as error:
        return "\n".join([*head, f"ptxas: {error}"]) + "\n"
    asked = [
        op
        for kernel in compiled.module.kernels
        for op in kernel.body.walk()
        if op.name == "ptx.setmaxnreg"
    ]
    counts = ", ".join(str(getattr(op, "count", 0)) for op in asked)
    later = f" at the launch; its roles then set {counts}" if asked else ""
    head += [f"registers a thread: {made.registers}{later}", f"spills: {made.spill_bytes} bytes"]
    head += [f"{n.code or n.kind}: {n.text}" for n in made.notes if n.kind in _NOTED]
    return "\n".join(head) + "\n"


def _extents(item: Workspace, compiled: Compiled) -> str:
    """Extents as a person writes them: as the kernel's array has them."""
    types = {a.name: a.type for k in compiled.module.kernels for a in k.body.args}
    return ", ".join(map(str, types[item.name].shape))


_NOTED = ("advisory", "warning", "error")
