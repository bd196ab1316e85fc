"""Simulated engines whose KV caches fill before their lines of prompts do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl import plugins
from fleetctl.load.trace import Arrival
from fleetctl.model.slo import BreachKind
from fleetctl.sim.scenario import SimulationSpec
from fleetctl.sim.world import SimulatedWorld
from tests.sim.fleets import desired_for, offerings, three_lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

# 10,000 tokens in and 1,500 out: an L40S holds 23 of them at once, and reads one in half a second.
_SECONDS = 240.0


def long_conversations(rps: float) -> Iterator[Arrival]:
    return (
        Arrival(at_s=place / rps, prompt_tokens=10_000, output_tokens=1_500, stream=True, batch=False)
        for place in range(int(_SECONDS * rps))
    )


def world(long: int) -> SimulatedWorld:
    profile = three_lanes(
        gpu="L40S", rps=12, prompt=(512, 10241), output=(256, 1537), short_below=1000, long_ttft="4s", long_wait="3s"
    )
    spec = SimulationSpec(seed=7, settled={"short": 1, "long": long, "batch": 1})
    return SimulatedWorld(desired_for(profile), plugins.load_policy("static"), spec, offerings=offerings())


def test_who_would_wait_for_memory_inside_an_engine_is_refused_instead_and_hardly_anybody_is_preempted():
    fleet = world(2)
    fleet.run(long_conversations(1.5))
    hour = fleet.dispatcher.routes.lanes["long"].snapshot(fleet.heap.now_s).window(3600.0)
    assert hour.breached[BreachKind.REFUSED] > 20
    assert hour.breached.get(BreachKind.TTFT, 0) <= 0.02 * hour.offered
    assert sum(node.engine.preemptions for node in fleet.provider.nodes.values()) <= 3


def test_what_fits_is_not_refused():
    fleet = world(3)
    fleet.run(long_conversations(1.0))
    assert not fleet.recorders["long"].refusals
