from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from fleetctl.core.conditions import ConditionReason, ConditionType, fleet_condition, lane_condition, lane_conditions
from fleetctl.core.lane_figures import lane_headline
from fleetctl.core.slo.judge import judge_live
from fleetctl.model.alert import Alert, AlertName, AlertSeverity, AlertState
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.gateway import LaneSnapshot, LaneWindow
from fleetctl.model.ladder import LadderStep
from fleetctl.model.observation import EngineSignals
from fleetctl.model.profile import Mode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric, Quantiles, TargetCount, Validity
from fleetctl.model.status import FleetStatus, LaneStatus, ReplicaStatus
from fleetctl.model.tls import ServedCertificate
from fleetctl.model.verdict import BreachRecord
from fleetctl.operations.service_check import check_service
from fleetctl.testing import samples
from fleetctl.testing.samples import EPOCH


def lane(*, seconds: float = 60.0, ttft: Quantiles | None = None, missed: int = 0) -> LaneStatus:
    target = samples.lane_slo().targets[0]
    counts = TargetCount(target=target, samples=40, over=missed, measured_s=0.9 if missed else 0.1)
    window = LaneWindow(
        seconds=seconds, ttft=ttft or Quantiles(), good=40 - missed, breached={"ttft": missed}, targets=(counts,)
    )
    traffic = LaneSnapshot(
        name="short",
        in_flight=0,
        queued=0,
        oldest_wait_s=0,
        windows=(msgspec.structs.replace(window, seconds=10.0), window),
    )
    before = BreachRecord(since=EPOCH - timedelta(seconds=45), names=("ttft P99",)) if missed > 1 else None
    return LaneStatus(
        name="short", slo=samples.lane_slo(), wanted=2, ready=2, spot=0, on_demand=2, live=2, step=LadderStep.NORMAL,
        validity=Validity.OK, traffic=traffic, verdict=judge_live(traffic, objective=0.995, before=before, now=EPOCH),
    )  # fmt: skip


def traffic(**changes: Any) -> LaneSnapshot:
    return LaneSnapshot(name="short", in_flight=0, queued=0, oldest_wait_s=0, windows=(), **changes)


def fleet(*lanes: LaneStatus, **changes: Any) -> FleetStatus:
    base = FleetStatus(
        fleet="demo", at=EPOCH, phase=DesiredPhase.UP, mode=Mode.ACTIVE, model="m", provider="local", generation=1,
        gateway_url="http://127.0.0.1:1", gateway_alive=True, controller_alive=True, controller_pid=1, gateway_pid=2,
        cost_usd_per_hour=1.0, max_cost_usd_per_hour=None, cost_usd_per_1m_tokens=None, lanes=lanes, replicas=(), decisions=(),
    )  # fmt: skip
    return replace(base, **changes)


def quantiles(p99_s: float, *, count: int = 1000) -> Quantiles:
    return Quantiles(count=count, p50_s=p99_s / 4, p95_s=p99_s / 2, p99_s=p99_s, max_s=p99_s)


@pytest.mark.parametrize(
    ("changes", "condition", "reason_code"),
    [
        ({}, ConditionType.READY, ConditionReason.AS_WANTED),
        ({"ready": 1, "pending": 1}, ConditionType.STARTING, ConditionReason.REPLICAS_PENDING),
        ({"ready": 1, "pending": 0}, ConditionType.DEGRADED, ConditionReason.REPLICAS_MISSING),
        # It had both: its users have less than they had, whatever is on its way.
        ({"ready": 1, "pending": 1, "lost_since": EPOCH}, ConditionType.DEGRADED, ConditionReason.REPLICAS_MISSING),
        ({"step": LadderStep.CAP_TOKENS}, ConditionType.DEGRADED, ConditionReason.LADDER_STEP),
        ({"traffic": traffic(ejected=2, serves=False)}, ConditionType.DEGRADED, ConditionReason.NONE_SERVES),
        ({"traffic": traffic(ejected=2)}, ConditionType.READY, ConditionReason.AS_WANTED),
        ({"traffic": None, "validity": Validity.STALE}, ConditionType.STALE, ConditionReason.NO_FIGURES),
    ],
)
def test_a_lane_has_one_condition_with_its_reason(changes, condition, reason_code):
    found = lane_condition(replace(lane(), **changes))
    assert (found.type, found.reason_code) == (condition, reason_code)


