"""What planning computes by a short way is what the long way finds: knees, quantiles of TTFT, and whether a limit is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.core.plan.checks import evaluate
from fleetctl.model.slo import LatencyTarget, Metric
from tests.operations.test_proving import searched

if TYPE_CHECKING:
    from fleetctl.core.plan.replica import ReplicaModel

RATES = (0.5, 3.0, 12.0, 60.0)


def replica_at(rps: float) -> ReplicaModel:
    return searched(rps=rps).chosen[0].result.state.replica


@pytest.mark.parametrize("rps", RATES)
def test_below_its_knee_a_replica_has_a_steady_state_with_a_free_slot_and_above_it_has_none(rps: float) -> None:
    replica = replica_at(rps)
    below, above = (replica.operate(replica.knee_rps * share) for share in (0.999, 1.005))
    assert below is not None
    assert replica.has_free_slot(below)
    assert above is None or not replica.has_free_slot(above)
    for share in (0.5, 0.9, 0.94, 0.96, 0.99, 1.2):
        assert replica.is_within_knee(share * replica.knee_rps, 0.95) == (share <= 0.95)


@pytest.mark.parametrize("rps", RATES)
@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.95, 0.99, 0.999])
def test_a_quantile_of_ttft_is_where_the_chance_to_exceed_it_falls_to_what_is_left(rps: float, fraction: float) -> None:
    replica = replica_at(rps)
    for load in (0.2, 0.7, 0.95):
        found = evaluate(replica, max(1, round(rps / (load * replica.knee_rps))))
        if found is None:
            continue
        at_s = found.ttft.quantile_s(fraction)
        assert found.ttft.exceeds(at_s) <= 1.0 - fraction
        assert found.ttft.exceeds(at_s * (1.0 - 1e-6)) >= (1.0 - fraction) * (1.0 - 1e-6)


def test_a_promise_of_whole_answers_is_kept_exactly_where_its_quantile_is_inside() -> None:
    search = searched(rps=12)
    (option,) = search.chosen
    found, lane = option.result.state, option.lane
    margin = found.replica.margin.of(Metric.E2E)
    for percentile in (0.5, 0.95, 0.99):
        inside_s = found.e2e_s(percentile) * margin
        for share in (0.2, 0.9, 0.999, 1.001, 1.5, 3.0, 100.0):
            target = LatencyTarget(metric=Metric.E2E, percentile=percentile, limit_s=inside_s * share)
            assert found.keeps(lane, target) == (share > 1.0)
