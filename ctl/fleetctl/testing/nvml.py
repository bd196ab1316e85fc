"""A machine with GPUs that are not there: stands where the driver's library does, under NVIDIA's own binding of it.

What it answers it writes through the pointers that the binding passes, as libnvidia-ml.so.1 would; the calls, the structures
and the error codes are the binding's. A process of its own gets one by `shim`, a directory for its PYTHONPATH.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pynvml

from fleetctl import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

# What the binding passes through ctypes: handles, numbers, pointers to where an answer goes.
Passed: TypeAlias = Any
_GIB = 2**30
_NVLINK, _SAME_SWITCH = 0, 10  # distances of `GpuMachine`; others are NVML's levels


@dataclass(slots=True, kw_only=True)
class FakeGpu:
    """What the library says of a GPU or of a MIG instance; the figures are an H100's."""

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    memory_bytes: int = 81559 * 2**20
    used_bytes: int = 0
    pids: list[int] = field(default_factory=list)  # that compute on it
    instances: list[FakeGpu] = field(default_factory=list)  # MIG is on where there is one
    multiprocessors: int = 132
    cores: int = 16896
    capability: tuple[int, int] = (9, 0)
    memory_bus_bits: int = 5120
    memory_mhz: int = 2619
    sm_mhz: int = 1830
    is_lost: bool = False  # it fell off the bus


@dataclass(slots=True, kw_only=True)
class GpuMachine:
    """A machine's GPUs, and how they are linked."""

    gpus: list[FakeGpu]
    links: list[list[int]] = field(default_factory=list)  # groups of indices joined by NVLink
    error: int = 0  # that the library's start answers with; 0: none


