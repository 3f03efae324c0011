"""The CUDA driver as tilec needs it: load a kernel, read the assembler's log, launch.

Idea: one thin layer over ``cuda.bindings.driver``.  Every driver call goes through `call`, which
turns a status into a `CudaError` carrying the driver's own name and sentence.

Invariants: importing this file loads no CUDA package; the primary context is retained, so torch,
cupy and this module share one context and each other's pointers and streams; a launch is ordered on
the caller's stream and never synchronises.

Never: decides anything about a kernel, retries a failed call, or hides an assembler note.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilec.backend_ptx.arguments import KINDS as KINDS
from tilec.backend_ptx.arguments import Arguments as Arguments
from tilec.backend_ptx.arguments import pack as pack
from tilec.backend_ptx.assembler_log import AssemblerNote as AssemblerNote
from tilec.backend_ptx.assembler_log import parse_assembler_log as parse_assembler_log

Array = npt.NDArray[Any]
Dim3 = tuple[int, int, int]

_LOG_BYTES = 64 * 1024
#: CUDA's largest dynamic shared memory for one CTA on sm_90 (PTX manual, kernel limits: 227 KB).
MAX_DYNAMIC_SHARED_BYTES = 232448


class CudaError(RuntimeError):
    """A driver call failed; `name` and `sentence` are the driver's own words."""

    def __init__(self, function: str, name: str, sentence: str, log: str = "") -> None:
        """Keep the failing function, the driver's error name and sentence, and any JIT log."""
        self.function, self.name, self.sentence, self.log = function, name, sentence, log
        text = f"{function} failed: {name}: {sentence}"
        super().__init__(f"{text}\n{log.rstrip()}" if log.strip() else text)


@cache
def driver() -> Any:
    """The initialised `cuda.bindings.driver` module; raises `CudaError` when there is none."""
    try:
        module = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise CudaError(
            "import cuda.bindings", "NOT_INSTALLED", f"{error}; type: pip install cuda-bindings"
        ) from None
    try:
        (status, *_) = module.cuInit(0)
    except RuntimeError as error:  # no libcuda on this machine
        raise CudaError("cuInit", "NO_DRIVER", str(error).splitlines()[0]) from None
    if int(status) != 0:
        raise CudaError("cuInit", *_describe(module, status))
    return module


def available() -> bool:
    """Whether a driver and at least one device are here (never raises)."""
    try:
        return int(call("cuDeviceGetCount")) > 0
    except CudaError:
        return False


def _describe(module: Any, status: Any) -> tuple[str, str]:
    words = []
    for ask in (module.cuGetErrorName, module.cuGetErrorString):
        _, text = ask(status)
        words.append(text.decode() if text else str(status))
    return words[0], words[1]


def call(function: str, *arguments: Any) -> Any:
    """Call one driver function by name; return its value, or raise `CudaError`."""
    module = driver()
    status, *values = getattr(module, function)(*arguments)
    if int(status) != 0:
        raise CudaError(function, *_describe(module, status))
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


@dataclass(frozen=True)
class DeviceFacts:
    """What a device says about itself."""

    ordinal: int
    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    l2_bytes: int
    shared_bytes_per_cta: int
    memory_bytes: int


