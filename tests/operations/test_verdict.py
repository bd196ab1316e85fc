from __future__ import annotations

import pytest

from fleetctl.cli.load_view import load_view
from fleetctl.cli.output import Format, text_of
from fleetctl.load.report import GeneratorFigures, LaneFigures, LoadReport
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric, Quantiles
from fleetctl.operations.traffic import judge
from fleetctl.testing import samples


def spread(p99_s: float, count: int = 400) -> Quantiles:
    return Quantiles(count=count, p50_s=p99_s / 4, p95_s=p99_s / 2, p99_s=p99_s, max_s=p99_s * 1.5)


def figures(lane: str = "short", *, ttft_s: float = 0.2, failed: int = 0, refused: int = 0) -> LaneFigures:
    return LaneFigures(
        lane=lane, requests=400, ok=400 - failed - refused, good=400 - failed - refused, refused=refused,
        failed={"reset": failed} if failed else {}, attainment=0.99, goodput_rps=6.5, output_tokens_per_s=900.0,
        ttft=spread(ttft_s), itl=spread(0.03), e2e=spread(9.0),
    )  # fmt: skip


def report(*lanes: LaneFigures, late_s: float = 0.001) -> LoadReport:
    return LoadReport(
        url="http://127.0.0.1:1", model="m", source="generated", duration_s=60, elapsed_s=66, ended_early=False,
        unfinished=0, lanes=lanes, total=figures("total"), generator=GeneratorFigures(lateness=spread(late_s)),
    )  # fmt: skip


SLOS = {"short": samples.lane_slo()}


@pytest.mark.parametrize(
    ("lane", "kept", "reason"),
    [
        (figures(), True, ""),
        (figures(ttft_s=0.3), True, ""),
        (figures(ttft_s=0.31), False, "ttft P99 0.31s over 0.3s"),
        (figures(failed=2), True, ""),  # 0.5 % of 400: just what the objective allows
        (figures(failed=3), False, "3 of 400 requests failed"),
        (figures(refused=100), True, ""),  # a refusal is no breach
        (LaneFigures(lane="short"), None, ""),
    ],
)
def test_a_lane_is_held_to_every_promise_and_to_the_objective(lane, kept, reason):
    judged = judge(report(lane), SLOS)
    assert [(v.kept, v.reason) for v in judged.lanes] == [(kept, reason)]
    assert judged.kept is (kept is not False)


def test_lanes_without_a_promise_are_shown_and_not_judged():
    judged = judge(report(figures("-", ttft_s=60.0)), SLOS)
    assert judged.lanes == ()
    assert judged.kept


def test_completion_is_measured_end_to_end():
    slo = LaneSlo(targets=(LatencyTarget(metric=Metric.COMPLETION, percentile=0.95, limit_s=4.0),))
    judged = judge(report(figures("batch")), {"batch": slo})
    assert judged.lanes[0].reason == "completion P95 4.5s over 4s"


def test_the_report_shows_every_percentile_beside_its_promise():
    judged = judge(report(figures(), figures("long", ttft_s=3.0)), SLOS | {"long": samples.lane_slo()})
    text = text_of(load_view(judged, SLOS), Format.TABLE)
    assert "short  ttft        400   50ms  100ms  200ms  300ms  P99 300ms" in text
    assert "MISSED" in text
    assert "total" in text


def test_a_generator_that_lagged_says_so():
    judged = judge(report(figures(), late_s=0.4), SLOS)
    assert "the generator itself ran up to 400ms late" in text_of(load_view(judged, SLOS), Format.TABLE)
