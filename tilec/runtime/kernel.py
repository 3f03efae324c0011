"""Kernels as Python functions on arrays.

``Program`` is a parsed ``.tk`` text, its kernels are its attributes. A call finds compile-time
parameters and dimensions from the arrays, allocates outputs that are not given, refuses what the
language refuses (shapes that disagree, broken requirements, overlapping outputs), compiles for the
class of its arguments once, and launches on the arrays' own stream without waiting. Arrays on the
CPU travel to a GPU and back if there is one, and are interpreted if not.

Compilations and prepared launches are kept in memory only.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilec.compiler import Compiled, emit_module, front, line_span, prepare, run_passes
from tilec.diagnostics import Diagnostic, DiagnosticError, did_you_mean
from tilec.ir.core import Kernel as IRKernel
from tilec.ir.core import Module
from tilec.ir.facts import Facts, Schedule
from tilec.ir.printer import module_text
from tilec.ir.rewrite import clone_kernel
from tilec.ir.types import Array, DType, Scalar
from tilec.pipeline import FACT_ATTRIBUTES, SIZES_SETTLED_BY, settled_facts
from tilec.runtime import arrays as arrays_of
from tilec.runtime.arrays import NIBBLES, ArrayError, ArrayView, Device
from tilec.runtime.call import (
    Call,
    Parameter,
    check_overlap,
    check_requirements,
    interpret_call,
    match,
    quick_key,
)
from tilec.runtime.scalars import held
from tilec.runtime.scalars import key as scalar_key
from tilec.runtime.specialise import LaunchError, bind_dims, check_packed, facts_for
from tilec.source import SourceFile, Span
from tilec.targets import TARGETS, by_name
from tilec.targets.base import Target

if TYPE_CHECKING:
    from tilec.runtime.emulated import Emulator

_KEPT = 256
EXECUTORS = ("auto", "gpu", "interp", "cta", "emulator")
_CARRIERS = {"u8", "u16", "s8", "s16"}
_BYTES = {"u8", "s8"}

Stream = int
Run = Callable[[Stream, str], None]
"""Put a call on a stream of the named framework."""


class Program:
    """The kernels of one ``.tk`` text, as attributes."""

    def __init__(self, source: SourceFile) -> None:
        """Parse the text; raises ``DiagnosticError`` with all that is wrong in it."""
        from tilec.frontend.parse import parse

        self.source = source
        self.tree = parse(source)
        if not self.tree.kernels:
            raise DiagnosticError(Diagnostic("which-kernel", f"{source.name} has no kernel"))
        self._kernels = {node.name: Kernel(self, node.name) for node in self.tree.kernels}

    def __getattr__(self, name: str) -> Kernel:
        """The kernel of that name."""
        kernels: dict[str, Kernel] = self.__dict__.get("_kernels", {})
        if name in kernels:
            return kernels[name]
        hint = did_you_mean(name, kernels) or f"there is: {', '.join(kernels)}"
        raise AttributeError(f"no kernel `{name}`; {hint}")

    def __dir__(self) -> list[str]:
        """Kernel names for completion."""
        return [*super().__dir__(), *self._kernels]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels in the order of the text."""
        return tuple(self._kernels.values())


