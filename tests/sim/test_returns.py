"""Clients that are refused in a burst on idle engines, and come back when they are bounded."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl import plugins
from fleetctl.load.trace import Arrival
from fleetctl.sim.scenario import SimulationSpec
from fleetctl.sim.world import SimulatedWorld
from tests.bench.policies.cases import three_engines
from tests.sim.fleets import offerings

if TYPE_CHECKING:
    from fleetctl.model.desired import Desired
    from fleetctl.sim.exchange import SimulatedExchange

BURST = 120


class CountingWorld(SimulatedWorld):
    """Notes how often each client had come back when it was answered, and when the last of them had its first token."""

    def __init__(self, desired: Desired, spec: SimulationSpec) -> None:
        super().__init__(desired, plugins.load_policy("static"), spec, offerings=offerings())
        self.returns: Counter[int] = Counter()
        self.last_s = 0.0

    def over(self, exchange: SimulatedExchange) -> None:
        super().over(exchange)
        stopwatch = exchange.request.stopwatch
        if stopwatch.ttft_s is not None:
            self.returns[exchange.attempt] += 1
            self.last_s = max(self.last_s, stopwatch.started_s + stopwatch.ttft_s)


def burst(prompt_tokens: int, *, bounded: bool) -> CountingWorld:
    desired = three_engines()
    if not bounded:  # whoever comes is let in at once: nothing is faster
        lanes = tuple(
            replace(lane, max_wait_s=600.0, slo=replace(lane.slo, targets=())) for lane in desired.profile.lanes
        )
        desired = replace(desired, profile=replace(desired.profile, lanes=lanes))
    spec = SimulationSpec(seed=7, settled={"all": 3}, retries_max=8)
    world = CountingWorld(desired, spec)
    world.run(
        Arrival(at_s=30.0 + place / 600.0, prompt_tokens=prompt_tokens, output_tokens=32, stream=True, batch=False)
        for place in range(BURST)
    )
    return world


@pytest.mark.parametrize("prompt_tokens", [1_000, 3_000, 8_000])
def test_a_burst_on_idle_engines_is_drained_as_fast_as_they_can_and_most_come_in_at_their_first_return(prompt_tokens):
    bounded, ideal = burst(prompt_tokens, bounded=True), burst(prompt_tokens, bounded=False)
    assert sum(bounded.returns.values()) == BURST
    assert bounded.last_s - 30.0 <= 1.3 * (ideal.last_s - 30.0)
    assert bounded.returns[1] >= 0.8 * (BURST - bounded.returns[0])
