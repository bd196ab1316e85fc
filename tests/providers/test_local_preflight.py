"""What the local provider finds wanting on this machine."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.model.preflight import Finding, PlannedNodes, Verdict
from fleetctl.testing.nvml import FakeNvmlLibrary, gpu_machine, installed
from fleetctl.testing.samples import offering
from fleetctl_local.gpus import VISIBLE_GPUS
from fleetctl_local.machine import MachineHeadroom, read_headroom
from fleetctl_local.provider import LocalProvider

GIB = 2**30
AMPLE = MachineHeadroom(
    open_files_max=1_000_000, processes_left=10_000, memory_left_bytes=64 * GIB,
    directory=Path("/var/fleetctl"), disk_left_bytes=64 * GIB, is_writable=True,
)  # fmt: skip


def found(headroom: MachineHeadroom, *, count: int = 6, gpu_count: int = 0, gpus: int = 0) -> dict[str, Finding]:
    provider = LocalProvider(headroom=lambda: headroom)
    nodes = (PlannedNodes(offering=offering(), count=count, to_create=count, gpu_count=gpu_count),)
    with installed(FakeNvmlLibrary(gpu_machine(gpus))):
        return {finding.name: finding for finding in asyncio.run(provider.findings(nodes))}


@pytest.fixture(autouse=True)
def _every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VISIBLE_GPUS, raising=False)


def test_a_roomy_machine_has_nothing_to_mend():
    assert {finding.verdict for finding in found(AMPLE).values()} == {Verdict.OK}


@pytest.mark.parametrize(
    ("name", "short", "verdict"),
    [
        ("open files", replace(AMPLE, open_files_max=64), Verdict.FAIL),
        ("open files", replace(AMPLE, open_files_max=1024), Verdict.WARN),
        ("processes", replace(AMPLE, processes_left=10), Verdict.FAIL),
        ("memory", replace(AMPLE, memory_left_bytes=GIB // 8), Verdict.FAIL),
        ("memory", replace(AMPLE, memory_left_bytes=GIB // 2), Verdict.WARN),
        ("disk", replace(AMPLE, disk_left_bytes=1), Verdict.FAIL),
        ("disk", replace(AMPLE, disk_left_bytes=GIB // 2), Verdict.WARN),
        ("disk", replace(AMPLE, is_writable=False), Verdict.FAIL),
    ],
)
def test_what_is_short_is_named_with_what_to_do(name, short, verdict):
    findings = found(short)
    assert findings[name].verdict is verdict
    assert findings[name].hint
    assert {finding.verdict for other, finding in findings.items() if other != name} == {Verdict.OK}


def test_more_replicas_take_more():
    assert found(replace(AMPLE, open_files_max=2048), count=4)["open files"].verdict is Verdict.OK
    assert found(replace(AMPLE, open_files_max=2048), count=600)["open files"].verdict is Verdict.FAIL
    assert found(replace(AMPLE, memory_left_bytes=4 * GIB), count=200)["memory"].verdict is Verdict.FAIL


@pytest.mark.parametrize(("gpus", "verdict"), [(0, Verdict.WARN), (2, Verdict.FAIL), (4, Verdict.OK)])
def test_the_gpus_to_pin_must_be_there_and_free(gpus, verdict):
    assert found(AMPLE, count=2, gpu_count=2, gpus=gpus)["GPUs"].verdict is verdict


def test_the_variable_that_hides_gpus_is_named(monkeypatch):
    monkeypatch.setenv(VISIBLE_GPUS, "7")
    assert "CUDA_VISIBLE_DEVICES=7" in found(AMPLE, gpu_count=1)["GPUs"].detail


def test_this_machine_is_really_read():
    headroom = read_headroom()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert headroom.open_files_max == (None if hard == resource.RLIM_INFINITY else hard)
    assert headroom.disk_left_bytes > 0
    assert headroom.is_writable
    assert headroom.memory_left_bytes is None or headroom.memory_left_bytes > 0
    assert headroom.processes_left is None or headroom.processes_left >= 0
