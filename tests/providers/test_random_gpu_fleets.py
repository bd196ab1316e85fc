"""Random fleets on a machine of eight GPUs: processes come, are killed, drained, replaced, and their providers die meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import CapacityError
from fleetctl.model.node import NodeState
from fleetctl.testing.nvml import FakeNvmlLibrary, gpu_machine, installed
from fleetctl.testing.orders import as_it_is, listed
from fleetctl.testing.samples import node_request
from fleetctl_local import kernel
from fleetctl_local.provider import LocalProvider
from fleetctl_local.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.model.node import Node

GPUS, STEPS = 8, 12
FLEETS = int(os.environ.get("FLEETCTL_TEST_GPU_FLEETS", "60"))  # 1000 take minutes: each has some 15 processes
CHUNKS = 10  # tests, so that workers share them
DEADLINE_S = 30.0


def environment_of(pid: int) -> dict[str, str]:
    """Return a process's environment; one that has just begun has none yet, and one that is about to be gone none left."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + DEADLINE_S
    while SYSTEM_CLOCK.monotonic_s() < deadline_s:
        look = kernel.look(pid)
        if look is None or look.is_zombie:
            return {}
        if found := kernel.environment(pid):
            return found
        SYSTEM_CLOCK.sleep_blocking(0.001)
    return {}


