from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.core.conditions import ConditionReason, ConditionType, lane_condition
from fleetctl.core.lane_figures import lane_headline
from fleetctl.model.gateway import LaneSnapshot, LaneWindow
from fleetctl.model.ladder import LadderStep
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric, Quantiles, Validity
from fleetctl.model.status import LaneStatus
from fleetctl.testing import samples


def lane(*, seconds: float = 60.0, ttft: Quantiles | None = None) -> LaneStatus:
    window = LaneWindow(seconds=seconds, ttft=ttft or Quantiles())
    return LaneStatus(
        name="short", slo=samples.lane_slo(), wanted=2, ready=2, spot=0, on_demand=2, live=2, step=LadderStep.NORMAL,
        validity=Validity.OK,
        traffic=LaneSnapshot(name="short", in_flight=0, queued=0, oldest_wait_s=0, windows=(window,)),
    )  # fmt: skip


def quantiles(p99_s: float, *, count: int = 1000) -> Quantiles:
    return Quantiles(count=count, p50_s=p99_s / 4, p95_s=p99_s / 2, p99_s=p99_s, max_s=p99_s)


@pytest.mark.parametrize(
    ("changes", "condition", "reason_code"),
    [
        ({}, ConditionType.READY, ConditionReason.AS_WANTED),
        ({"ready": 1, "pending": 1}, ConditionType.STARTING, ConditionReason.REPLICAS_PENDING),
        ({"ready": 1, "pending": 0}, ConditionType.DEGRADED, ConditionReason.REPLICAS_MISSING),
        ({"step": LadderStep.CAP_TOKENS}, ConditionType.DEGRADED, ConditionReason.LADDER_STEP),
        ({"traffic": None, "validity": Validity.STALE}, ConditionType.STALE, ConditionReason.NO_FIGURES),
    ],
)
def test_a_lane_has_one_condition_with_its_reason(changes, condition, reason_code):
    found = lane_condition(replace(lane(), **changes))
    assert (found.type, found.reason_code) == (condition, reason_code)


def test_a_breach_needs_enough_samples():
    assert lane_condition(lane(ttft=quantiles(0.4))).type is ConditionType.BREACH
    assert lane_condition(lane(ttft=quantiles(0.4, count=20))).type is ConditionType.READY
    assert lane_condition(lane(ttft=quantiles(0.2))).type is ConditionType.READY


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
