"""Replicas that span several machines: what they hold, cost and count for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from fleetctl.catalogue.known import resolve_model
from fleetctl.core.machines import machine_count
from fleetctl.core.perf.kv import kv_capacity_tokens
from fleetctl.core.perf.step import step_model
from fleetctl.core.placement import RejectionCode, next_offering
from fleetctl.core.plan import make_plan
from fleetctl.errors import BudgetExceededError, InfeasiblePlanError
from fleetctl.model.catalogue import Market, Precision
from fleetctl.model.profile import CapacitySpec, LaunchOverrides, Profile
from fleetctl.testing import samples
from tests.plan.profiles import CATALOGUE, OFFERINGS, planned, profile_with, with_launch

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan

CARD = resolve_model(profile_with(model="meta-llama/Llama-3.1-70B-Instruct", rps=1).model, CATALOGUE)
H100 = CATALOGUE.gpus["H100"]


def large(pipeline_parallel: int | None, *, max_nodes: int = 100) -> Profile:
    """Return a 70B model in 16 bits, which no four L40S hold."""
    profile = profile_with(
        model="meta-llama/Llama-3.1-70B-Instruct", rps=0.2, gpus="L40S", slo="ttft: {p99: 30s}, itl: {p99: 2s}"
    )
    profile = replace(profile, capacity=replace(profile.capacity, max_nodes=max_nodes))
    return with_launch(profile, LaunchOverrides(tensor_parallel=2, pipeline_parallel=pipeline_parallel))


def test_a_model_that_fits_no_machine_is_planned_over_several() -> None:
    with pytest.raises(InfeasiblePlanError, match="largest instance on offer") as caught:
        planned(large(None))
    assert "pipeline_parallel" in caught.value.hint
    plan = planned(large(4))
    (lane,) = plan.lanes
    assert (lane.node_count, lane.gpu_count, lane.launch.pipeline_parallel) == (4, 8, 4)
    assert lane.nodes == plan.nodes == 4 * lane.replicas
    assert lane.cost_usd_per_hour == pytest.approx(
        4 * (lane.on_demand * lane.offering.price_usd_per_hour + lane.spot * _spot_price(plan))
    )
    assert any("spans 4 machines" in reason for reason in lane.reasons)


def _spot_price(plan: Plan) -> float:
    spot = plan.lanes[0].spot_offering
    return spot.price_usd_per_hour if spot else 0.0


def test_the_cap_on_nodes_counts_machines_when_planning() -> None:
    assert planned(large(4, max_nodes=8)).nodes in (4, 8)
    with pytest.raises(BudgetExceededError, match="max_nodes is 3"):
        planned(large(4, max_nodes=3))


def test_the_cap_on_nodes_counts_machines_when_placing() -> None:
    lane = planned(large(4)).lanes[0]
    standing = [samples.replica("r1", node_count=4)]
    for most, code in ((8, None), (7, RejectionCode.NODES_MAX)):
        found = next_offering(lane, standing, Market.ON_DEMAND, OFFERINGS, capacity=CapacitySpec(max_nodes=most))
        assert (found.offering is None) == (code is not None)
        assert {r.code for r in found.rejected.values() if r.code.is_passing} == ({code} if code else set())


def test_a_machine_is_counted_once_however_many_replicas_share_it() -> None:
    shared = [samples.replica(f"r{n}", machine_id="m-1", gpu_indices=(n,)) for n in range(4)]
    whole = samples.replica("r9", node_count=3, members=("m-8", "m-9"))
    unknown = [samples.replica(f"r1{n}", machine_id="localhost") for n in range(2)]  # no GPU of it is theirs
    assert machine_count(shared) == 1
    assert machine_count([*shared, whole, *unknown]) == 1 + 3 + 2
    assert machine_count([]) == 0


@given(stages=st.integers(2, 16), tensor_parallel=st.sampled_from([1, 2, 4, 8]))
def test_more_stages_hold_more_tokens_and_take_longer(stages: int, tensor_parallel: int) -> None:
    def tokens(pipeline_parallel: int) -> int:
        return kv_capacity_tokens(
            CARD, H100, tensor_parallel=tensor_parallel, pipeline_parallel=pipeline_parallel,
            precision=Precision.BF16, kv_precision=Precision.BF16,
        )  # fmt: skip

    def prefill_s(pipeline_parallel: int) -> float:
        return step_model(
            CARD, H100, tensor_parallel=tensor_parallel, pipeline_parallel=pipeline_parallel,
            precision=Precision.BF16, kv_precision=Precision.BF16,
        ).prefill_s(1000)  # fmt: skip

    assert tokens(stages) >= tokens(stages - 1)
    assert prefill_s(stages) > prefill_s(stages - 1)
    assert math.isfinite(prefill_s(stages))


def test_one_stage_is_what_it_was() -> None:
    profile = profile_with(rps=20)
    one = make_plan(
        with_launch(profile, LaunchOverrides(pipeline_parallel=1)),
        model_card=resolve_model(profile.model, CATALOGUE), catalogue=CATALOGUE, offerings=OFFERINGS, profile_hash="",
    )  # fmt: skip
    assert replace(one.lanes[0], reasons=()) == replace(planned(profile).lanes[0], reasons=())