@cache
def device_facts(ordinal: int = 0) -> DeviceFacts:
    """Facts of device `ordinal` as the driver reports them."""
    names = driver().CUdevice_attribute
    handle = call("cuDeviceGet", ordinal)

    def ask(attribute: str) -> int:
        full = getattr(names, f"CU_DEVICE_ATTRIBUTE_{attribute}")
        return int(call("cuDeviceGetAttribute", full, handle))

    return DeviceFacts(
        ordinal=ordinal,
        name=call("cuDeviceGetName", 256, handle).split(b"\0")[0].decode(),
        compute_capability=(ask("COMPUTE_CAPABILITY_MAJOR"), ask("COMPUTE_CAPABILITY_MINOR")),
        sm_count=ask("MULTIPROCESSOR_COUNT"),
        l2_bytes=ask("L2_CACHE_SIZE"),
        shared_bytes_per_cta=ask("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        memory_bytes=int(call("cuDeviceTotalMem", handle)),
    )


@cache
def _primary_context(ordinal: int) -> Any:
    # Retained for the life of the process: releasing it would destroy pointers that a framework
    # sharing the context still holds.
    return call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", ordinal))


def activate(ordinal: int = 0) -> None:
    """Make the primary context of device `ordinal` current on this thread."""
    context = _primary_context(ordinal)
    if int(call("cuCtxGetCurrent")) != int(context):
        call("cuCtxSetCurrent", context)


def synchronize() -> None:
    """Wait for all work of the current context; device faults surface here."""
    call("cuCtxSynchronize")


def synchronize_stream(stream: int) -> None:
    """Wait for what has been put on a stream; device faults surface here."""
    call("cuStreamSynchronize", stream)


def is_capturing(stream: int) -> bool:
    """Whether work on a stream goes into a graph instead of being done."""
    status = call("cuStreamIsCapturing", stream)
    return bool(status != driver().CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)


# --- memory ------------------------------------------------------------------------------------


def allocate(size_bytes: int) -> int:
    """Device memory of at least one byte; 256-byte aligned by the driver."""
    return int(call("cuMemAlloc", max(size_bytes, 1)))


def free(address: int) -> None:
    """Give back memory that `allocate` returned."""
    call("cuMemFree", address)


@cache
def _pool(ordinal: int) -> Any:
    """Memory that streams lend and take back in their own order, kept by the process."""
    api = driver()
    asked = api.CUmemPoolProps()
    asked.allocType = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    asked.handleTypes = api.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
    asked.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    asked.location.id = ordinal
    pool = call("cuMemPoolCreate", asked)
    # By default a pool gives everything back to the driver whenever somebody synchronises.
    keep = api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    call("cuMemPoolSetAttribute", pool, keep, api.cuuint64_t((1 << 64) - 1))
    return pool


def allocate_on(stream: int, size_bytes: int, ordinal: int = 0) -> int:
    """Device memory for work that is put on ``stream`` from now on; 256-byte aligned.

    On a stream that is being captured this becomes a node of the graph.
    """
    return int(call("cuMemAllocFromPoolAsync", size_bytes, _pool(ordinal), stream))


def free_on(stream: int, address: int) -> None:
    """Give back what ``allocate_on`` returned, once what is on ``stream`` by now is done."""
    call("cuMemFreeAsync", address, stream)


def zero_on(stream: int, address: int, size_bytes: int) -> None:
    """Clear memory when ``stream`` gets there."""
    call("cuMemsetD8Async", address, 0, size_bytes, stream)


def copy_to_device(address: int, source: Array) -> None:
    """Copy a C-contiguous host array to device memory (waits)."""
    if not source.flags.c_contiguous:
        raise ValueError("copy_to_device needs a C-contiguous array")
    if source.nbytes:
        call("cuMemcpyHtoD", address, source.ctypes.data, source.nbytes)


def copy_from_device(target: Array, address: int) -> None:
    """Copy device memory into a C-contiguous host array (waits)."""
    if not target.flags.c_contiguous:
        raise ValueError("copy_from_device needs a C-contiguous array")
    if target.nbytes:
        call("cuMemcpyDtoH", target.ctypes.data, address, target.nbytes)


class DeviceBuffer:
    """Device memory owned by a `with` block, filled from and read back to numpy."""

    def __init__(self, size_bytes: int) -> None:
        """Allocate `size_bytes` on the current device."""
        self.size_bytes = size_bytes
        self.address = allocate(size_bytes)

    @classmethod
    def of(cls, array: Array) -> DeviceBuffer:
        """A buffer holding a copy of `array` in row-major order."""
        buffer = cls(array.nbytes)
        copy_to_device(buffer.address, np.ascontiguousarray(array))
        return buffer

    def read(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """The buffer's first bytes as a new host array."""
        result: Array = np.empty(shape, dtype)
        if result.nbytes > self.size_bytes:
            raise ValueError(f"{result.nbytes} bytes asked of a {self.size_bytes}-byte buffer")
        copy_from_device(result, self.address)
        return result

    def close(self) -> None:
        """Free the memory; a second call does nothing."""
        if self.address:
            free(self.address)
            self.address = 0

    def __enter__(self) -> DeviceBuffer:
        """The buffer itself."""
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Free the memory; while another exception passes, a failure to free adds nothing."""
        # A fault of a kernel fails every later call of its context, `cuMemFree` too: the first
        # error is the one to show.
        with contextlib.nullcontext() if kind is None else contextlib.suppress(CudaError):
            self.close()


# --- modules and functions ---------------------------------------------------------------------


class Function:
    """One kernel of a loaded module."""

    def __init__(self, name: str, handle: Any, module: Module) -> None:
        """Wrap a driver handle; the module is kept alive by it."""
        self.name, self.handle, self._module = name, handle, module
        self._dynamic_shared_bytes = 48 * 1024

    def _attribute(self, name: str) -> int:
        attribute = getattr(driver().CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(call("cuFuncGetAttribute", attribute, self.handle))

    @property
    def registers(self) -> int:
        """Registers of a thread at launch."""
        return self._attribute("NUM_REGS")

    @property
    def local_bytes(self) -> int:
        """Local memory (spills and stack) of a thread, in bytes."""
        return self._attribute("LOCAL_SIZE_BYTES")

    @property
    def static_shared_bytes(self) -> int:
        """Static shared memory of a CTA, in bytes."""
        return self._attribute("SHARED_SIZE_BYTES")

    def allow_shared(self, size_bytes: int) -> None:
        """Raise the dynamic shared memory limit to `size_bytes`; lower requests cost nothing."""
        if size_bytes <= self._dynamic_shared_bytes:
            return
        if size_bytes > MAX_DYNAMIC_SHARED_BYTES:
            raise ValueError(
                f"{self.name}: {size_bytes} bytes of shared memory asked, a CTA has at most "
                f"{MAX_DYNAMIC_SHARED_BYTES}"
            )
        names = driver().CUfunction_attribute
        limit = names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("cuFuncSetAttribute", self.handle, limit, size_bytes)
        self._dynamic_shared_bytes = size_bytes


class Module:
    """PTX or a cubin loaded into the current context."""

    def __init__(self, handle: Any, log: str) -> None:
        """Wrap a driver handle with the log of its loading."""
        self.handle, self.log = handle, log

    @classmethod
    def load(cls, image: str | bytes, *, log: bool = True, ordinal: int = 0) -> Module:
        """Load PTX text or cubin bytes; with `log`, keep what the JIT said in `.log`.

        The driver caches compiled PTX, and a cached kernel comes with an empty log.
        """
        activate(ordinal)
        data = image.encode() if isinstance(image, str) else image
        text = ctypes.create_string_buffer(data, len(data) + 1)
        address = ctypes.addressof(text)
        if not log:
            return cls(call("cuModuleLoadData", address), "")
        said, failed = bytearray(_LOG_BYTES), bytearray(_LOG_BYTES)
        names = driver().CUjit_option
        options = {
            names.CU_JIT_INFO_LOG_BUFFER: said,
            names.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: _LOG_BYTES,
            names.CU_JIT_ERROR_LOG_BUFFER: failed,
            names.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: _LOG_BYTES,
            names.CU_JIT_LOG_VERBOSE: 1,
        }
        try:
            handle = call(
                "cuModuleLoadDataEx", address, len(options), list(options), list(options.values())
            )
        except CudaError as error:
            raise CudaError(error.function, error.name, error.sentence, _text(failed)) from None
        return cls(handle, _text(said) + _text(failed))

    def function(self, name: str) -> Function:
        """The kernel called `name`."""
        return Function(name, call("cuModuleGetFunction", self.handle, name.encode()), self)

    @property
    def notes(self) -> list[AssemblerNote]:
        """The log, read."""
        return parse_assembler_log(self.log)


def _text(buffer: bytearray) -> str:
    return bytes(buffer).split(b"\0", 1)[0].decode(errors="replace")


# --- launch ------------------------------------------------------------------------------------


@dataclass
class Launch:
    """A launch with everything but the stream decided; calling it again costs one driver call.

    The device's context must be current on the calling thread (`activate`).  One thread at a time.
    """

    function: Function
    grid: Dim3
    block: Dim3
    shared_bytes: int
    arguments: Arguments
    cluster: Dim3 | None = None
    _config: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Build the driver's launch record once."""
        self.function.allow_shared(self.shared_bytes)
        api = driver()
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = self.block
        config.sharedMemBytes = self.shared_bytes
        config.numAttrs = 0
        if self.cluster is not None:
            attribute = api.CUlaunchAttribute()
            attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = api.CUlaunchAttributeValue()
            size.clusterDim.x, size.clusterDim.y, size.clusterDim.z = self.cluster
            attribute.value = size
            config.attrs = [attribute]
            config.numAttrs = 1
        self._config = config

    def __call__(self, stream: int = 0) -> None:
        """Put the kernel on `stream` (0 is the default stream)."""
        if 0 in self.grid:
            return  # nothing to do; the driver refuses an empty grid
        self._config.hStream = stream
        call("cuLaunchKernelEx", self._config, self.function.handle, self.arguments.address, 0)


def launch(
    function: Function,
    grid: Dim3,
    block: Dim3,
    shared_bytes: int,
    arguments: Arguments,
    stream: int = 0,
    cluster: Dim3 | None = None,
) -> None:
    """Launch once; keep a `Launch` instead when the same launch repeats."""
    Launch(function, grid, block, shared_bytes, arguments, cluster)(stream)
