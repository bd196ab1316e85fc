"""Reads the GPUs of this machine from NVML, the driver's own library, through NVIDIA's binding of it."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from fleetctl_local.gpus import Gpu, GpuReading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Untyped: TypeAlias = Any  # the binding has no types: its handles, structures and the module itself
_log = logging.getLogger("fleetctl_local")
_NAME, _LIBRARY = "NVML", "libnvidia-ml.so.1"
_USERS_MAX = 4
_MHZ = 1e6
_TRANSFERS_PER_CLOCK = 2  # GDDR and HBM move data on both edges: 2,619 MHz x 5,120 bits x 2 / 8 are an H100's 3.35 TB/s
# By compute capability: CUDA cores of a multiprocessor, and its dense 16-bit FLOP per clock on the tensor cores
# (architecture whitepapers of Volta to Blackwell; they give the datasheets' figures to 3 %).
_ARCHITECTURES: dict[tuple[int, int], tuple[int, int]] = {
    (7, 0): (64, 1024), (7, 5): (64, 1024), (8, 0): (64, 2048), (8, 6): (128, 1024), (8, 9): (128, 1024),
    (9, 0): (128, 4096), (10, 0): (128, 8192), (10, 3): (128, 8192), (12, 0): (128, 1024),
}  # fmt: skip
_BF16_SINCE, _FP8_SINCE = (8, 0), (8, 9)
_UNSAID = (0, 0)
_HALVED = "GeForce"  # these run at half speed where sums are kept in 32 bits, as engines keep them
_T = TypeVar("_T")


def read() -> GpuReading:
    """Return what NVML shows; without a driver nothing, and what keeps one from answering as the reading's problem."""
    if not _is_there():
        return GpuReading()
    try:
        import pynvml
    except ImportError:
        return GpuReading()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as exc:
        # Neither the library nor its driver is there: a machine without GPUs, and nothing to tell of.
        if exc.value in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
            return GpuReading()
        return GpuReading(source=_NAME, problem=str(exc))
    try:
        return _Reader(pynvml).read()
    except pynvml.NVMLError as exc:
        return GpuReading(source=_NAME, problem=str(exc))
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _is_there() -> bool:
    """Whether the driver's library can be loaded. Importing its binding takes 20 ms, which a machine without it need not pay."""
    if "pynvml" in sys.modules:
        return True
    import ctypes

    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    return True