class RandomFleet:
    """One fleet's life under a seed. What engines were given is read from the kernel, not from the provider."""

    def __init__(self, owner: str, seed: int) -> None:
        self.owner, self.seed = owner, seed
        self.rng = random.Random(seed)
        self.linked = self.rng.choice([0, 2, 4, 8])
        self.provider = LocalProvider()
        self.pids: dict[str, int] = {}  # of living engines, by replica
        self.nodes: dict[str, Node] = {}
        self.made = 0

    def given(self) -> dict[str, tuple[int, ...]]:
        """Return the GPUs each living engine process sees."""
        seen: dict[str, tuple[int, ...]] = {}
        for replica, pid in self.pids.items():
            environment, look = environment_of(pid), kernel.look(pid)
            if look is not None and not look.is_zombie and environment:
                seen[replica] = tuple(int(n) for n in environment["CUDA_VISIBLE_DEVICES"].split(","))
        return seen

    def recorded(self) -> set[int]:
        """Return the GPUs that are not to be given to anybody else now."""
        held = {uuid for record in Registry().all() if record.ended_at is None for uuid in record.gpu_uuids}
        return {number for number, gpu in enumerate(gpu_machine(GPUS).gpus) if gpu.uuid in held}

    def check(self) -> None:
        held = [gpu for gpus in self.given().values() for gpu in gpus]
        assert len(held) == len(set(held)), f"seed {self.seed}: {self.given()}"
        assert set(held) <= set(range(GPUS))

    async def order(self) -> None:
        count = self.rng.choice([1, 1, 2, 2, 4])
        busy = self.recorded()
        self.made += 1
        name = f"r{self.seed}-{self.made}"
        request = node_request(
            name, owner=self.owner, replica_id=name, argv=("/bin/sleep", "600"), gpu_count=count,
            gpu_memory_fraction=0.9,
        )  # fmt: skip
        (result,) = await self.provider.create((request,), resolve_secrets=as_it_is)
        if result.node is None:
            assert isinstance(result.error, CapacityError)
            # Nothing may be kept back for good: what was refused did not fit beside what lives or is about to be seen ended.
            await self.settled()
            busy = self.recorded()
            free = GPUS - sum(len(gpus) for gpus in self.given().values())
            (again,) = await self.provider.create((replace(request, token=f"{name}-2"),), resolve_secrets=as_it_is)
            assert (again.node is not None) == (free >= count), f"seed {self.seed}: {free} free, {count} wanted"
            result = again
        if result.node is not None:
            self.noted(name, result.node)
            self.check_links(name, count, busy)

    def noted(self, name: str, node: Node) -> None:
        record = Registry().get(node.token)
        assert record is not None
        assert record.leader is not None
        self.nodes[name], self.pids[name] = node, record.leader.pid

    def check_links(self, name: str, count: int, busy: set[int]) -> None:
        """Several GPUs are linked ones where there were any free."""
        if count == 1 or not self.linked:
            return
        groups = [set(range(first, first + self.linked)) for first in range(0, GPUS, self.linked)]
        if any(len(group - busy) >= count for group in groups):
            given = set(self.given()[name])
            assert any(given <= group for group in groups), f"seed {self.seed}: {given} of {busy}"

    async def drain(self) -> None:
        if self.nodes:
            name = self.rng.choice(sorted(self.nodes))
            await self.provider.stop(self.nodes.pop(name).id, grace_s=5)

    async def kill(self) -> None:
        if self.nodes:
            name = self.rng.choice(sorted(self.nodes))
            del self.nodes[name]
            with suppress(ProcessLookupError):
                os.kill(self.pids[name], signal.SIGKILL)

    async def roll(self) -> None:
        """Replace a replica as a rollout does: its successor first, where there is room."""
        await self.order()
        await self.drain()

    async def restart(self) -> None:
        """Go on with another provider; a controller that starts looks first at what there is."""
        self.provider = LocalProvider()
        if self.rng.random() < 0.5:  # orders that were on their way may come before its first look
            await self.order()
        await listed(self.provider, owner=self.owner, fleet="demo")

    async def die_before_start(self) -> None:
        """Leave what a provider leaves that dies with the order on disk and no process started."""
        if self.nodes:
            token = self.rng.choice(sorted(self.nodes.values(), key=lambda node: node.token)).token
            record = Registry().get(token)
            if record is not None and record.ended_at is None:
                self.made += 1
                name = f"r{self.seed}-{self.made}"
                held = {gpu for gpus in self.given().values() for gpu in gpus}
                free = next((gpu for gpu in range(GPUS) if gpu not in held), None)
                picked = () if free is None else (gpu_machine(GPUS).gpus[free].uuid,)
                Registry().put(replace(record, token=name, replica_id=name, leader=None, gpu_uuids=picked))
        await self.restart()

    async def die_before_note(self) -> None:
        """Leave what a provider leaves that dies right after it has started a process: its pid is nowhere on record."""
        if self.nodes:
            token = self.rng.choice(sorted(self.nodes.values(), key=lambda node: node.token)).token
            record = Registry().get(token)
            if record is not None and record.ended_at is None:
                Registry().put(replace(record, leader=None))
        await self.restart()

    async def settled(self) -> None:
        """Wait until every engine that was told to end is seen ended."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                nodes = await listed(self.provider, owner=self.owner, fleet="demo")
                living = {node.replica_id for node in nodes if node.state is not NodeState.GONE}
                if living <= self.nodes.keys():
                    return
                await SYSTEM_CLOCK.sleep(0.005)

    async def live(self) -> None:
        acts: list[Callable[[], object]] = [
            self.order, self.order, self.order, self.drain, self.kill, self.roll, self.restart, self.die_before_start,
            self.die_before_note,
        ]  # fmt: skip
        for _ in range(STEPS):
            await self.rng.choice(acts)()  # type: ignore[misc]  # each is a coroutine function
            self.check()
        while self.nodes:
            await self.kill()
        await self.settled()
        # None has leaked: the machine has room for its largest replicas again.
        for _ in range(2):
            self.made += 1
            name = f"r{self.seed}-{self.made}"
            request = node_request(name, owner=self.owner, replica_id=name, argv=("/bin/sleep", "600"), gpu_count=4)
            (result,) = await self.provider.create((request,), resolve_secrets=as_it_is)
            assert result.node is not None, f"seed {self.seed}: {result.error}"
            self.noted(name, result.node)
        self.check()
        assert sum(len(gpus) for gpus in self.given().values()) == GPUS
        while self.nodes:
            await self.kill()
        await self.settled()


@pytest.fixture
def _state_in_memory(owner: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the records where a durable write waits for no disk: there are 50 in each fleet's life."""
    del owner  # its own directory is replaced here
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:  # noqa: S108
        monkeypatch.setenv("XDG_STATE_HOME", directory)
        yield


@pytest.mark.usefixtures("_state_in_memory")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_fleets_never_share_a_gpu_and_leak_none(owner: str, chunk: int) -> None:
    for seed in range(chunk, FLEETS, CHUNKS):
        fleet = RandomFleet(owner, seed)
        with installed(FakeNvmlLibrary(gpu_machine(GPUS, linked=fleet.linked))):
            asyncio.run(fleet.live())
        for record in Registry().all():
            Registry().remove(record.token)
