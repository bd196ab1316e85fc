"""How finished requests are judged."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fleetctl.core.slo.breach import Limits, RequestMeasurements, Uncounted, classify
from fleetctl.core.slo.endings import Ending
from fleetctl.model.slo import BreachKind, LaneSlo, LatencyTarget, Metric

CHAT = Limits.of(
    LaneSlo(
        targets=(
            LatencyTarget(metric=Metric.TTFT, percentile=0.5, limit_s=0.1),
            LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=0.3),
            LatencyTarget(metric=Metric.ITL, percentile=0.99, limit_s=0.05),
        )
    )
)
BATCH = Limits.of(LaneSlo(targets=(LatencyTarget(metric=Metric.COMPLETION, percentile=0.95, limit_s=14400.0),)))
GOOD = RequestMeasurements(ending=Ending.COMPLETE, total_s=4.0, ttft_s=0.2, gaps=200)


def test_a_request_inside_every_limit_is_good():
    assert classify(GOOD, CHAT) is None


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"ttft_s": 0.31}, BreachKind.TTFT),
        ({"gaps_over": 2}, None),  # exactly 1 % of 200
        ({"gaps_over": 3}, BreachKind.ITL),
        ({"gaps": 10, "gaps_over": 1}, BreachKind.ITL),
        ({"gaps_over": 3, "ttft_s": 0.31}, BreachKind.TTFT),
        ({"ending": Ending.INCOMPLETE, "ttft_s": 0.31}, BreachKind.INCOMPLETE),
        ({"ending": Ending.TIMEOUT}, BreachKind.TIMEOUT),
        ({"ending": Ending.ERROR}, BreachKind.ERROR),
        ({"ending": Ending.REJECTED, "ttft_s": 9.0}, Uncounted.REJECTED),
        ({"ending": Ending.CANCELLED}, Uncounted.CANCELLED),
        ({"ending": Ending.CANCELLED, "ttft_s": None, "total_s": 0.1}, Uncounted.CANCELLED),
        ({"ending": Ending.CANCELLED, "ttft_s": None, "total_s": 0.4}, BreachKind.TTFT),
        ({"ttft_s": 0.3}, None),
        ({"streamed": False, "ttft_s": None}, None),
    ],
)
def test_verdicts(change, verdict):
    assert classify(replace(GOOD, **change), CHAT) == verdict


def test_a_batch_request_past_its_completion_limit_timed_out():
    assert classify(replace(GOOD, total_s=14401.0, ttft_s=9000.0), BATCH) is BreachKind.TIMEOUT
    assert classify(replace(GOOD, total_s=14399.0, ttft_s=9000.0), BATCH) is None


def test_a_lane_without_promises_only_fails_by_not_answering():
    free = Limits.of(LaneSlo(targets=()))
    assert classify(replace(GOOD, total_s=1e6, gaps_over=200), free) is None
    assert classify(replace(GOOD, ending=Ending.ERROR), free) is BreachKind.ERROR


def test_a_queue_wait_promise_counts_with_the_first_token():
    waits = Limits.of(LaneSlo(targets=(LatencyTarget(metric=Metric.QUEUE_WAIT, percentile=0.99, limit_s=0.01),)))
    assert classify(replace(GOOD, queue_wait_s=0.02), waits) is BreachKind.TTFT
