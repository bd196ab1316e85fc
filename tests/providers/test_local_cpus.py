"""A machine without GPUs, shared out: CPUs pinned to real processes, and their part of the memory."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.cpu_share import CpuShare
from fleetctl.model.node import NodeState
from fleetctl.model.preflight import PlannedNodes, Verdict
from fleetctl.testing.nvml import FakeNvmlLibrary, gpu_machine, installed
from fleetctl.testing.orders import as_it_is, listed
from fleetctl.testing.samples import node_request, offering
from fleetctl_local import kernel
from fleetctl_local.cpus import CpuReading, machine_cpus, pick_cpus, share_environment
from fleetctl_local.provider import LocalProvider
from tests.providers.conftest import tagged_pids
from tests.providers.gpu_readings import gpus

if TYPE_CHECKING:
    from fleetctl.model.node import Node, NodeRequest

GIB = 2**30
SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")
SHARE = CpuShare(
    parts=2, fixed_bytes=3 * GIB, kv_bytes_min=GIB, kv_space_env="KV_CACHE_SPACE", threads_env="COMPUTE_THREADS"
)
pinned = pytest.mark.skipif(not kernel.IS_LINUX, reason="only Linux pins processes to CPUs")


def machine(count: int, *, memory_gib: int = 64) -> CpuReading:
    return CpuReading(cpus=tuple(range(count)), count=count, memory_bytes=memory_gib * GIB)


def order(owner: str, replica_id: str, *, share: CpuShare | None = SHARE, gpu_count: int = 1) -> NodeRequest:
    token = f"t-{replica_id}"
    return node_request(token, owner=owner, replica_id=replica_id, argv=SLEEPER, gpu_count=gpu_count, cpu=share)


async def created(provider: LocalProvider, *orders: NodeRequest) -> list[Node]:
    results = await provider.create(orders, resolve_secrets=as_it_is)
    for result in results:
        if result.error is not None:
            raise result.error
    return [result.node for result in results if result.node is not None]


def engine_pid(owner: str, replica_id: str) -> int:
    """Return the pid of a replica's engine: the leader of its session."""
    return next(pid for pid in tagged_pids(owner, {"FLEETCTL_REPLICA": replica_id}) if os.getsid(pid) == pid)


def autogroup_niceness(pid: int) -> str | None:
    """Return it as the kernel says it; None: it has no autogroups, or they are turned off."""
    path = Path(f"/proc/{pid}/autogroup")
    return next(iter(path.read_text().split()[2:]), None) if path.exists() else None


