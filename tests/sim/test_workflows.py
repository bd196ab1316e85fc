"""A simulated fleet plays workflows closed-loop: calls follow on each other's ends, and on refusals when they were told to."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.static_policy import static
from fleetctl.load.calls import TraceCall
from fleetctl.load.trace import Arrival
from fleetctl.model.workflows import ElapsedTarget, WorkflowKind, WorkflowsSpec
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import Disturbance, DisturbanceKind, SimulationSpec
from fleetctl.sim.world import SimulatedWorld
from tests.sim.fleets import desired_for, offerings, three_lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.desired import Desired
    from fleetctl.sim.exchange import SimulatedExchange

DESIRED = desired_for(three_lanes())
AGENT_KIND = WorkflowKind(name="agent", steps=7, targets=(ElapsedTarget(percentile=0.99, limit_s=20.0),))
PROMISED = replace(DESIRED, profile=replace(DESIRED.profile, workflows=WorkflowsSpec(kinds=(AGENT_KIND,))))
SETTLED = {"short": 1, "long": 2, "batch": 1}
AGENT = tuple((step - 1,) if step else () for step in range(7))
RESEARCH = ((), (0,), (0,), (0,), (0,), (0,), (1, 2, 3, 4, 5))


def workflow(
    name: str, at_s: float, links: tuple[tuple[int, ...], ...], *, kind: str, think_s: float = 0.5
) -> list[Arrival]:
    return [
        Arrival(
            at_s=at_s,
            prompt_tokens=300,
            output_tokens=50,
            stream=True,
            call=TraceCall(
                workflow=name, kind=kind, name=str(number + 1), number=number, count=len(links), after=after,
                think_s=think_s if after else 0.0,
            ),
        )
        for number, after in enumerate(links)
    ]  # fmt: skip


def mixed(rate: float, seconds: float, *, seed: int = 1) -> Iterator[Arrival]:
    """Agents and fan-outs, open-loop."""
    dice, at_s, number = random.Random(seed), 0.0, 0
    while (at_s := at_s + dice.expovariate(rate)) < seconds:
        number += 1
        is_agent = dice.random() < 0.5
        yield from workflow(
            f"w{number}", at_s, AGENT if is_agent else RESEARCH, kind="agent" if is_agent else "research"
        )


class WatchedWorld(SimulatedWorld):
    """Notes when each call was sent and when it ended."""

    def __init__(self, desired: Desired) -> None:
        super().__init__(desired, static, SimulationSpec(settled=SETTLED), offerings=offerings())
        self.times: dict[tuple[str, int], tuple[float, float]] = {}

    def over(self, exchange: SimulatedExchange) -> None:
        call, watch = exchange.row.call, exchange.request.stopwatch
        if call is not None and exchange.request.refused is None:
            self.times[call.workflow, call.number] = watch.started_s, self.heap.now_s
        super().over(exchange)


def test_calls_are_sent_after_those_they_wait_for_and_every_workflow_completes():
    world = WatchedWorld(DESIRED)
    rows = list(mixed(0.2, 300))
    world.run(rows)
    for row in rows:
        assert row.call is not None
        sent_s, _ = world.times[row.call.workflow, row.call.number]
        ends = [world.times[row.call.workflow, before][1] for before in row.call.after]
        assert sent_s == pytest.approx(max(ends) + 0.5 if ends else row.at_s)
    figures = {each.kind: each for each in world.workflows.figures(world.heap.now_s)}
    assert set(figures) == {"agent", "research"}
    for each in figures.values():
        assert each.completed == each.offered > 5
        assert each.calls == 7 * each.offered
        assert each.queued_share is not None
        assert each.queued_share < 0.5
    assert figures["agent"].elapsed.p50_s > figures["research"].elapsed.p50_s > 0
    assert world.violations() == ()


def test_a_refused_call_comes_back_and_a_workflow_whose_calls_are_refused_for_good_fails():
    one = replace(DESIRED, profile=replace(DESIRED.profile, lanes=tuple(
        replace(lane, max_wait_s=0.05) for lane in DESIRED.profile.lanes
    )))  # fmt: skip
    crowd = [row for number in range(300) for row in workflow(f"w{number}", 10.0, AGENT, kind="agent")]
    result = simulate(one, crowd, policy=static, spec=SimulationSpec(settled=SETTLED))
    (figures,) = result.workflows
    assert figures.retries > 0
    assert figures.completed + sum(figures.failed.values()) == figures.offered == 300
    assert figures.failed["refused"] > 0
    assert figures.completed > 0
    assert figures.backoff_share is not None
    assert figures.backoff_share > 0.0
    assert result.violations == ()


def test_workflows_without_a_replica_fail_or_stay_undecided_and_the_simulation_ends():
    spec = SimulationSpec(
        settled=SETTLED,
        boot_s=100_000.0,
        disturbances=(Disturbance(kind=DisturbanceKind.HANG, at_s=30, lane="short"),),
    )
    result = simulate(PROMISED, mixed(0.2, 60), policy=static, spec=spec)
    for each in result.workflows:
        assert each.completed + sum(each.failed.values()) + each.undecided <= each.offered
    agent = next(each for each in result.workflows if each.kind == "agent")
    assert agent.good is not None
    assert agent.good_share == pytest.approx(agent.good / (agent.offered - agent.undecided))


def test_one_seed_gives_one_result():
    spec = SimulationSpec(settled=SETTLED)
    first, second = (repr(simulate(PROMISED, mixed(0.5, 120), policy=static, spec=spec)) for _ in range(2))
    assert first == second