def test_a_handful_of_late_requests_is_a_breach_and_one_of_forty_is_not():
    found = lane_condition(lane(missed=12))
    assert (found.type, found.reason_code) == (ConditionType.BREACH, ConditionReason.SLO_MISSED)
    assert found.message == (
        "for 45s: ttft P99 900ms > 300ms (3x) over 60s; "
        "28 of 40 requests good (12 ttft), 99.5% promised (burn 60x) over 60s"
    )
    undecided = lane_condition(lane(missed=1))
    assert undecided.type is ConditionType.READY
    assert undecided.message.endswith("(too few to be sure)")
    assert lane_condition(lane()).message == ""


@pytest.mark.parametrize(
    "changes", [{"step": LadderStep.CAP_CONTEXT}, {"ready": 1, "pending": 1}, {"ready": 1, "pending": 0}]
)
def test_nothing_hides_a_breach_and_every_reason_is_listed(changes):
    missed = replace(lane(missed=12), **changes)
    found = lane_conditions(missed)
    assert found[0].type is ConditionType.BREACH
    assert len(found) == 2
    headline = lane_condition(missed)
    assert headline.type is ConditionType.BREACH
    assert all(condition.message in headline.message for condition in found)


def test_a_fleet_is_headed_by_what_is_worst_for_its_users_and_lists_the_rest():
    starting = replace(lane(), name="long", ready=1, pending=1)
    found = fleet_condition(fleet(starting, lane(missed=12)))
    assert found.type is ConditionType.BREACH
    assert found.message.startswith("short: ")
    assert "long: 1 of 2 replicas ready" in found.message
    silent = fleet_condition(fleet(starting, lane(missed=12), gateway_alive=False))
    assert silent.reason_code is ConditionReason.GATEWAY_SILENT
    booting = fleet_condition(fleet(replace(starting, ready=0, pending=2), gateway_alive=False))
    assert booting.type is ConditionType.STARTING
    assert "the gateway does not answer" in booting.message


def test_an_empty_minute_is_shown_by_five():
    headline = lane_headline(lane(seconds=300.0, ttft=quantiles(0.2)))
    assert headline is not None
    assert headline.measured_s == 0.2


def test_a_batch_lane_leads_with_completion():
    slo = LaneSlo(targets=(LatencyTarget(metric=Metric.COMPLETION, percentile=0.95, limit_s=14400.0),))
    headline = lane_headline(replace(lane(), slo=slo))
    assert headline is not None
    assert (headline.target.metric, headline.measured_s) == (Metric.COMPLETION, None)


@pytest.mark.parametrize(("percentile", "shown_s"), [(0.5, 1.0), (0.9, 2.0), (0.95, 2.0), (0.99, 4.0), (0.999, 4.0)])
def test_a_promise_is_measured_by_no_kinder_percentile_than_is_kept(percentile, shown_s):
    assert quantiles(4.0).at_s(percentile) == shown_s


@pytest.mark.parametrize("severity", AlertSeverity)
def test_an_alert_that_fires_is_a_condition_and_one_that_is_pending_is_none(severity: AlertSeverity) -> None:
    firing = Alert(
        name=AlertName.SLOW_BURN, severity=severity, state=AlertState.FIRING, since=EPOCH, message="burns 3x over 3d"
    )
    pending = replace(firing, state=AlertState.PENDING)
    assert lane_condition(replace(lane(), alerts=(pending,))).type is ConditionType.READY
    found = lane_condition(replace(lane(), alerts=(firing,)))
    assert (found.type, found.reason_code) == (ConditionType.ALERT, ConditionReason.BUDGET_BURN)
    assert found.message == f"alert slow-burn ({severity}) since {EPOCH:%Y-%m-%d %H:%M:%S} UTC: burns 3x over 3d"
    short = replace(lane(), alerts=(firing,), ready=1)
    assert lane_condition(short).type is ConditionType.DEGRADED
    assert "alert slow-burn" in lane_condition(short).message


