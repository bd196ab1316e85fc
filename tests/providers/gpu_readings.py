"""GPUs of machines that have none, as the local provider reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.testing.nvml import FakeNvmlLibrary, gpu_machine, installed
from fleetctl_local import nvml

if TYPE_CHECKING:
    from fleetctl_local.gpus import GpuReader


def gpus(count: int, *, linked: int = 0) -> GpuReader:
    """Return the reader of a machine of `count` GPUs, read once through NVIDIA's binding."""
    with installed(FakeNvmlLibrary(gpu_machine(count, linked=linked))):
        reading = nvml.read()
    return lambda: reading