class FakeNvmlLibrary:
    """Answers as libnvidia-ml.so.1 does, of a machine that may change meanwhile. A function it lacks an old driver lacks too."""

    def __init__(self, machine: GpuMachine, *, lacks: Sequence[str] = ()) -> None:
        self.machine = machine
        self._lacks = frozenset(lacks)
        self._handles: list[FakeGpu] = []
        self.starts = 0

    def __getattr__(self, name: str) -> Callable[..., object]:
        answer = _ANSWERS.get(name)
        if answer is None or name in self._lacks:
            raise AttributeError(name)

        def call(*arguments: Passed) -> object:
            return answer(self, *arguments)

        return call  # a plain function, since the binding sets the type of its result on it

    def handle(self, gpu: FakeGpu) -> int:
        """Return the handle the library gives out for a GPU: never 0, and the same each time."""
        if all(gpu is not known for known in self._handles):
            self._handles.append(gpu)
        return 1 + next(number for number, known in enumerate(self._handles) if known is gpu)

    def at(self, handle: Passed) -> FakeGpu:
        """Return the GPU of a handle."""
        return self._handles[(ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1]


@contextmanager
def installed(library: FakeNvmlLibrary) -> Iterator[FakeNvmlLibrary]:
    """Put the library in the place of the driver's in this process, and take it away again."""
    before = pynvml.nvmlLib
    _install(library)
    try:
        yield library
    finally:
        _install(before)


def install_from(path: Path) -> None:
    """Put the machine that a file describes in the place of this process's driver. It is read at each start of the library."""
    library = FakeNvmlLibrary(_described(path))
    library.read_again = lambda: _described(path)  # type: ignore[attr-defined]  # only where a file says what there is
    _install(library)


def shim(directory: Path, machine: GpuMachine) -> Path:
    """Return a directory that, on a process's PYTHONPATH, gives it this machine's GPUs; `machine.json` in it may change."""
    directory.mkdir(parents=True, exist_ok=True)
    describe(directory, machine)
    described = str(directory / "machine.json")
    (directory / "sitecustomize.py").write_text(
        f"from pathlib import Path\nfrom fleetctl.testing.nvml import install_from\ninstall_from(Path({described!r}))\n"
    )
    return directory


def describe(directory: Path, machine: GpuMachine) -> None:
    """Write what the machine of a shim is from now on."""
    changed = directory / "machine.json.new"
    changed.write_bytes(codec.encode(machine))
    changed.replace(directory / "machine.json")


def gpu_machine(count: int, *, linked: int = 0, **figures: Passed) -> GpuMachine:
    """Return a machine of `count` equal GPUs, NVLink joining each `linked` of them; 0: all over PCIe."""
    gpus = [FakeGpu(uuid=f"GPU-{number:08x}-0000-4000-8000-{number:012x}", **figures) for number in range(count)]
    groups = [list(range(first, min(first + linked, count))) for first in range(0, count, linked)] if linked else []
    return GpuMachine(gpus=gpus, links=groups)


def _install(library: FakeNvmlLibrary | None) -> None:
    pynvml.nvmlLib = library
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001  # it keeps the functions of the library before


def _described(path: Path) -> GpuMachine:
    return codec.decode(GpuMachine, path.read_bytes())


def _target(pointer: Passed) -> Passed:
    """Return what a pointer that ctypes passes leads to."""
    return pointer._obj  # noqa: SLF001  # ctypes has no public name for it


def _start(library: FakeNvmlLibrary, _flags: object = 0) -> int:
    read_again = library.__dict__.get("read_again")
    if read_again is not None:
        library.machine = read_again()
    library.starts += not library.machine.error
    return library.machine.error


def _end(library: FakeNvmlLibrary) -> int:
    library.starts -= 1
    return int(pynvml.NVML_SUCCESS)


def _error_text(_library: FakeNvmlLibrary, code: int) -> bytes:
    return f"error {code}".encode()


def _number(read: Callable[[FakeGpu], int]) -> Callable[..., int]:
    """Return a function of the library that writes one number about a GPU."""

    def answer(library: FakeNvmlLibrary, handle: Passed, *rest: Passed) -> int:
        _target(rest[-1]).value = read(library.at(handle))
        return int(pynvml.NVML_SUCCESS)

    return answer


def _text(read: Callable[[FakeGpu], str]) -> Callable[..., int]:
    def answer(library: FakeNvmlLibrary, handle: Passed, buffer: Passed, _size: object) -> int:
        buffer.value = read(library.at(handle)).encode()
        return int(pynvml.NVML_SUCCESS)

    return answer


def _count(library: FakeNvmlLibrary, count: Passed) -> int:
    _target(count).value = len(library.machine.gpus)
    return int(pynvml.NVML_SUCCESS)


def _by_index(library: FakeNvmlLibrary, index: Passed, device: Passed) -> int:
    if index.value >= len(library.machine.gpus):
        return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    gpu = library.machine.gpus[index.value]
    return int(pynvml.NVML_ERROR_GPU_IS_LOST) if gpu.is_lost else _give(library, gpu, device)


def _instance_by_index(library: FakeNvmlLibrary, handle: Passed, index: Passed, device: Passed) -> int:
    instances = library.at(handle).instances
    if index.value >= len(instances):
        return int(pynvml.NVML_ERROR_NOT_FOUND)
    return _give(library, instances[index.value], device)


def _give(library: FakeNvmlLibrary, gpu: FakeGpu, device: Passed) -> int:
    handle = ctypes.c_void_p(library.handle(gpu))
    ctypes.memmove(device, ctypes.byref(handle), ctypes.sizeof(handle))
    return int(pynvml.NVML_SUCCESS)


def _memory(library: FakeNvmlLibrary, handle: Passed, memory: Passed) -> int:
    gpu = library.at(handle)
    _target(memory).total, _target(memory).used = gpu.memory_bytes, gpu.used_bytes
    _target(memory).free = gpu.memory_bytes - gpu.used_bytes
    return int(pynvml.NVML_SUCCESS)


def _mig_mode(library: FakeNvmlLibrary, handle: Passed, current: Passed, pending: Passed) -> int:
    _target(current).value = _target(pending).value = int(bool(library.at(handle).instances))
    return int(pynvml.NVML_SUCCESS)


def _attributes(library: FakeNvmlLibrary, handle: Passed, attributes: Passed) -> int:
    gpu = library.at(handle)
    _target(attributes).multiprocessorCount = gpu.multiprocessors
    _target(attributes).memorySizeMB = gpu.memory_bytes >> 20
    return int(pynvml.NVML_SUCCESS)


def _capability(library: FakeNvmlLibrary, handle: Passed, major: Passed, minor: Passed) -> int:
    _target(major).value, _target(minor).value = library.at(handle).capability
    return int(pynvml.NVML_SUCCESS)


def _clock(library: FakeNvmlLibrary, handle: Passed, kind: Passed, clock: Passed) -> int:
    gpu = library.at(handle)
    _target(clock).value = gpu.memory_mhz if kind.value == pynvml.NVML_CLOCK_MEM else gpu.sm_mhz
    return int(pynvml.NVML_SUCCESS)


def _processes(library: FakeNvmlLibrary, handle: Passed, count: Passed, found: Passed) -> int:
    pids = library.at(handle).pids
    if found is None:
        _target(count).value = len(pids)
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE if pids else pynvml.NVML_SUCCESS)
    _target(count).value = len(pids)
    for each, pid in zip(found, pids, strict=False):
        each.pid, each.usedGpuMemory = pid, _GIB
    return int(pynvml.NVML_SUCCESS)