class _Reader:
    """One look. What a card or a driver cannot say is left out; that it cannot be reached at all is raised."""

    def __init__(self, nvml: Untyped) -> None:
        self._nvml = nvml

    def read(self) -> GpuReading:
        devices: list[tuple[int, Untyped]] = []
        lost = ""
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                devices.append((index, self._nvml.nvmlDeviceGetHandleByIndex(index)))
            except self._nvml.NVMLError as exc:  # it fell off the bus; the others work on
                lost = f"GPU {index}: {exc}"
                _log.warning("NVML: %s", lost)
        gpus: list[Gpu] = []
        whole: list[tuple[str, Untyped]] = []
        for index, device in devices:
            instances = tuple(self._instances(index, device))
            if self._has_mig(device):
                gpus += instances  # the device itself computes nothing then
            else:
                gpus.append(self._gpu(index, device))
                whole.append((gpus[-1].uuid, device))
        distances = {
            (min(one, other), max(one, other)): apart
            for (one, one_device), (other, other_device) in combinations(whole, 2)
            if (apart := self._distance(one_device, other_device)) is not None
        }
        return GpuReading(gpus=tuple(gpus), distances=distances, source=_NAME, problem=lost)

    def _gpu(self, index: int, device: Untyped) -> Gpu:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(device)
        capability = self._or_else(lambda: tuple(self._nvml.nvmlDeviceGetCudaComputeCapability(device)), _UNSAID)
        return Gpu(
            uuid=self._nvml.nvmlDeviceGetUUID(device),
            index=index,
            name=self._nvml.nvmlDeviceGetName(device),
            memory_bytes=int(memory.total),
            free_bytes=int(memory.free),
            users=self._users(device),
            memory_bytes_per_s=self._bandwidth(device),
            flops=self._flops(device, capability),
            has_bf16=capability == _UNSAID or capability >= _BF16_SINCE,
            has_fp8=capability >= _FP8_SINCE,
        )

    def _instances(self, index: int, device: Untyped) -> Iterator[Gpu]:
        if not self._has_mig(device):
            return
        whole = self._gpu(index, device)
        for number in range(self._or_else(lambda: self._nvml.nvmlDeviceGetMaxMigDeviceCount(device), 0)):
            found = self._or_else(partial(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, device, number), None)
            if found is not None:
                yield self._instance(whole, device, found)

    def _instance(self, whole: Gpu, device: Untyped, instance: Untyped) -> Gpu:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(instance)
        attributes = self._or_else(lambda: self._nvml.nvmlDeviceGetAttributes(instance), None)
        processors = self._processors(device)
        share = attributes.multiprocessorCount / processors if attributes and processors else 0.0
        return Gpu(
            uuid=self._nvml.nvmlDeviceGetUUID(instance),
            index=whole.index,
            name=self._nvml.nvmlDeviceGetName(instance),
            memory_bytes=int(memory.total),
            free_bytes=int(memory.free),
            users=self._users(instance),
            # Memory slices come with their part of the bus.
            memory_bytes_per_s=whole.memory_bytes_per_s * min(1.0, memory.total / whole.memory_bytes),
            flops=whole.flops * share,
            has_bf16=whole.has_bf16,
            has_fp8=whole.has_fp8,
            is_mig=True,
        )

    def _has_mig(self, device: Untyped) -> bool:
        mode = self._or_else(lambda: self._nvml.nvmlDeviceGetMigMode(device)[0], self._nvml.NVML_DEVICE_MIG_DISABLE)
        return bool(mode == self._nvml.NVML_DEVICE_MIG_ENABLE)

    def _distance(self, one: Untyped, other: Untyped) -> int | None:
        """Return 0 for NVLink, else NVML's level of the first thing they share: 10 a switch, 30 a host bridge, 50 nothing."""
        nvml = self._nvml
        linked = self._or_else(lambda: nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK), None)
        if linked == nvml.NVML_P2P_STATUS_OK:
            return 0
        level = self._or_else(lambda: nvml.nvmlDeviceGetTopologyCommonAncestor(one, other), None)
        return None if level is None else max(1, int(level))

    def _users(self, device: Untyped) -> tuple[str, ...]:
        found: list[Untyped] = self._or_else(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(device), [])
        named = tuple(f"{_process_name(each.pid)} (pid {each.pid})" for each in found[:_USERS_MAX])
        return named if len(found) <= _USERS_MAX else (*named, f"{len(found) - _USERS_MAX} more")

    def _bandwidth(self, device: Untyped) -> float:
        bits = self._or_else(lambda: self._nvml.nvmlDeviceGetMemoryBusWidth(device), 0)
        mhz = self._or_else(lambda: self._nvml.nvmlDeviceGetMaxClockInfo(device, self._nvml.NVML_CLOCK_MEM), 0)
        return float(bits / 8 * mhz * _MHZ * _TRANSFERS_PER_CLOCK)

    def _flops(self, device: Untyped, capability: tuple[int, int]) -> float:
        _, per_clock = _ARCHITECTURES.get(capability, (0, 0))
        mhz = self._or_else(lambda: self._nvml.nvmlDeviceGetMaxClockInfo(device, self._nvml.NVML_CLOCK_SM), 0)
        halved = 2 if _HALVED in self._nvml.nvmlDeviceGetName(device) else 1
        return self._processors(device) * per_clock * mhz * _MHZ / halved

    def _processors(self, device: Untyped) -> float:
        capability = self._or_else(lambda: tuple(self._nvml.nvmlDeviceGetCudaComputeCapability(device)), (0, 0))
        cores, _ = _ARCHITECTURES.get(capability, (0, 0))
        return self._or_else(lambda: self._nvml.nvmlDeviceGetNumGpuCores(device), 0) / cores if cores else 0.0

    def _or_else(self, call: Callable[[], _T], otherwise: _T) -> _T:
        """Return an answer, or `otherwise` where this card, driver or binding has none."""
        try:
            return call()
        except (self._nvml.NVMLError, self._nvml.NVMLLibraryMismatchError):
            return otherwise


def _process_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "a process of another container or user"
