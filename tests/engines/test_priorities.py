"""The engines of a profile with tiers are started to schedule by priority, where they can and nobody says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from acme_engine.engine import AcmeEngine

from fleetctl.config.profile import parse_profile
from fleetctl.core.plan.launch_identity import launch_digest
from fleetctl.engine_kit.priorities import priority_sign, with_priorities
from fleetctl.plugins import load_engine
from tests.sim.fleets import desired_for

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import LaneSpec

PROFILE = """
apiVersion: fleetctl/v1
name: tiered
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}}
engine: {engine}
provider: local
workload: {{peak_rps: 2, prompt_tokens: {{p50: 1020, p99: 4142}}, output_tokens: {{p50: 129, p99: 601}}}}
{tiers}
lanes:
  all:
    slo: {{ttft: {{p99: 2s}}, itl: {{p99: 150ms}}}}
    max_wait: 1500ms
    replicas: 2
    spot: none
    launch: {{extra_args: [{extra}]}}
capacity: {{gpus: [L40S], max_nodes: 3}}
"""
TIERS = "tiers: {premium: {weight: 3}, free: {}}"


def lane_of(engine: str, *, tiers: str = TIERS, extra: str = "") -> tuple[LaneSpec, LanePlan]:
    """Plan one lane; return its specification and its plan."""
    engine, _, flavour = engine.partition("/")
    played = f"\nemulator: {{flavour: {flavour}}}" if flavour else ""
    profile = parse_profile(PROFILE.format(engine=engine + played, tiers=tiers, extra=extra), source="tiered")
    desired = desired_for(profile)
    return desired.profile.lane("all"), desired.plan.lane("all")


@pytest.mark.parametrize(
    ("engine", "sign"),
    [("vllm", 1), ("sglang", -1), ("tgi", 0), ("emulator/vllm", 1), ("emulator/sglang", -1), ("emulator/tgi", 0)],
)
def test_each_engine_is_told_as_it_understands_it(engine, sign):
    spec, planned = lane_of(engine)
    assert planned.launch.priority_scheduling is (sign != 0)
    assert priority_sign(spec, planned.launch, load_engine) == sign


@pytest.mark.parametrize(
    ("engine", "extra"),
    [
        ("vllm", "--scheduling-policy, fcfs"),
        ("vllm", "--scheduling_policy=priority"),
        ("sglang", "--schedule-low-priority-values-first"),
    ],
)
def test_a_lane_whose_user_decides_on_it_is_left_alone(engine, extra):
    spec, planned = lane_of(engine, extra=extra)
    assert not planned.launch.priority_scheduling
    assert priority_sign(spec, planned.launch, load_engine) == 0


def test_without_tiers_nothing_is_started_otherwise():
    _, planned = lane_of("vllm", tiers="")
    assert not planned.launch.priority_scheduling


def test_an_engine_of_a_third_party_that_knows_no_priorities_works_on():
    profile = parse_profile(PROFILE.format(engine="vllm", tiers=TIERS, extra=""), source="tiered")
    plan = desired_for(parse_profile(PROFILE.format(engine="vllm", tiers="", extra=""), source="tiered")).plan
    assert with_priorities(plan, profile, lambda _: AcmeEngine()) == plan


def test_replicas_of_before_keep_their_digest_until_they_would_be_started_otherwise():
    spec, before = lane_of("vllm", tiers="")
    _, after = lane_of("vllm")
    assert launch_digest(spec, before) != launch_digest(spec, after)
    tgi, unchanged = lane_of("tgi")
    assert launch_digest(tgi, unchanged) == launch_digest(tgi, lane_of("tgi", tiers="")[1])