@pytest.mark.parametrize(
    ("changes", "reason_code", "message"),
    [
        ({"cost_usd_per_hour": 7.55, "max_cost_usd_per_hour": 6.0}, ConditionReason.OVER_COST_CAP,
         "it costs $7.55/h, over the cap of $6.00/h; serving goes on, nothing new is created"),
        ({"max_nodes": 3}, ConditionReason.OVER_NODE_CAP,
         "it has 4 nodes, over the cap of 3; serving goes on, nothing new is created"),
        ({"cost_usd_per_hour": 0.1 + 0.2, "max_cost_usd_per_hour": 0.3, "max_nodes": 4}, ConditionReason.AS_WANTED, ""),
    ],
)  # fmt: skip
def test_a_fleet_over_a_cap_says_so(changes: dict[str, Any], reason_code: ConditionReason, message: str) -> None:
    records = (
        samples.replica("r1", node_count=2),
        samples.replica("r2", state=ReplicaState.STOPPING, node_count=2),
        samples.replica("r3", state=ReplicaState.GONE),
    )
    replicas = tuple(ReplicaStatus(record=record, engine=EngineSignals(), in_flight=0) for record in records)
    over = fleet(lane(), replicas=replicas, **changes)
    found = fleet_condition(over)
    assert (found.reason_code, found.message) == (reason_code, message)
    assert found.type is (ConditionType.READY if reason_code is ConditionReason.AS_WANTED else ConditionType.ALERT)
    check_service([over])  # its users are well
    breach = fleet_condition(replace(over, lanes=(lane(missed=12),)))
    assert breach.type is ConditionType.BREACH
    assert message in breach.message
    assert fleet_condition(replace(over, phase=DesiredPhase.DOWN)).type in (ConditionType.STOPPING, ConditionType.DOWN)


@pytest.mark.parametrize(
    ("served", "condition", "reason_code", "text"),
    [
        (None, ConditionType.READY, ConditionReason.AS_WANTED, ""),
        (ServedCertificate(not_after=EPOCH + timedelta(days=15)), ConditionType.READY, ConditionReason.AS_WANTED, ""),
        (
            ServedCertificate(not_after=EPOCH + timedelta(days=13)),
            ConditionType.ALERT,
            ConditionReason.CERTIFICATE_ENDS,
            "renewed",
        ),
        (
            ServedCertificate(not_after=EPOCH),
            ConditionType.DEGRADED,
            ConditionReason.CERTIFICATE_ENDS,
            "no client takes it",
        ),
        (
            ServedCertificate(fault="no file"),
            ConditionType.DEGRADED,
            ConditionReason.CERTIFICATE_MISSING,
            "no client is served: no file",
        ),
        (
            ServedCertificate(not_after=EPOCH + timedelta(days=50), fault="no key"),
            ConditionType.ALERT,
            ConditionReason.CERTIFICATE_FAULT,
            "no key; the certificate before is served on",
        ),
    ],
)
def test_a_certificate_is_said_where_clients_meet_it(served, condition, reason_code, text):
    found = fleet_condition(fleet(lane(), certificate=served))
    assert (found.type, found.reason_code) == (condition, reason_code)
    assert text in found.message


@pytest.mark.parametrize("shared_left", [0, 2])
def test_a_fleet_that_goes_down_says_what_its_provider_refuses(shared_left: int) -> None:
    refused = "ec2.describe_instances: the credentials are no longer valid"
    live = () if shared_left else (lane(),)
    going = fleet(
        *live, phase=DesiredPhase.DOWN, shared_left=shared_left, gateway_alive=not shared_left, reason=refused
    )
    found = fleet_condition(going)
    assert found.type is ConditionType.STOPPING
    assert found.message.endswith(f"; {refused}")
