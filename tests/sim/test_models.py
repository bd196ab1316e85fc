"""A simulated fleet of several models: requests go by model first, and one stands in for another."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.config.profile import parse_profile
from fleetctl.core.reconcile import reconcile
from fleetctl.load.report import LoadSpec
from fleetctl.load.trace import Arrival, arrivals
from fleetctl.operations.replayed import replay_spec, replayed
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import SimulationSpec
from tests.operations.test_backtest import period, request
from tests.sim.fleets import desired_for, offerings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.recording import RecordedRequest
    from fleetctl.sim.result import SimulationResult

PROFILE = """
apiVersion: fleetctl/v1
name: models
models:
  big: {id: Qwen/Qwen3-32B, share: 30%, aliases: [gpt-4o], adapters: {legal: ./legal}, fallback: small}
  small: {id: meta-llama/Llama-3.1-8B-Instruct}
engine: vllm
provider: local
workload: {peak_rps: 3, prompt_tokens: {p50: 100, p99: 900}, output_tokens: {p50: 30, p99: 60}}
lanes:
  big: {model: big, slo: {ttft: {p99: 5s}}, max_wait: 2s, replicas: 1, spot: none}
  short: {model: small, match: {uncached_prompt_tokens: "< 200"}, slo: {ttft: {p99: 5s}}, max_wait: 2s, replicas: 1, spot: none}
  long: {model: small, slo: {ttft: {p99: 5s}}, max_wait: 2s, replicas: 1, spot: none}
capacity: {gpus: [L40S]}
"""
ONE = "\n".join(line for line in PROFILE.splitlines() if not line.startswith("  big:"))
SETTLED = {"big": 1, "short": 1, "long": 1}


def play(rows: Iterable[Arrival], **spec: Any) -> SimulationResult:
    wanted = desired_for(parse_profile(PROFILE, source="models"))
    spec = {"settled": {lane.name: 1 for lane in wanted.profile.lanes}} | spec
    return simulate(wanted, rows, policy=reconcile, spec=SimulationSpec(**spec), offerings=offerings())


def arrival(number: int, **given: Any) -> Arrival:
    usual: dict[str, Any] = {"at_s": number * 0.5, "prompt_tokens": 100, "output_tokens": 10, "stream": True}
    return Arrival(**(usual | given))


def offered(found: SimulationResult) -> dict[str, int]:
    return {each.lane: each.offered for each in found.lanes if each.offered}


@pytest.mark.parametrize(
    ("given", "lane"),
    [
        ({"model": "big"}, "big"),
        ({"model": "gpt-4o"}, "big"),
        ({"model": "legal"}, "big"),
        ({"model": "Qwen/Qwen3-32B"}, "big"),
        ({"model": "small"}, "short"),
        ({"model": "small", "prompt_tokens": 500}, "long"),
        ({"lane": "long"}, "long"),
        ({}, "big"),  # as at the gateway: the first model's
    ],
)
def test_an_arrival_enters_a_lane_of_the_model_it_names(given, lane):
    assert offered(play([arrival(number, **given) for number in range(4)])) == {lane: 4}


def test_the_workloads_own_requests_are_each_models_by_its_share():
    profile = parse_profile(PROFILE, source="models")
    load = LoadSpec(
        url="", workload=profile.workload, models=profile.models, lane_models=profile.lane_models, duration_s=400.0
    )
    rows = list(arrivals(load, random.Random(1)))
    counts = Counter(each.model for each in rows)
    assert counts["big"] / len(rows) == pytest.approx(0.3, abs=0.05)
    assert {each.model for each in arrivals(replace(load, lane="long"), random.Random(1))} == {"small"}
    assert {each.model for each in arrivals(replace(load, model="legal"), random.Random(1))} == {"legal"}
    found = play(rows)
    assert found.lane("big").offered == counts["big"]
    assert found.violations == ()


def test_another_model_stands_in_for_one_without_a_replica_and_for_one_that_refuses():
    rows = [arrival(number, model="gpt-4o") for number in range(20)]
    found = play(rows, settled=SETTLED | {"big": 0}, boot_s=3600.0)
    assert offered(found) == {"short": 20}
    assert [(each.model, each.served_by, each.requests) for each in found.fallbacks] == [("big", "small", 20)]

    burst = [arrival(0, model="big", prompt_tokens=4000, output_tokens=200) for _ in range(400)]
    found = play(burst)
    refused = sum(found.lane("big").refused.values())
    assert refused > 0
    assert found.lane("short").offered + found.lane("long").offered == refused
    assert found.violations == ()


def recorded(number: int, **given: Any) -> RecordedRequest:
    return request(number, **({"lane": "big", "model": "big"} | given))


def test_a_recorded_request_that_another_model_served_is_replayed_once_and_for_its_own():
    wanted = desired_for(parse_profile(PROFILE, source="models"))
    requests = [
        recorded(1),
        recorded(2, refusal="queue-full", ending="refused", output_tokens=0),
        recorded(2, lane="short", model="small", in_place_of="big"),
        recorded(3, lane="short", model="small", in_place_of="big"),  # its lane had no replica
        recorded(4, lane="long", model="small"),  # entered that lane, for all its length
    ]
    replay = replayed(period(desired=wanted, requests=requests))
    assert [(each.model, each.lane_entered) for each in replay.arrivals] == [("big", "big"), ("big", ""), ("big", ""), ("small", "long")]  # fmt: skip
    spec = replay_spec(wanted.profile, replay, settled=SETTLED, duration_s=60.0, seed=0)
    again = simulate(wanted, replay.arrivals_of(wanted.profile)[0], policy=reconcile, spec=spec, offerings=offerings())
    assert offered(again) == {"big": 3, "long": 1}
    # A profile of one model is offered all of it.
    only = parse_profile(ONE, source="one")
    assert not replay.unknown_models(only)
    assert {each.model for each in replay.arrivals_of(only)[0]} == {"", "small"}
    renamed = parse_profile(
        PROFILE.replace("big: {id", "huge: {id").replace("model: big", "model: huge"), source="other"
    )
    assert dict(replay.unknown_models(renamed)) == {"big": 3}