@dataclass
class Kernel:
    """One kernel, callable; ``using`` makes a variant with other choices."""

    program: Program
    name: str
    bindings: dict[str, Any] = field(default_factory=dict)
    schedule: Schedule = field(default_factory=Schedule)
    target: Target | None = None
    """What to compile for; None: the device that a call's arrays lie on."""
    on: str | Emulator = "auto"
    """Who runs calls: ``auto`` (a GPU if there is one), ``gpu``, ``interp``, ``cta``,
    or an emulator."""

    def __post_init__(self) -> None:
        """Start with empty caches."""
        self._fronts: dict[tuple[Any, ...], Module] = {}
        self._compiled: dict[tuple[Any, ...], Compiled] = {}
        self._settled: dict[tuple[tuple[Facts, ...], str], Compiled] = {}
        self._loaded: dict[tuple[Any, ...], Any] = {}
        self._ready: OrderedDict[tuple[Any, ...], Run] = OrderedDict()
        self._quick: OrderedDict[tuple[Any, ...], tuple[Run, str, Device, list[int]]] = (
            OrderedDict()
        )
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<kernel {self.signature}>"

    def using(
        self,
        schedule: Schedule | None = None,
        target: str | None = None,
        on: str | Emulator | None = None,
        checks: bool | None = None,
        **bindings: Any,
    ) -> Kernel:
        """This kernel with compile-time parameters bound, choices pinned, or another target.

        ``on`` says who runs its calls, such as ``"emulator"`` or ``Emulator(order="late")``;
        ``checks=False`` leaves its assertions and prints out.
        """
        merged = self.schedule.merged(schedule or Schedule()).merged(Schedule(checks=checks))
        try:
            wanted = by_name(target) if target is not None else self.target
        except KeyError as error:
            raise LaunchError(str(error.args[0])) from None
        where = self.on if on is None else _executor(on)
        bound = {**self.bindings, **bindings}
        return Kernel(self.program, self.name, bound, merged, wanted, where)

    # Declarations -------------------------------------------------------------------------------

    @cached_property
    def _node(self) -> Any:
        return next(k for k in self.program.tree.kernels if k.name == self.name)

    @property
    def comptime(self) -> tuple[str, ...]:
        """Names of the compile-time parameters."""
        return tuple(c.name.id for c in self._node.comptime)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in order."""
        return tuple(
            Parameter(
                p.name.id,
                p.mode,
                p.type.name.id if p.type else "",
                None if p.type is None else p.type.dims,
            )
            for p in self._node.parameters
        )

    @property
    def signature(self) -> str:
        """The kernel's head, for messages."""
        shown = []
        for p in self.parameters:
            mode = f"{p.mode} " if p.mode != "in" else ""
            dims = "" if p.dims is None else f"[{', '.join(d.span.text for d in p.dims)}]"
            shown.append(f"{p.name}: {mode}{p.type_name}{dims}")
        return f"{self.name}({', '.join(shown)})"

    # Calling --------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run on arrays; returns the outputs (one alone, several as a tuple)."""
        quick = None if named else quick_key(args)
        if quick is not None and quick in self._quick:
            run, kind, device, outs = self._quick[quick]
            run(arrays_of.stream_of(kind, device), kind)
            return self._results([args[place] for place in outs])
        try:
            return self._call(args, named, quick)
        except LaunchError as error:
            head = line_span(self.program.source, self._node.span.line)
            raise error.shown_on(self._declared, head) from None

    def _call(
        self, args: tuple[Any, ...], named: Mapping[str, Any], quick: tuple[Any, ...] | None
    ) -> Any:
        """A call that is not one of those known by ``quick``."""
        given = match(self.signature, self.parameters, args, named)
        views = {
            p.name: self._view(p.name, given[p.name])
            for p in self.parameters
            if p.dims is not None and p.name in given
        }
        views = self.as_declared(views)
        missing = [p for p in self.parameters if p.dims is not None and p.name not in given]
        if missing:
            self._allocate(missing, given, views)
        scalars = {p.name: given[p.name] for p in self.parameters if p.dims is None}
        key = (
            *(
                (v.address, v.shape, v.strides, v.dtype, v.device, v.readonly)
                for v in views.values()
            ),
            *map(scalar_key, scalars.values()),
        )
        if key not in self._ready:
            self._ready[key] = self._prepare(views, scalars)
            if len(self._ready) > _KEPT:
                self._ready.popitem(last=False)
        run = self._ready[key]
        first = next(iter(views.values()), None)
        kind, device = (first.kind, first.device) if first is not None else ("", arrays_of.CPU)
        if quick is not None and len(args) == len(self.parameters):
            outs = [place for place, p in enumerate(self.parameters) if p.mode != "in"]
            self._quick[quick] = (run, kind, device, outs)
            if len(self._quick) > _KEPT:
                self._quick.popitem(last=False)
        run(arrays_of.stream_of(kind, device), kind)
        return self._results([given[p.name] for p in self.parameters if p.mode != "in"])

    @cached_property
    def _declared(self) -> dict[str, Span]:
        return {p.name.id: p.name.span for p in self._node.parameters}

    def _view(self, name: str, value: Any) -> ArrayView:
        try:
            return arrays_of.view(value)
        except ArrayError as error:
            raise LaunchError(
                f"{name} of {self.signature}: {error}",
                code="not-an-array",
                at={name: "needs an array that tilec can read"},
                help="pass a numpy, torch, cupy or jax array of one of tilec's element types, "
                "on the CPU or on a CUDA GPU",
            ) from None

    def as_declared(self, views: Mapping[str, ArrayView]) -> dict[str, ArrayView]:
        """The views, those of bytes by the elements that share them where a parameter says so."""
        found = dict(views)
        for p in self.parameters:
            dtype = self._declared_elements(p)
            if p.name not in found or dtype not in NIBBLES or found[p.name].dtype not in _BYTES:
                continue
            try:
                found[p.name] = arrays_of.reinterpret(found[p.name], dtype)
            except ArrayError as error:
                raise LaunchError(
                    f"{p.name} of {self.signature}: {error}",
                    code="packed-axis",
                    at={p.name: f"two elements of {dtype} share a byte along the last axis"},
                    help=f"pass `{p.name}.copy()`, whose last axis has stride 1",
                ) from None
        return found

    def _declared_elements(self, parameter: Parameter) -> str:
        """The element type of a parameter as far as the source and the bindings say it."""
        name = parameter.type_name
        chosen = next((c.default for c in self._node.comptime if c.name.id == name), None)
        return str(self.bindings.get(name, getattr(chosen, "id", name)))

    @staticmethod
    def _results(outs: list[Any]) -> Any:
        return outs[0] if len(outs) == 1 else tuple(outs) or None

    def _allocate(
        self, missing: list[Parameter], given: dict[str, Any], views: dict[str, ArrayView]
    ) -> None:
        if not views:
            raise LaunchError(
                f"{self.signature}: give the outputs, no array says where they lie",
                code="wrong-arguments",
                at={missing[0].name: "left out, and no other argument is an array"},
                help=f"pass an array for {missing[0].name}",
            )
        first = next(iter(views.values()))
        types = self._types(views)
        dims = bind_dims(types, {name: v.shape for name, v in views.items()})
        for p in missing:
            unknown = [str(e) for e in types[p.name].shape if isinstance(e, str) and e not in dims]
            if unknown:
                raise LaunchError(
                    f"{p.name} of {self.signature} must be given: no argument says what "
                    f"{', '.join(unknown)} is",
                    code="wrong-arguments",
                    at={p.name: f"{', '.join(unknown)} stands here alone"},
                    help=f"pass an array for {p.name}",
                )
            shape = [e if isinstance(e, int) else dims[e] for e in types[p.name].shape]
            check_packed({p.name: types[p.name]}, dims)
            dtype = types[p.name].dtype.name
            alike = [view for name, view in views.items() if types[name].dtype.name == dtype]
            made = arrays_of.empty_like_kind(first.kind, shape, dtype, first.device, alike)
            given[p.name] = made
            views[p.name] = arrays_of.view(made, dtype if dtype in NIBBLES else None)
        for p in self.parameters:  # the order of the parameters, whatever was given
            if p.name in views:
                views[p.name] = views.pop(p.name)

    # Specialising ---------------------------------------------------------------------------------

    def _infer(self, views: Mapping[str, ArrayView]) -> dict[str, Any]:
        """Compile-time parameters that the arrays decide."""
        kinds = {c.name.id: c.kind.id for c in self._node.comptime}
        found: dict[str, Any] = {}
        for p in self.parameters:
            if p.dims is None or p.name not in views:
                continue
            view = views[p.name]
            if kinds.get(p.type_name) == "dtype" and view.dtype not in _CARRIERS:
                found.setdefault(p.type_name, view.dtype)
            for dim, extent in zip(p.dims, view.shape, strict=False):
                name = getattr(dim, "id", "")
                if kinds.get(name) == "int":
                    found.setdefault(name, extent)
        return {**found, **self.bindings}

    def for_arrays(self, views: Mapping[str, ArrayView]) -> Kernel:
        """This kernel with all compile-time parameters bound that arrays decide."""
        return self.using(**self._infer(views))

    def front_end(self, bindings: Mapping[str, Any], target: Target) -> Module:
        """The kernel at level ``tile`` for these compile-time parameters; not to be changed."""
        key = (tuple(sorted((k, str(v)) for k, v in bindings.items())), target.name)
        if key not in self._fronts:
            self._fronts[key] = front(self.program.source, self.name, bindings, target)
        return self._fronts[key]

    def _types(self, views: Mapping[str, ArrayView]) -> dict[str, Array]:
        module = self.front_end(self._infer(views), by_name("90"))
        return {
            a.name: a.type for a in module.kernel(self.name).body.args if isinstance(a.type, Array)
        }

    def _prepare(self, views: dict[str, ArrayView], scalars: dict[str, Any]) -> Run:
        with self._lock:
            return self._prepare_locked(views, scalars)

    def _prepare_locked(self, views: dict[str, ArrayView], scalars: dict[str, Any]) -> Run:
        device = self._device(views)
        ordinal = device[1]
        on_gpu = self._runs_on_gpu(device)
        target = self.target_on(ordinal) if on_gpu else self.target or by_name("90")
        call = self.sort_out(views, scalars, target)
        check_overlap(call)
        check_requirements(self.program.source, call, self.name)
        written = [v for n, v in call.views.items() if call.types[n].mode != "in"]
        if all(v.size == 0 for v in written):
            return lambda stream, kind: None
        if not isinstance(self.on, str):
            return self._on_emulator(call, target, self.on)
        if device[0] == "cuda":
            loaded = self.load(call, target, ordinal)
            return lambda stream, kind: self._tell(
                loaded(call.views, call.scalars, stream, kind), call
            )
        if on_gpu:
            return lambda stream, kind: self._through_device(call, target, ordinal)
        if self.on == "cta":
            from tilec.runtime.levels import cta_call

            return lambda stream, kind: cta_call(self, call, target)
        silent = self.checks_of(call.module) is False
        return lambda stream, kind: interpret_call(call, self.name, silent=silent)

    def checks_of(self, module: Module) -> bool | None:
        """Whether assertions and prints are wanted: what is pinned here, or in the source."""
        own = Schedule.from_attributes(module.kernel(self.name).schedule)
        return own.merged(self.schedule).checks

    def _runs_on_gpu(self, device: Device) -> bool:
        """Whether a GPU runs calls with arrays on a device; refuses what cannot be."""
        if self.on in ("auto", "gpu"):
            there = device[0] == "cuda" or gpu_available()
            if self.on == "gpu" and not there:
                raise LaunchError(
                    "there is no GPU that CUDA can use here",
                    code="device-not-usable",
                    help='leave `on="gpu"` out: without a GPU the interpreter computes',
                )
            return there
        if device[0] == "cuda":
            raise LaunchError(
                f"the arrays lie on {arrays_of.place(device)}, and the kernel is to run on the CPU",
                code="device-not-usable",
                help="pass arrays in host memory, or leave `on=` out",
            )
        return False

    def _on_emulator(self, call: Call, target: Target, how: Emulator) -> Run:
        from tilec.runtime.emulated import run_or_raise

        compiled, source = self.compile(call, target), self.program.source
        return lambda stream, kind: run_or_raise(call, compiled, how, source)

    def _device(self, views: Mapping[str, ArrayView]) -> Device:
        devices = list(dict.fromkeys(v.device for v in views.values()))
        if len(devices) > 1:
            places = {name: arrays_of.place(v.device) for name, v in views.items()}
            said = ", ".join(f"{name} on {where}" for name, where in places.items())
            raise LaunchError(
                f"the arrays lie on different devices: {said}",
                code="devices-differ",
                at={name: f"on {where}" for name, where in places.items()},
                help=f"move all of them to {arrays_of.place(max(devices, key=_likely))}",
            )
        return next(iter(devices), ("cpu", 0))

    def sort_out(
        self, views: Mapping[str, ArrayView], scalars: Mapping[str, Any], target: Target
    ) -> Call:
        """Types, dimensions and views of a call, or a ``LaunchError``."""
        views = self.as_declared(views)
        module = self.front_end(self._infer(views), target)
        arguments = module.kernel(self.name).body.args
        types = {a.name: a.type for a in arguments if isinstance(a.type, Array)}
        seen: dict[str, ArrayView] = {}
        for name, view in views.items():
            try:
                found = arrays_of.reinterpret(view, types[name].dtype.name)
            except ArrayError:
                raise LaunchError(
                    f"{name} is an array of {view.dtype}, {self.signature} takes "
                    f"{types[name].dtype}{self._chosen_by(name)}",
                    code="element-types-differ",
                    at={name: f"the array's elements are {view.dtype}"},
                    help=_instead_of(types[name].dtype)
                    + ("" if types[name].mode == "in" else ", or leave the output out"),
                ) from None
            if view.readonly and types[name].mode != "in":
                raise LaunchError(
                    f"{name} is written by {self.name}, and the array is read-only",
                    code="array-is-read-only",
                    at={name: f"declared {types[name].mode}"},
                    help=f"pass `{name}.copy()`, and read the result from it"
                    if types[name].mode == "inout"
                    else f"leave {name} out: it is allocated and returned",
                )
            # Prepared calls are kept and found by address: they must not keep arrays alive.
            seen[name] = replace(found, owner=None)
        dims = bind_dims(types, {name: v.shape for name, v in seen.items()})
        numbers = {
            a.name: held(f"{a.name} of {self.signature}", a.type.dtype, scalars[a.name])
            for a in arguments
            if isinstance(a.type, Scalar)
        }
        return Call(types, seen, numbers, dims, module)

    def _chosen_by(self, name: str) -> str:
        """What to write where a parameter's elements are a compile-time parameter's, or nothing."""
        type_name = next(p.type_name for p in self.parameters if p.name == name)
        if not any(c.name.id == type_name for c in self._node.comptime):
            return ""
        return f" for {type_name}; choose it with `.using({type_name}=...)`"

    def compile(
        self, call: Call, target: Target, facts: Facts | None = None, dump: Any = None
    ) -> Compiled:
        """The compilation for a call's class of arguments."""
        assumed = facts or facts_for(call.views, call.dims)
        bound = call.module.kernel(self.name).attributes.get("bound", ())
        key = (bound, assumed, self.schedule, target.name)
        if key not in self._compiled or dump is not None:
            module = replace(call.module, kernels=[fresh(call.module, self.name)])
            prepare(module, assumed, self.schedule)
            if dump is not None:
                dump.start(module, "lower")
            self._compiled[key] = self._compile(module, target, dump)
        return self._compiled[key]

    def _compile(self, module: Module, target: Target, dump: Any) -> Compiled:
        """Compile, sharing the work of calls whose sizes led to the same choices."""
        remarks = run_passes(module, target, dump=dump, stop_after=SIZES_SETTLED_BY)
        facts = tuple(settled_facts(kernel) for kernel in module.kernels)
        attributes = [kernel.attributes for kernel in module.kernels]
        for kernel in module.kernels:
            kernel.attributes = {
                k: v for k, v in kernel.attributes.items() if k not in FACT_ATTRIBUTES
            }
        settled = (facts, module_text(module))
        for kernel, kept in zip(module.kernels, attributes, strict=True):
            kernel.attributes = kept
        if settled not in self._settled or dump is not None:
            remarks += run_passes(module, target, dump=dump)
            self._settled[settled] = emit_module(module, remarks)
        return self._settled[settled]

    def target_on(self, ordinal: int) -> Target:
        """What calls on a device compile for."""
        return self.target or device_target(ordinal)

    def load(self, call: Call, target: Target, ordinal: int) -> Any:
        """The compilation in the memory of a GPU."""
        from tilec.runtime.launch import Loaded

        compiled = self.compile(call, target)
        key = (compiled.ptx, ordinal)
        if key not in self._loaded:
            self._loaded[key] = Loaded(compiled, ordinal)
        return self._loaded[key]

    def _through_device(self, call: Call, target: Target, ordinal: int) -> None:
        from tilec.backend_ptx.module import activate, synchronize
        from tilec.runtime.host import OnDevice

        activate(ordinal)
        there = {name: OnDevice(view, ordinal) for name, view in call.views.items()}
        try:
            moved = replace(call, views={name: copy.view for name, copy in there.items()})
            said = self.load(moved, target, ordinal)(moved.views, call.scalars, 0)
            synchronize()
            for name, copy in there.items():
                if call.types[name].mode != "in":
                    copy.bring_back()
        finally:
            for copy in there.values():
                copy.close()
        self._tell(said, call)

    @staticmethod
    def _tell(said: Any, call: Call) -> None:
        """Show what a call reported, if its kernel asserts or prints."""
        if said is not None:
            from tilec.runtime.checks import tell

            tell(said, call.module)


