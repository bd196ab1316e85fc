"""A plan says which burst breaks it, and a proof goes by the shed allowance of its lanes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.model.slo import Quantiles
from fleetctl.operations.breaking_burst import bursty, fleet_dispersion, with_breaking_bursts
from fleetctl.operations.proof_figures import SimulatedEvidence, lane_evidence, proven_lane
from fleetctl.operations.proof_load import ProofLoad, proof_load
from fleetctl.operations.proving import Laboratory, prove
from fleetctl.sim.sampled import LaneSamples, RequestSample
from tests.operations.test_proving import searched


def test_a_plan_names_the_burst_that_breaks_it_and_that_burst_does() -> None:
    found = searched(rps=12, burst="dispersion_1s: 2\n  dispersion_10s: 3")
    plan = with_breaking_bursts(prove(found, None, requests=1500), found.profile, None, {}, requests=1500)
    (lane,) = plan.lanes
    assert lane.proof is not None
    burst = lane.proof.burst
    assert burst is not None
    assert burst.broken_1s is not None
    assert burst.kept_10s is not None
    assert burst.broken_10s is not None
    assert lane.proof.dispersion_1s is not None
    assert burst.kept_1s >= lane.proof.dispersion_1s
    assert burst.kept_10s < burst.broken_10s
    assert (burst.broken_good_share or 0.0) < found.profile.objective.fraction
    (caution,) = (each for each in plan.cautions if "index of dispersion" in each)
    assert caution.startswith("lane all: keeps 99.5% good up to")
    assert f"at {burst.broken_1s:.1f} over 1 s and {burst.broken_10s:.1f} over 10 s" in caution
    # Other arrivals that are burstier still break it too.
    load = proof_load(found.profile, None, requests_max=1000, warm_s=5.0, seed=9)
    worse = bursty(load, 12.0, 2 * burst.broken_1s, 2 * burst.broken_10s, requests=1500)
    evidence = Laboratory(profile=found.profile, plan=plan, load=worse).simulated({"all": lane.replicas}, {})["all"]
    assert evidence.missed.total() > evidence.allowed


def test_of_a_fleet_with_much_room_no_burst_that_was_tried_is_called_breaking() -> None:
    found = searched(rps=3, burst="burst_cv: 1.0", ttft="4s", itl="400ms")
    plan = prove(found, None, requests=300)
    roomy = replace(plan, lanes=(replace(plan.lanes[0], replicas=12),))
    named = with_breaking_bursts(roomy, found.profile, None, {}, requests=300)
    assert named.lanes[0].proof is not None
    assert named.lanes[0].proof.burst is not None
    assert named.lanes[0].proof.burst.broken_1s is None
    assert named.cautions == plan.cautions


def test_of_a_lane_that_misses_its_objective_as_planned_no_burst_is_said_to_be_kept() -> None:
    found = searched(rps=12)
    plan = prove(found, None, requests=600)
    load = proof_load(found.profile, None, requests_max=600, warm_s=5.0)
    crowded = Laboratory(profile=found.profile, plan=plan, load=load).simulated({"all": 1}, {})["all"]
    assert crowded.missed.total() > crowded.allowed
    risky = replace(plan, lanes=(proven_lane(replace(plan.lanes[0], replicas=1), crowded, crowded),))
    assert with_breaking_bursts(risky, found.profile, None, {}, requests=600) == risky


def test_of_a_plan_that_was_not_simulated_no_burst_is_named() -> None:
    found = searched()
    plan = found.plan()
    assert with_breaking_bursts(plan, found.profile, None, {}) == plan


@pytest.mark.parametrize("index", [1.0, 3.0, 8.0])
def test_drawn_arrivals_are_as_bursty_as_said_and_of_the_same_requests(index: float) -> None:
    profile = searched(burst="dispersion_1s: 2\n  dispersion_10s: 2").profile
    load = proof_load(profile, None, requests_max=500, warm_s=5.0)
    made = bursty(load, 40.0, index, index, requests=40_000)
    short, long = fleet_dispersion(made)
    assert short == pytest.approx(index, rel=0.3)
    assert long >= short
    bodies = {(each.prompt_tokens, each.output_tokens) for run in load.runs for each in run}
    assert {(each.prompt_tokens, each.output_tokens) for each in made.runs[0]} <= bodies
    assert made == bursty(load, 40.0, index, index, requests=40_000)


def evidence(refused: int, late: int, *, shed: float) -> SimulatedEvidence:
    """Return what a proof makes of a lane of 1,000 requests of which so many were refused, and late."""
    profile = searched().profile
    spec = replace(profile.lanes[0], slo=replace(profile.lanes[0].slo, shed=shed))
    missed = ["refused"] * refused + ["ttft"] * late
    every = 1000 // max(1, len(missed))
    samples = [
        RequestSample(float(n), 0.1, missed[n // every] if n % every == 0 and n // every < len(missed) else "")
        for n in range(1000)
    ]
    run = LaneSamples(
        requests=tuple(samples),
        arrived_s=tuple(each.started_s for each in samples),
        itl=Quantiles(),
        e2e=Quantiles(),
        running=1.0,
    )
    load = ProofLoad(runs=((),), run_s=(1000.0,), warm_s=0.0, about="")
    return lane_evidence(spec, profile, load, [run], replicas=1)


@pytest.mark.parametrize(
    ("refused", "late", "shed", "holds", "at_the_point"),
    [
        (10, 0, 0.0, False, False),
        (10, 0, 0.02, True, True),
        (19, 0, 0.02, False, True),  # another stretch may have more than twenty
        (10, 6, 0.02, False, False),
        (40, 0, 0.02, False, False),
    ],
)
def test_a_proof_covers_refusals_as_far_as_another_stretch_will(
    refused: int, late: int, shed: float, holds: bool, at_the_point: bool
) -> None:
    found = evidence(refused, late, shed=shed)
    assert found.covered == min(refused, round(1000 * shed))
    assert found.missed.total() == refused + late - found.covered
    assert found.holds() is holds
    assert found.holds(accepts_risk=True) is at_the_point


def test_a_lane_of_which_a_part_is_simulated_is_as_bursty_as_all_of_its_requests() -> None:
    found = searched(rps=120)
    plan = found.plan()
    (row,) = proof_load(found.profile, None, requests_max=1, warm_s=0.0).runs[0][:1]
    even = tuple(replace(row, at_s=number / 120) for number in range(14_400))
    load = ProofLoad(runs=(even,), run_s=(120.0,), warm_s=5.0, about="")
    lane = plan.lanes[0].lane
    seen = Laboratory(profile=found.profile, plan=plan, load=load).simulated({lane: 60}, {})[lane]
    assert seen.replicas < 60
    assert seen.offered < 0.8 * len(even)
    assert seen.dispersion_1s == pytest.approx(0.0, abs=0.02)
    assert seen.dispersion_10s == pytest.approx(0.0, abs=0.02)
