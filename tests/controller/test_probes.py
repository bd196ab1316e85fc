"""Probes take turns: each replica of a large fleet is looked at, and none is found unhealthy because others came first."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fleetctl.controller.background import BackgroundTasks
from fleetctl.controller.probes import Probes
from fleetctl.core.reconcile.health import probe_reasons
from fleetctl.errors import UnavailableError
from fleetctl.model.replica import ReplicaState
from fleetctl.testing import samples
from fleetctl.testing.clocks import LoopClock
from fleetctl.testing.virtual_time import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

REPLICAS = 1000
DEADLINE_S = 2.0
RECORDS = tuple(
    samples.replica(
        f"r{number}",
        state=ReplicaState.READY,
        ready_at=samples.EPOCH,
        host=f"10.0.{number // 250}.{number % 250}",
        port=8000,
    )
    for number in range(REPLICAS)
)


@dataclass
class BusyEngines:
    """Takes `each_s` of one processor for every answer, whatever else is asked meanwhile; an answer after its deadline is none."""

    clock: LoopClock
    each_s: float
    at_once: int = 0
    at_once_max: int = 0
    answered: dict[str, int] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def is_healthy(self, host: str, port: int, path: str) -> bool:
        del port, path
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._work()
        except TimeoutError:
            raise UnavailableError(f"{host}: no answer in {DEADLINE_S} s") from None
        self.answered[host] = self.answered.get(host, 0) + 1
        return True

    async def get(self, host: str, port: int, path: str) -> str:
        raise UnavailableError(f"no metrics at {host}:{port}{path}")

    async def _work(self) -> None:
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            async with self._turn:
                await self.clock.sleep(self.each_s)
        finally:
            self.at_once -= 1


def over(seconds: float, *, each_s: float, look: Callable[[Probes, BusyEngines], None]) -> None:
    """Have all replicas probed at every half second for so long, then look."""

    async def scenario() -> None:
        clock = LoopClock(samples.EPOCH)
        engines = BusyEngines(clock, each_s)
        engine = SimpleNamespace(health_path="/health", metrics_path="/metrics", version=None)
        world: Any = SimpleNamespace(clock=clock, engines=engines, engine_of=lambda _: engine)
        async with asyncio.TaskGroup() as group:
            background = BackgroundTasks(group, on_end=lambda: None, on_error=_fail)
            probes = Probes(world, background, on_change=lambda: None)
            for _ in range(round(seconds * 2)):
                probes.begin(RECORDS)
                await clock.sleep(0.5)
            look(probes, engines)
            background.cancel_all()

    work: Coroutine[object, object, None] = scenario()
    run_virtual(work)


def _fail(key: str, error: Exception) -> None:
    raise AssertionError(key) from error


def observed(probes: Probes) -> str:
    observation: Any = SimpleNamespace(probes_late_s=probes.late_s, replicas=RECORDS)
    return " ".join(reason.message for reason in probe_reasons(observation))


def test_a_thousand_replicas_that_come_due_at_once_are_all_looked_at_and_found_healthy():
    def look(probes: Probes, engines: BusyEngines) -> None:
        # A thousand answers take 4 s, twice what one may take.
        assert engines.at_once_max <= REPLICAS // 8
        assert {probes.healthy(record.id) for record in RECORDS} == {True}
        assert min(engines.answered.values()) >= 1
        assert observed(probes) == ""

    over(12.0, each_s=0.004, look=look)


def test_what_outgrows_the_loop_is_looked_at_less_often_in_turn_and_that_is_told():
    def look(probes: Probes, engines: BusyEngines) -> None:
        # Eighteen seconds for all, where each is due after five.
        assert {probes.healthy(record.id) for record in RECORDS} == {True}
        assert max(engines.answered.values()) - min(engines.answered.values()) <= 1
        assert observed(probes) == (
            "health checks are up to 15s late: the controller does not get round to 1000 replicas in time"
        )

    over(27.0, each_s=0.018, look=look)