def _apart(library: FakeNvmlLibrary, one: Passed, other: Passed) -> int:
    gpus = library.machine.gpus
    pair = {next(n for n, gpu in enumerate(gpus) if gpu is library.at(each)) for each in (one, other)}
    linked = any(pair <= set(group) for group in library.machine.links)
    return _NVLINK if linked else int(pynvml.NVML_TOPOLOGY_SYSTEM)


def _p2p(library: FakeNvmlLibrary, one: Passed, other: Passed, _what: object, status: Passed) -> int:
    is_linked = _apart(library, one, other) == _NVLINK
    _target(status).value = pynvml.NVML_P2P_STATUS_OK if is_linked else pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
    return int(pynvml.NVML_SUCCESS)


def _ancestor(library: FakeNvmlLibrary, one: Passed, other: Passed, level: Passed) -> int:
    _target(level).value = _apart(library, one, other) or _SAME_SWITCH
    return int(pynvml.NVML_SUCCESS)


_ANSWERS: dict[str, Callable[..., object]] = {
    "nvmlInitWithFlags": _start,
    "nvmlShutdown": _end,
    "nvmlErrorString": _error_text,
    "nvmlDeviceGetCount_v2": _count,
    "nvmlDeviceGetHandleByIndex_v2": _by_index,
    "nvmlDeviceGetUUID": _text(lambda gpu: gpu.uuid),
    "nvmlDeviceGetName": _text(lambda gpu: gpu.name),
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetMigMode": _mig_mode,
    "nvmlDeviceGetMaxMigDeviceCount": _number(lambda _gpu: 7),
    "nvmlDeviceGetMigDeviceHandleByIndex": _instance_by_index,
    "nvmlDeviceGetAttributes_v2": _attributes,
    "nvmlDeviceGetComputeRunningProcesses_v3": _processes,
    "nvmlDeviceGetP2PStatus": _p2p,
    "nvmlDeviceGetTopologyCommonAncestor": _ancestor,
    "nvmlDeviceGetMemoryBusWidth": _number(lambda gpu: gpu.memory_bus_bits),
    "nvmlDeviceGetMaxClockInfo": _clock,
    "nvmlDeviceGetNumGpuCores": _number(lambda gpu: gpu.cores),
    "nvmlDeviceGetCudaComputeCapability": _capability,
}