@given(
    count=st.integers(1, 64),
    parts=st.integers(1, 80),
    steps=st.lists(st.booleans(), max_size=120),
)
def test_planned_replicas_have_cpus_of_their_own_and_more_are_spread_evenly(count, parts, steps):
    there, share = machine(count), replace(SHARE, parts=parts)
    live: list[tuple[int, ...]] = []
    for is_start in steps:
        if is_start or not live:
            live.append(pick_cpus(share, there, [cpu for each in live for cpu in each]))
        else:
            live.pop(0)
        assert {len(each) for each in live} <= {count // parts}
    fresh: list[tuple[int, ...]] = []
    for _ in range(parts):
        fresh.append(pick_cpus(share, there, [cpu for each in fresh for cpu in each]))
    held = [cpu for each in fresh for cpu in each]
    assert len(held) == len(set(held)) == parts * (count // parts)
    more = pick_cpus(share, there, held)
    free = set(there.cpus) - set(held)
    assert len(free & set(more)) == min(len(free), len(more))


def test_a_containers_limit_counts_and_not_what_it_sees():
    there = CpuReading(cpus=tuple(range(64)), count=8, memory_bytes=32 * GIB)
    assert pick_cpus(SHARE, there, ()) == (0, 1, 2, 3)
    assert pick_cpus(SHARE, there, (0, 1, 2, 3)) == (4, 5, 6, 7)


def test_an_engine_hears_of_its_share():
    # 64 GiB, nine tenths of them in two parts, less three for weights and process
    assert share_environment(SHARE, machine(8)) == {"COMPUTE_THREADS": "4", "KV_CACHE_SPACE": "25"}
    assert share_environment(replace(SHARE, kv_space_env="", threads_env=""), machine(8)) == {}
    assert share_environment(replace(SHARE, parts=9), machine(8))["COMPUTE_THREADS"] == "1"


def test_a_rollouts_replica_has_memory_left_for_it_where_there_is_enough() -> None:
    surging = replace(SHARE, surge=1, surge_fixed_bytes=3 * GIB)
    # Nine tenths of 64 GiB, less three parts of three for weights and process, in three.
    assert share_environment(surging, machine(8))["KV_CACHE_SPACE"] == "16"
    # Too little for three: the planned two have it all.
    small = machine(8, memory_gib=12)
    assert share_environment(surging, small) == share_environment(SHARE, small)
    assert pick_cpus(surging, machine(8), ()) == pick_cpus(SHARE, machine(8), ())


def test_unlike_models_share_what_their_weights_leave() -> None:
    small, large = 2 * GIB, 30 * GIB
    shares = [replace(SHARE, fixed_bytes=own, fixed_bytes_all=small + large) for own in (small, large)]
    assert [share_environment(each, machine(8))["KV_CACHE_SPACE"] for each in shares] == ["12", "12"]


@pinned
async def test_each_engine_process_runs_on_its_own_cpus_and_its_children_too(owner: str) -> None:
    here = machine_cpus()
    share = replace(SHARE, parts=here.count)
    provider = LocalProvider(gpus=gpus(0), cpus=lambda: replace(here, memory_bytes=64 * here.count * GIB))
    before = os.sched_getaffinity(0)
    orders = [order(owner, f"r{n}", share=share) for n in range(here.count)]
    nodes = await created(provider, *orders)
    held = [cpu for node in nodes for cpu in node.cpus]
    assert len(held) == len(set(held)) == here.count
    for node in nodes:
        pid = engine_pid(owner, node.replica_id)
        assert os.sched_getaffinity(pid) == set(node.cpus)
        assert kernel.environment(pid)["COMPUTE_THREADS"] == "1"
        assert kernel.environment(pid)["KV_CACHE_SPACE"] == "54"
    assert os.sched_getaffinity(0) == before
    # Of one that is killed they go to its replacement, whichever process starts it.
    os.kill(engine_pid(owner, "r0"), signal.SIGKILL)
    restarted = LocalProvider(gpus=gpus(0), cpus=lambda: here)
    async with asyncio.timeout(20):
        while all(node.state is not NodeState.GONE for node in await listed(restarted, owner=owner, fleet="demo")):
            await SYSTEM_CLOCK.sleep(0.02)
    (again,) = await created(restarted, order(owner, "again", share=share))
    assert again.cpus == nodes[0].cpus


@pinned
async def test_memory_that_replicas_hold_already_is_still_theirs_to_share(owner: str) -> None:
    there = machine(2, memory_gib=8)
    hungry = (sys.executable, "-c", "import time; held = bytes(range(256)) * 2**20; time.sleep(600)")  # 256 MiB
    provider = LocalProvider(gpus=gpus(0), cpus=lambda: there)
    share = replace(SHARE, fixed_bytes=0, kv_space_env="")
    await created(provider, replace(order(owner, "r1", share=share), argv=hungry))
    nodes = (PlannedNodes(offering=offering(), count=2, to_create=1, gpu_count=1, cpu=share),)

    async def shared_out() -> str:
        return next(each.detail for each in await provider.findings(nodes) if each.name == "CPUs")

    async with asyncio.timeout(20):
        while not (await shared_out()).startswith("2 CPUs and 8.2"):
            await SYSTEM_CLOCK.sleep(0.05)


@pinned
async def test_what_needs_no_share_runs_anywhere(owner: str) -> None:
    without = LocalProvider(gpus=gpus(0))
    with_gpus = LocalProvider(gpus=gpus(2))
    nodes = [
        *await created(without, order(owner, "r1", share=None), order(owner, "r2", gpu_count=0)),
        *await created(with_gpus, order(owner, "r3")),
    ]
    assert [node.cpus for node in nodes] == [(), (), ()]
    for node in nodes:
        pid = engine_pid(owner, node.replica_id)
        assert os.sched_getaffinity(pid) == os.sched_getaffinity(0)
        assert "KV_CACHE_SPACE" not in kernel.environment(pid)


@pinned
async def test_engines_on_shared_cpus_go_behind_the_gateway_for_a_processor(owner: str) -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    await created(LocalProvider(gpus=gpus(0)), replace(order(owner, "r1"), argv=(sys.executable, "-c", child)))
    nice = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5)
    async with asyncio.timeout(20):
        while len(processes := tagged_pids(owner, {"FLEETCTL_REPLICA": "r1"})) < 2:
            await SYSTEM_CLOCK.sleep(0.02)
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in processes] == [nice, nice]
    assert autogroup_niceness(engine_pid(owner, "r1")) in ("5", None)


@pinned
async def test_engines_with_gpus_or_no_share_keep_their_priority(owner: str) -> None:
    await created(LocalProvider(gpus=gpus(0)), order(owner, "r1", share=None))
    await created(LocalProvider(gpus=gpus(2)), order(owner, "r2"))
    for replica_id in ("r1", "r2"):
        assert os.getpriority(os.PRIO_PROCESS, engine_pid(owner, replica_id)) == os.getpriority(os.PRIO_PROCESS, 0)


@pinned
async def test_what_the_profile_sets_goes_before_the_share(owner: str) -> None:
    provider = LocalProvider(gpus=gpus(0))
    await created(provider, replace(order(owner, "r1"), env={"KV_CACHE_SPACE": "7"}))
    assert kernel.environment(engine_pid(owner, "r1"))["KV_CACHE_SPACE"] == "7"


@pytest.mark.parametrize(
    ("there", "gpu_count", "verdict", "words"),
    [
        (machine(8), 0, Verdict.OK, "8 CPUs and 64GiB, shared out to 2 replicas: 4 each, and 25.8GiB for KV cache"),
        (machine(1), 0, Verdict.WARN, "none has one to itself"),
        (machine(8, memory_gib=8), 0, Verdict.FAIL, "3GiB for one's weights and process"),
        (machine(8, memory_gib=8), 2, None, ""),
    ],
)
def test_before_the_start_the_shares_are_shown_or_refused(there, gpu_count, verdict, words, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    provider = LocalProvider(cpus=lambda: there)
    nodes = (PlannedNodes(offering=offering(), count=2, to_create=2, gpu_count=1, cpu=SHARE),)
    with installed(FakeNvmlLibrary(gpu_machine(gpu_count))):
        findings = {finding.name: finding for finding in asyncio.run(provider.findings(nodes))}
    if verdict is None:
        assert "CPUs" not in findings
        return
    assert findings["CPUs"].verdict is verdict
    assert words in findings["CPUs"].detail
    assert bool(findings["CPUs"].hint) == (verdict is not Verdict.OK)


def test_this_machine_is_really_read():
    here = machine_cpus()
    assert here.count >= 1
    assert not kernel.IS_LINUX or set(here.cpus) == os.sched_getaffinity(0)
    assert here.memory_bytes > GIB // 4
    assert not kernel.IS_LINUX or Path("/proc/meminfo").is_file()
