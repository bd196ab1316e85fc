"""Small whole values to test with: a two-lane fleet and what belongs to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fleetctl.model.catalogue import Market, Offering, Precision
from fleetctl.model.node import NodeRequest
from fleetctl.model.plan import Constraint, Forecast, LanePlan, LaunchSettings, Plan, Sizing
from fleetctl.model.profile import (
    CapacitySpec,
    ControlSpec,
    Distribution,
    GatewaySpec,
    LaneMatch,
    LaneSpec,
    ModelSpec,
    Objective,
    Profile,
    WorkloadSpec,
)
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.shared import SharedResource
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric

EPOCH = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
MODEL_ID = "meta-llama/Llama-3.1-8B-Instruct"


def offering(*, market: Market = Market.ON_DEMAND, **changes: Any) -> Offering:  # noqa: ANN401  # any field of it
    """Return an L40S node type."""
    base = Offering(
        provider="fake",
        instance_type="g6e.xlarge",
        gpu="L40S",
        gpu_count=1,
        region="local",
        zone="zone-a",
        market=market,
        price_usd_per_hour=1.861 if market is Market.ON_DEMAND else 0.7444,
        boot_s=0.0,
        notice_s=120.0 if market is Market.SPOT else 0.0,
    )
    return replace(base, **changes)


def lane_slo(*, ttft_s: float = 0.3, itl_s: float = 0.05) -> LaneSlo:
    """Return a promise on the P99 of TTFT and ITL."""
    return LaneSlo(
        targets=(
            LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=ttft_s),
            LatencyTarget(metric=Metric.ITL, percentile=0.99, limit_s=itl_s),
        )
    )


def profile(name: str = "demo", **changes: Any) -> Profile:  # noqa: ANN401  # any field of it
    """Return a profile: `short` under 512 uncached prompt tokens, `long` for the rest."""
    short = LaneSpec(
        name="short",
        match=LaneMatch(uncached_prompt_tokens_max=512),
        slo=lane_slo(),
        max_wait_s=0.5,
        engine="emulator",
    )
    long = replace(short, name="long", match=LaneMatch(), slo=lane_slo(ttft_s=2.0, itl_s=0.08), max_wait_s=2.0)
    base = Profile(
        name=name,
        model=ModelSpec(id=MODEL_ID),
        provider="fake",
        workload=WorkloadSpec(
            peak_rps=4.0,
            prompt_tokens=Distribution(p50=300, p99=3000),
            output_tokens=Distribution(p50=120, p99=600),
        ),
        objective=Objective(),
        lanes=(short, long),
        capacity=CapacitySpec(),
        control=ControlSpec(),
        gateway=GatewaySpec(),
    )
    return replace(base, **changes)


def lane_plan(lane: str, *, on_demand: int = 2, spot: int = 0) -> LanePlan:
    """Return an answer for one lane."""
    replicas = on_demand + spot
    return LanePlan(
        lane=lane,
        engine="emulator",
        rps=2.0,
        prompt_tokens_mean=420.0,
        output_tokens_mean=180.0,
        replicas=replicas,
        on_demand=on_demand,
        spot=spot,
        gpu="L40S",
        tensor_parallel=1,
        offering=offering(),
        spot_offering=offering(market=Market.SPOT),
        launch=LaunchSettings(
            model=MODEL_ID,
            served_name=MODEL_ID,
            tensor_parallel=1,
            quantization=Precision.BF16,
            kv_cache=None,
            max_num_seqs=64,
            max_model_len=8192,
            max_num_batched_tokens=2048,
            gpu_memory_utilization=0.9,
        ),
        budget=(),
        constraint=Constraint.ITL,
        forecast=Forecast(
            ttft_p50_s=0.08, ttft_p99_s=0.24, ttft_p99_low_s=0.19, ttft_p99_high_s=0.29,
            itl_p99_s=0.03, itl_p99_low_s=0.025, itl_p99_high_s=0.036,
            e2e_p99_s=9.0, utilisation=0.55, concurrency=7.0, knee_rps=5.0,
        ),
        cost_usd_per_hour=1.861 * on_demand + 0.7444 * spot,
        cost_usd_per_1m_tokens=0.41,
    )  # fmt: skip


def plan(fleet: str = "demo") -> Plan:
    """Return the answer to `profile`: two replicas on-demand for `short`, one and a spot one for `long`."""
    lanes = (lane_plan("short"), lane_plan("long", on_demand=1, spot=1))
    return Plan(
        fleet=fleet,
        profile_hash="0" * 64,
        sizing=Sizing.FULL,
        lanes=lanes,
        cost_usd_per_hour=sum(lane.cost_usd_per_hour for lane in lanes),
        cost_usd_per_1m_tokens=0.41,
    )


def shared_resources(kinds: tuple[str, ...], *, owner: str, fleet: str) -> tuple[SharedResource, ...]:
    """Return a shared resource of each kind, in order; the same arguments give the same tokens."""
    return tuple(SharedResource(token=f"{owner}/{fleet}/{kind}", owner=owner, fleet=fleet, kind=kind) for kind in kinds)


def replica(replica_id: str = "r1", *, fleet: str = "demo", lane: str = "short", **changes: Any) -> Replica:  # noqa: ANN401
    """Return a PENDING on-demand replica."""
    base = Replica(
        id=replica_id,
        fleet=fleet,
        lane=lane,
        engine="emulator",
        state=ReplicaState.PENDING,
        market=Market.ON_DEMAND,
        offering=offering().key,
        gpu="L40S",
        price_usd_per_hour=1.861,
        created_at=EPOCH,
        changed_at=EPOCH,
    )
    return replace(base, **changes)


def node_request(token: str = "token-1", **changes: Any) -> NodeRequest:  # noqa: ANN401, S107  # an intent's id
    """Return an order for `r1`'s node; `argv` names a program that does not exist."""
    base = NodeRequest(
        token=token,
        owner="owner-1",
        fleet="demo",
        replica_id="r1",
        lane="short",
        offering=offering().key,
        market=Market.ON_DEMAND,
        notice_s=0.0,
        argv=("/nonexistent/engine",),
        env={},
        host="127.0.0.1",
        port=20001,
        tags={"lane": "short"},
    )
    return replace(base, **changes)
