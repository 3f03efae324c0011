"""The pipeline: the only list of passes, in the order of the compiler's story.

A kernel carries everything that decides its code: its attributes hold the facts promised about
launches and the name of the last pass that ran, its schedule every choice. So a printed module can
be parsed, edited, and taken on from where it stands. Before a pass runs, the context is set from
the kernel; after it, the module is verified, together with every property that passes so far have
established.

Nothing here changes a kernel: passes do, and ``backend_ptx`` turns the last level into text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol

from tilec.ir.core import Kernel, Module, Op
from tilec.ir.facts import ArrayFacts, Facts, Schedule
from tilec.ir.types import Register, Ring, Shared, Tile
from tilec.ir.verify import Fault, VerifyError, verify
from tilec.passes.base import Context, Pass

PIPELINE: tuple[str, ...] = (
    # level tile: what is computed
    "lift-requirements",
    "drop-checks",
    "split-loops",
    "repack-operands",
    "split-launches",
    "lower-anchor",
    "split-f32-products",
    "simplify",
    "free-known-axes",
    "choose-tiles",
    "fill-padding",
    "apply-tiles",
    "split-by-predicates",
    # tile -> cta: who computes it, where, and when
    "form-ctas",
    "share-loads",
    "split-roles",
    "take-turns",
    "pipeline-products",
    "overlap-stores",
    "weave",
    "place-shared",
    # cta -> ptx: with which instructions
    "select-instructions",
    "place-copies",
)
"""All passes; each is the function of that name in ``tilec/passes/<name>.py``."""

SIZES_SETTLED_BY = "choose-tiles"
"""The last pass that sees all that is promised about sizes; see ``settled_facts``."""

WIDEST_VECTOR = 16
"""Elements: the longest access of one thread, for the narrowest type."""

_FROM_BACKEND = {"place-copies": ("tilec.backend_ptx.registers", "ptx")}


def find_pass(name: str) -> Pass:
    """The pass called ``name``, imported on use; ``KeyError`` when the pipeline has none."""
    if name not in PIPELINE:
        raise KeyError(name)
    attribute = name.replace("-", "_")
    if name in _FROM_BACKEND:
        module, level = _FROM_BACKEND[name]
        function: Callable[[Kernel], None] = getattr(import_module(module), attribute)
        doc = (function.__doc__ or "").strip()
        return Pass(name, level, level, lambda kernel, _ctx: function(kernel), doc)
    found: Pass = getattr(import_module(f"tilec.passes.{attribute}"), attribute)
    return found


# --- what a kernel carries --------------------------------------------------------------------


FACT_ATTRIBUTES = ("arrays", "repeats", "extents", "multiples")
"""The kernel attributes that hold promises about launches."""


def record_facts(kernel: Kernel, facts: Facts) -> None:
    """Write the promises about launches into the kernel, where the dump shows them."""
    if facts.arrays:
        kernel.attributes["arrays"] = tuple(
            (name, f.unit_axis, f.alignment) for name, f in facts.arrays
        )
        repeats = tuple((name, f.repeats) for name, f in facts.arrays if f.repeats)
        if repeats:
            kernel.attributes["repeats"] = repeats
    for key in ("extents", "multiples"):
        if getattr(facts, key):
            kernel.attributes[key] = getattr(facts, key)


def workspace_facts(rank: int) -> ArrayFacts:
    """What is known of workspace: the launcher lays it out, row by row, for every copy."""
    return ArrayFacts(rank - 1, 16)


def recorded_facts(kernel: Kernel) -> Facts:
    """The promises that the kernel carries, and those that the launcher keeps for workspace."""
    arrays = kernel.attributes.get("arrays", ())
    repeats = {str(name): axes for name, axes in kernel.attributes.get("repeats", ())}
    workspace = kernel.attributes.get("workspace", ())
    return Facts(
        (
            *(
                (str(name), ArrayFacts(axis, alignment, repeats.get(str(name), ())))
                for name, axis, alignment in arrays
            ),
            *((str(name), workspace_facts(len(extents))) for name, _, extents in workspace),
        ),
        tuple((str(n), size) for n, size in kernel.attributes.get("extents", ())),
        tuple((str(n), size) for n, size in kernel.attributes.get("multiples", ())),
    )


def settled_facts(kernel: Kernel) -> Facts:
    """What passes see once tiles are chosen: no bounds of sizes, and no divisor beyond a tile.

    Whatever the rest decided is in the schedule by then, so compilations that agree on this and on
    the text share everything that follows.
    """
    facts = recorded_facts(kernel)
    largest = max((size for _, size in kernel.schedule.get("tiles", ())), default=1)
    largest *= max(kernel.schedule.get("cluster", ()), default=1)
    cap = max(WIDEST_VECTOR, 1 << max(largest - 1, 0).bit_length())
    multiples = tuple((name, min(multiple, cap)) for name, multiple in facts.multiples)
    return replace(facts, extents=(), multiples=multiples)


def recorded_schedule(kernel: Kernel) -> Schedule:
    """The choices that the kernel carries, pinned or made."""
    return Schedule.from_attributes(kernel.schedule)


# --- properties -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Property:
    """A claim about a kernel that holds from a pass on: ``check`` yields the ops that break it."""

    claim: str
    since: str
    check: Callable[[Kernel], Iterator[Op]]


def _with_symbols(kernel: Kernel) -> Iterator[Op]:
    for op in kernel.body.walk():
        shapes = [r.type.shape for r in op.results if isinstance(r.type, Tile | Register | Shared)]
        if any(isinstance(extent, str) for shape in shapes for extent in shape):
            yield op


def _unplaced(kernel: Kernel) -> Iterator[Op]:
    for op in kernel.body.walk():
        made = op.results[0].type if op.results else None
        if isinstance(made, Ring | Shared) and getattr(op, "offset", 0) < 0:
            yield op


def _requirements(kernel: Kernel) -> Iterator[Op]:
    return (op for op in kernel.body.walk() if op.name == "tile.require")


def _joined(kernel: Kernel) -> Iterator[Op]:
    return (op for op in kernel.body.walk() if op.name == "tile.for_joined")


def _beyond_one_launch(kernel: Kernel) -> Iterator[Op]:
    loops = [op for op in kernel.body.ops if op.name == "tile.parallel"]
    yield from loops[1:]
    yield from (op for op in kernel.body.ops if op.name == "tile.temp")


PROPERTIES: tuple[Property, ...] = (
    Property("launch requirements are attributes", "lift-requirements", _requirements),
    Property("no loop says how its parts merge", "split-loops", _joined),
    Property("a kernel is one launch", "split-launches", _beyond_one_launch),
    Property("tile extents are integers", "apply-tiles", _with_symbols),
    Property("shared memory has offsets", "place-shared", _unplaced),
)
"""What stays true once the pass that establishes it has run."""


def check_properties(module: Module, kernel: Kernel, ran: str) -> None:
    """Raise ``VerifyError`` where a property established up to pass ``ran`` is broken."""
    faults = [
        Fault(op, f"`{p.claim}` holds since {p.since}, and does not here")
        for p in PROPERTIES
        if position(p.since) <= position(ran)
        for op in p.check(kernel)
    ]
    if faults:
        raise VerifyError(module, faults, ran)


# --- running ----------------------------------------------------------------------------------


class Observer(Protocol):
    """Who watches the steps, such as a dump folder."""

    def before(self, name: str, module: Module) -> None:
        """A pass is about to run on ``module``."""

    def after(self, name: str, module: Module) -> None:
        """The pass has run and the module is valid."""


class UnknownPass(ValueError):
    """A pass name that the pipeline does not have."""


def position(name: str) -> int:
    """Where a pass stands; raises ``UnknownPass`` with the nearest name."""
    if name not in PIPELINE:
        from tilec.diagnostics import did_you_mean

        hint = did_you_mean(name, PIPELINE) or f"there are {', '.join(PIPELINE)}"
        raise UnknownPass(f"there is no pass {name}; {hint}")
    return PIPELINE.index(name)


def last_done(module: Module) -> str | None:
    """The pass that the kernels of a module say ran last."""
    named = (str(k.attributes["after"]) for k in module.kernels if "after" in k.attributes)
    return next(named, None)


def remaining(module: Module, start_after: str | None = None) -> tuple[str, ...]:
    """The passes that ``module`` has still to go through.

    It goes on after the pass that its kernels name, or else with the first pass of its level.
    """
    done = start_after or last_done(module)
    if done is not None:
        return PIPELINE[position(done) + 1 :]
    if module.level == "tile":
        return PIPELINE
    return PIPELINE[
        position({"cta": "form-ctas", "ptx": "select-instructions"}[module.level]) + 1 :
    ]


def run(
    module: Module,
    ctx: Context,
    *,
    dump: Observer | None = None,
    stop_after: str | None = None,
    start_after: str | None = None,
    only: Sequence[str] | None = None,
) -> Module:
    """Take a module through the passes, in place, and return it.

    ``only`` names the passes to run instead of all that remain.
    """
    names = tuple(only) if only is not None else remaining(module, start_after)
    if stop_after is not None:
        last = position(stop_after)
        names = tuple(name for name in names if position(name) <= last)
    done = start_after or last_done(module)
    if done is not None:  # an edit, or who starts it, may claim a pass that never ran
        for kernel in module.kernels:
            check_properties(module, kernel, done)
    for name in names:
        position(name)
        step(module, find_pass(name), ctx, dump)
    return module


def step(module: Module, item: Pass, ctx: Context, dump: Observer | None = None) -> None:
    """Run one pass over all kernels of a module and check what it leaves."""
    if item.level != module.level:
        raise UnknownPass(f"{item.name} runs at level {item.level}, this is level {module.level}")
    if dump is not None:
        dump.before(item.name, module)
    made: list[Kernel] = []
    for kernel in module.kernels:
        ctx.current = item.name
        ctx.facts, ctx.schedule = recorded_facts(kernel), recorded_schedule(kernel)
        if position(item.name) > position(SIZES_SETTLED_BY):
            ctx.facts = settled_facts(kernel)
        parts = item.run(kernel, ctx) or (kernel,)
        for part in parts:
            part.attributes["after"] = item.name
        made += parts
    module.kernels, module.level = made, item.produces
    verify(module, item.name)
    for kernel in module.kernels:
        check_properties(module, kernel, item.name)
    if dump is not None:
        dump.after(item.name, module)


def describe() -> list[tuple[str, str, str]]:
    """Name, levels and one sentence of each pass."""
    rows: list[tuple[str, str, str]] = []
    for name in PIPELINE:
        item: Any = find_pass(name)
        levels = item.level if item.level == item.produces else f"{item.level} -> {item.produces}"
        rows.append((name, levels, item.doc.splitlines()[0] if item.doc else ""))
    return rows
