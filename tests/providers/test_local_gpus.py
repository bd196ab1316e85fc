"""GPUs of this machine, pinned to real engine processes: the emulator's, on indices given instead of the driver's."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import CapacityError
from fleetctl.model.node import NodeState
from fleetctl.testing.orders import as_it_is, listed
from fleetctl.testing.samples import node_request
from fleetctl_local import kernel
from fleetctl_local.provider import LocalProvider
from tests.providers.conftest import tagged_pids
from tests.providers.gpu_readings import gpus

if TYPE_CHECKING:
    from fleetctl.model.node import Node, NodeRequest

GPUS = gpus(4)
ENGINE = (sys.executable, "-m", "fleetctl_emulator", "--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "L40S")
# Another process with a provider of its own, as a controller that was restarted is: it prints what it was given.
ANOTHER = """
import asyncio, sys
from fleetctl.testing.nvml import FakeNvmlLibrary, gpu_machine, installed
from fleetctl.testing.orders import as_it_is
from fleetctl.testing.samples import node_request
from fleetctl_local.provider import LocalProvider

async def main():
    owner, token, argv = sys.argv[1], sys.argv[2], tuple(sys.argv[3:])
    order = node_request(token, owner=owner, replica_id=token, argv=argv, gpu_count=1)
    (result,) = await LocalProvider().create((order,), resolve_secrets=as_it_is)
    print(",".join(map(str, result.node.gpu_indices)) if result.node else type(result.error).__name__)

with installed(FakeNvmlLibrary(gpu_machine(4))):
    asyncio.run(main())
"""


def order(owner: str, replica_id: str, *, gpu_count: int = 1) -> NodeRequest:
    argv = (*ENGINE, "--port", "0")
    return node_request(f"t-{replica_id}", owner=owner, replica_id=replica_id, argv=argv, gpu_count=gpu_count)


async def created(provider: LocalProvider, *orders: NodeRequest) -> list[Node]:
    results = await provider.create(orders, resolve_secrets=as_it_is)
    for result in results:
        if result.error is not None:
            raise result.error
    return [result.node for result in results if result.node is not None]


def engine_pid(owner: str, replica_id: str) -> int:
    """Return the pid of a replica's engine: the leader of its session."""
    pids = tagged_pids(owner, {"FLEETCTL_REPLICA": replica_id})
    return next(pid for pid in pids if os.getsid(pid) == pid)


def visible_gpus(owner: str, replica_id: str) -> str | None:
    """Return what the engine process itself was given, as the kernel has it."""
    return kernel.environment(engine_pid(owner, replica_id)).get("CUDA_VISIBLE_DEVICES")


def held(nodes: tuple[Node, ...]) -> list[int]:
    return [gpu for node in nodes if node.state is not NodeState.GONE for gpu in node.gpu_indices]


async def test_each_engine_process_sees_its_own_gpus_and_no_others(owner: str) -> None:
    provider = LocalProvider(gpus=GPUS)
    nodes = await created(provider, order(owner, "r1"), order(owner, "r2", gpu_count=2), order(owner, "r3"))
    assert [node.gpu_indices for node in nodes] == [(0,), (1, 2), (3,)]
    assert [visible_gpus(owner, f"r{n}") for n in (1, 2, 3)] == ["0", "1,2", "3"]
    with pytest.raises(CapacityError, match="1 GPU is needed, and 0 of this machine's 4 are free"):
        await created(provider, order(owner, "r4"))


async def test_two_replicas_never_share_a_gpu_whichever_process_starts_them(owner: str) -> None:
    await created(LocalProvider(gpus=GPUS), order(owner, "r1"), order(owner, "r2"))
    starting = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", ANOTHER, owner, f"p{n}", *ENGINE, "--port", "0", stdout=subprocess.PIPE
        )
        for n in range(4)
    ]
    answers = sorted([(await process.communicate())[0].decode().strip() for process in starting])
    assert answers == ["2", "3", "CapacityError", "CapacityError"]
    restarted = LocalProvider(gpus=GPUS)
    assert sorted(held(await listed(restarted, owner=owner, fleet="demo"))) == [0, 1, 2, 3]


async def test_a_dead_engines_gpu_goes_to_its_replacement_and_to_nobody_else(owner: str) -> None:
    provider = LocalProvider(gpus=GPUS)
    nodes = await created(provider, *(order(owner, f"r{n}") for n in (1, 2, 3, 4)))
    os.kill(engine_pid(owner, "r2"), signal.SIGKILL)
    async with asyncio.timeout(20):
        while len(held(await listed(provider, owner=owner, fleet="demo"))) == 4:
            await SYSTEM_CLOCK.sleep(0.02)
    restarted = LocalProvider(gpus=GPUS)
    (again,) = await created(restarted, order(owner, "r5"))
    assert again.gpu_indices == nodes[1].gpu_indices
    assert visible_gpus(owner, "r5") == "1"
    assert sorted(held(await listed(restarted, owner=owner, fleet="demo"))) == [0, 1, 2, 3]
    with pytest.raises(CapacityError):
        await created(restarted, order(owner, "r6"))