def _instead_of(dtype: DType) -> str:
    """What to pass for an array of other elements."""
    if dtype.is_nibble:
        return "pass uint8 or int8, two elements a byte, the first of them in the low half"
    return f"convert the array to {dtype}"


def _executor(on: str | Emulator) -> str | Emulator:
    """Who is to run calls."""
    if on in ("auto", "gpu", "interp", "cta"):
        return on
    from tilec.runtime.emulated import Emulator

    if on == "emulator" or isinstance(on, Emulator):
        return Emulator() if on == "emulator" else on
    hint = did_you_mean(str(on), EXECUTORS) or f"there are {', '.join(EXECUTORS)}"
    raise LaunchError(f"nothing called {on!r} runs kernels", code="launch", help=hint)


def fresh(module: Module, name: str) -> IRKernel:
    """A copy of a kernel that passes may change."""
    return clone_kernel(module.kernel(name))


def gpu_available() -> bool:
    """Whether CUDA and a device are here."""
    from tilec.backend_ptx.module import available

    return available()


def device_target(ordinal: int) -> Target:
    """The compiler's target for a device: its own, or the newest one whose PTX it can take.

    The driver compiles PTX for every later device; a target with features of its own architecture
    (``a``) is for that one alone.
    """
    from tilec.backend_ptx.module import CudaError, device_facts

    try:
        facts = device_facts(ordinal)
    except CudaError as error:
        raise LaunchError(
            f"the arrays lie on GPU {ordinal}, which CUDA cannot use here: {error}",
            code="device-not-usable",
            help="pass arrays in host memory: without a GPU the interpreter computes on them",
        ) from None
    major, minor = facts.compute_capability
    here = 10 * major + minor
    plain = {int(n.removeprefix("sm_")): t for n, t in TARGETS.items() if not n.endswith("a")}
    own = TARGETS.get(f"sm_{here}a")
    older = [number for number in plain if number <= here]
    if own is None and not older:
        raise LaunchError(
            f"{facts.name} has compute capability {major}.{minor}; known: {', '.join(TARGETS)}",
            code="device-not-usable",
            help="use a GPU of one of these or a later one, or the interpreter",
        )
    return own or plain[max(older)]


def _likely(device: Device) -> tuple[bool, int]:
    """Which of several devices is meant: a GPU, and of these the first."""
    return device[0] == "cuda", -device[1]
