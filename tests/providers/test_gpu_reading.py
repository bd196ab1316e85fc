"""What is read of the GPUs of a machine: through NVIDIA's binding, by nvidia-smi, or nothing."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pynvml
import pytest

from fleetctl.errors import CapacityError
from fleetctl.testing.nvml import FakeGpu, FakeNvmlLibrary, GpuMachine, gpu_machine, installed
from fleetctl_local import nvidia_smi
from fleetctl_local.gpu_choice import pick_gpus
from fleetctl_local.gpus import VISIBLE_GPUS, GpuReading, machine_gpus, visible_of
from tests.providers.gpu_readings import gpus

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30
SMI = """#!/bin/sh
echo "0, GPU-aa, NVIDIA L40S, 46068, 45000, [N/A]"
echo "1, GPU-bb, NVIDIA L40S, 46068, 12, Disabled"
echo "2, GPU-cc, NVIDIA A100-SXM4-80GB, 81920, 81000, Enabled"
"""


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VISIBLE_GPUS, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def read(machine: GpuMachine, *, lacks: tuple[str, ...] = ()) -> GpuReading:
    with installed(FakeNvmlLibrary(machine, lacks=lacks)) as library:
        found = machine_gpus()
        assert library.starts == 0  # ended as often as begun
    return found


def test_a_gpu_has_its_figures_and_who_uses_it():
    machine = gpu_machine(2, linked=2)
    machine.gpus[1].used_bytes, machine.gpus[1].pids = 5 * GIB, [os.getpid(), 2**22 + 1]
    found = read(machine)
    one, other = found.gpus
    assert (one.name, one.memory_bytes, one.free_bytes) == ("NVIDIA H100 80GB HBM3", 81559 * 2**20, 81559 * 2**20)
    assert one.memory_bytes_per_s == pytest.approx(3.35e12, rel=0.01)
    assert one.flops == pytest.approx(989.4e12, rel=0.01)
    assert one.has_fp8
    assert other.used_bytes == 5 * GIB
    assert f"(pid {os.getpid()})" in other.use()
    assert "5GiB of 79.6GiB in use" in other.use()
    assert found.distance(one, other) == 0


def test_mig_instances_stand_in_their_boards_place():
    machine = gpu_machine(2)
    machine.gpus[1].instances = [
        FakeGpu(uuid="MIG-1", name="NVIDIA H100 80GB HBM3 MIG 3g.40gb", memory_bytes=40 * GIB, multiprocessors=66),
        FakeGpu(uuid="MIG-2", name="NVIDIA H100 80GB HBM3 MIG 1g.10gb", memory_bytes=10 * GIB, multiprocessors=16),
    ]
    found = read(machine)
    assert [(gpu.index, gpu.visible_as, gpu.is_mig) for gpu in found.gpus] == [
        (0, "0", False), (1, "MIG-1", True), (1, "MIG-2", True),
    ]  # fmt: skip
    assert found.gpus[1].flops == pytest.approx(found.gpus[0].flops / 2)
    assert [gpu.uuid for gpu in pick_gpus(1, there=found, taken={found.gpus[0].uuid})] == ["MIG-1"]
    with pytest.raises(CapacityError, match="MIG instances among them, of which an engine can use one"):
        pick_gpus(2, there=found, taken=())


def test_one_lost_gpu_leaves_the_others():
    machine = gpu_machine(3)
    machine.gpus[1].is_lost = True
    found = read(machine)
    assert [gpu.index for gpu in found.gpus] == [0, 2]
    assert "GPU 1: GPU is lost" in found.problem


def test_what_an_old_driver_cannot_say_is_left_out():
    lacks = (
        "nvmlDeviceGetMigMode", "nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetComputeRunningProcesses_v3",
    )  # fmt: skip
    found = read(gpu_machine(2), lacks=lacks)
    assert [(gpu.memory_bytes_per_s, gpu.flops, gpu.users) for gpu in found.gpus] == [(0.0, 0.0, ())] * 2
    assert found.distances == {}
    assert len(pick_gpus(2, there=found, taken=())) == 2


def test_a_driver_that_does_not_answer_is_a_problem_and_no_gpu():
    machine = gpu_machine(2)
    machine.error = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    found = read(machine)
    assert found.gpus == ()
    assert "version mismatch" in found.problem
    machine.error = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert read(machine) == GpuReading()


def test_nvidia_smi_is_asked_where_nvml_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    machine = gpu_machine(2)
    machine.error = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    found = read(machine)
    assert found.source == "nvidia-smi"
    assert [(gpu.uuid, gpu.free_bytes >> 20) for gpu in found.gpus] == [("GPU-aa", 45000), ("GPU-bb", 12)]
    assert found.problem == "GPU 2: MIG instances are seen by NVML alone"
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found' >&2; exit 6\n")
    assert nvidia_smi.read().problem == "exit 6: No devices were found"


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, [0, 1, 2]), ("", []), ("2,0", [0, 2]), ("GPU-00000001", [1]), ("1,9,0", [1]), ("-1", []), ("GPU-", []),
    ],
)  # fmt: skip
def test_what_cuda_would_not_see_is_not_there(visible, seen):
    assert [gpu.index for gpu in visible_of(gpus(3)(), visible).gpus] == seen


def test_memory_in_use_by_others_keeps_a_gpu_from_engines_that_need_it():
    machine = gpu_machine(2)
    machine.gpus[0].used_bytes = 10 * GIB
    there = read(machine)
    assert [gpu.index for gpu in pick_gpus(1, there=there, taken=(), memory_fraction=0.9)] == [1]
    assert [gpu.index for gpu in pick_gpus(1, there=there, taken=(), memory_fraction=0.8)] == [0]
    with pytest.raises(
        CapacityError, match=r"2 GPUs are needed, and 1 of .* 2 are free; GPU 0: 10GiB of 79.6GiB in use"
    ):
        pick_gpus(2, there=there, taken=(), memory_fraction=0.9)


def test_a_single_gpu_comes_from_a_pair_that_is_broken_already():
    there = gpus(8, linked=2)()
    held = {there.gpus[2].uuid}
    assert [gpu.index for gpu in pick_gpus(1, there=there, taken=held)] == [3]
    assert [gpu.index for gpu in pick_gpus(2, there=there, taken=held)] == [0, 1]
    assert [gpu.index for gpu in pick_gpus(4, there=gpus(8, linked=4)(), taken={there.gpus[1].uuid})] == [4, 5, 6, 7]


def test_sixteen_gpus_are_chosen_from():
    there = gpus(16, linked=8)()
    assert [gpu.index for gpu in pick_gpus(8, there=there, taken={there.gpus[0].uuid})] == list(range(8, 16))


def test_a_machine_without_a_driver_imports_no_binding():
    import subprocess

    script = (
        "import sys; from fleetctl_local.gpus import machine_gpus; print(machine_gpus().gpus, 'pynvml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "() False"
