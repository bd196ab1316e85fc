"""What a load run comes to: its table, its verdict and its exit code never contradict each other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.cli.load_view import load_view
from fleetctl.cli.output import Format, text_of
from fleetctl.errors import ConfigError, NotFoundError, SloBreachError, UnavailableError
from fleetctl.load.accounts import UNNAMED_LANE, ClientAccounts
from fleetctl.load.counts import LoadCounts
from fleetctl.load.exchange import ClientExchange
from fleetctl.load.report import GeneratorFigures, LoadReport
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric, Quantiles
from fleetctl.model.verdict import Compliance
from fleetctl.operations.traffic import LoadVerdict, check_answered, check_lane, check_slo
from fleetctl.testing import samples

if TYPE_CHECKING:
    from collections.abc import Iterable

SLOS = {"short": samples.lane_slo()}
END_S = 60.0


def answered(lane: str = "short", *, ttft_s: float = 0.2) -> tuple[ClientExchange, float]:
    return ClientExchange(lane=lane, status=200), ttft_s


def refused(lane: str = "short") -> tuple[ClientExchange, float]:
    return ClientExchange(lane=lane, status=429, message="queue-full"), 0.0


def failed(lane: str = "", *, status: int = 0, failure: str = "connect") -> tuple[ClientExchange, float]:
    return ClientExchange(lane=lane, status=status, failure=failure, message="why"), 0.0


def cut_short(lane: str = "", *, after_s: float = 0.1) -> tuple[ClientExchange, float]:
    return ClientExchange(lane=lane, failure="unfinished"), after_s


def report(
    exchanges: Iterable[tuple[ClientExchange, float]], slos: dict[str, LaneSlo] = SLOS, *, late_s: float = 0.001
) -> LoadReport:
    accounts, counts = ClientAccounts(slos, objective=0.995, now_s=0.0), LoadCounts(tuple(slos))
    for exchange, ttft_s in exchanges:
        watch = accounts.begin(exchange.lane, 0.0, is_stream=True)
        if exchange.is_ok:
            watch.tokens(ttft_s, 1)
        accounts.end(watch, ttft_s, exchange.ending, is_stream=True, message=exchange.message)
        counts.add(accounts.lane_name(exchange.lane), exchange)
    late = Quantiles(count=400, p50_s=late_s, p95_s=late_s, p99_s=late_s, max_s=late_s)
    return LoadReport(
        url="http://127.0.0.1:1", model="m", source="generated", duration_s=END_S, elapsed_s=END_S, ended_early=False,
        drain_timed_out=False, unfinished=0, lanes=counts.lanes(accounts, now_s=END_S, elapsed_s=END_S, duration_s=END_S),
        total=counts.total(accounts, now_s=END_S, elapsed_s=END_S, duration_s=END_S), generator=GeneratorFigures(lateness=late),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("exchanges", "compliance", "attained", "reason"),
    [
        ([answered()] * 400, Compliance.KEPT, 1.0, ""),
        ([answered(ttft_s=0.3)] * 400, Compliance.KEPT, 1.0, ""),
        ([answered(ttft_s=0.32)] * 400, Compliance.MISSED, 0.0, "ttft P99 320ms > 300ms"),
        ([answered()] * 108 + [refused()] * 180, Compliance.MISSED, 0.375, "108 of 288 requests good (180 refused)"),
        ([answered()] * 51 + [answered(ttft_s=0.4)], Compliance.UNDECIDED, 51 / 52, "(too few to be sure)"),
        ([answered()] * 398 + [failed("short")] * 2, Compliance.KEPT, 0.995, ""),
        ([answered()] * 390 + [failed("short")] * 10, Compliance.MISSED, 0.975, "390 of 400 requests good (10 error)"),
    ],
)
def test_a_lane_is_held_to_good_of_offered_and_to_every_target(exchanges, compliance, attained, reason):
    found = report(exchanges)
    (lane,) = found.lanes
    assert lane.verdict.compliance is LoadVerdict(report=found).compliance is compliance
    assert lane.attainment == found.total.attainment == pytest.approx(attained)
    text = text_of(load_view(found, SLOS), Format.TABLE)
    assert reason in text
    assert " over 60s" in text or compliance is Compliance.KEPT


def test_what_fails_before_a_lane_answers_counts_in_the_total_and_in_the_verdict():
    found = report([answered()] * 690 + [failed()] * 16)
    assert [lane.lane for lane in found.lanes] == ["short", UNNAMED_LANE]
    assert found.total.attainment == pytest.approx(690 / 706)
    verdict = LoadVerdict(report=found)
    assert verdict.compliance is Compliance.MISSED
    assert verdict.missed[0].startswith("lane - missed its SLO: 690 of 706 requests good (16 error)")


def test_few_that_no_lane_was_named_for_condemn_nobody():
    found = report([answered()] * 2000 + [failed(), cut_short(), cut_short(after_s=0.4)])
    assert LoadVerdict(report=found).compliance is Compliance.KEPT
    assert found.lanes[-1].verdict.compliance is Compliance.NONE
    assert found.lanes[-1].breached == {"error": 1, "ttft": 1}
    assert found.lanes[-1].verdict.offered == 3
    check_slo(found)


def test_more_cut_short_than_may_be_missed_are_undecided_and_no_success():
    found = report([answered()] * 190 + [cut_short()] * 2)
    assert LoadVerdict(report=found).compliance is Compliance.UNDECIDED
    text = text_of(load_view(found, SLOS), Format.TABLE)
    assert (
        "190 of 192 requests good (2 cut short), 99.5% promised (burn 0x) over 60s (too many cut short to be sure)"
        in text
    )
    with pytest.raises(UnavailableError, match="undecided: lane -: 190 of 192 requests good"):
        check_slo(found)


def test_what_was_missed_is_missed_whatever_was_cut_short():
    found = report([answered()] * 190 + [refused()] * 20 + [cut_short("short")] * 20)
    with pytest.raises(SloBreachError, match=r"190 of 230 requests good \(20 refused, 20 cut short\)"):
        check_slo(found)


def test_a_client_that_is_wrong_itself_breaks_no_slo_and_is_told():
    found = report([answered()] * 20 + [failed("short", status=400, failure="http-400")] * 20)
    assert found.total.attainment == 1.0
    assert LoadVerdict(report=found).compliance is Compliance.KEPT
    text = text_of(load_view(found, SLOS), Format.TABLE)
    assert "short: 20 x http-400 (why)" in text
    assert "20 requests were the client's own fault (4xx)" in text


@pytest.mark.parametrize(
    ("exchanges", "error"),
    [
        ([failed(status=404, failure="http-404")] * 9, ConfigError),
        ([failed()] * 9, UnavailableError),
        ([refused()] * 9, UnavailableError),
        ([failed(status=404, failure="http-404"), refused()], UnavailableError),
    ],
)
def test_a_run_in_which_nothing_was_answered_is_an_error_with_its_reasons(exchanges, error):
    with pytest.raises(error, match=r"none of \d requests was answered: .*(why|queue-full)"):
        check_answered(report(exchanges))
    check_answered(report([*exchanges, answered()]))
    check_answered(report([]))


def test_requests_that_still_waited_when_the_run_ended_were_not_answered():
    with pytest.raises(UnavailableError, match="none of 4 requests was answered: 4 still waited when the run ended"):
        check_answered(report([cut_short()] * 4))
    with pytest.raises(UnavailableError, match=r"none of 13 requests was answered: 9 x .*; 4 still waited"):
        check_answered(report([failed(status=404, failure="http-404")] * 9 + [cut_short()] * 4))


def test_a_lane_the_fleet_does_not_have_is_an_error_up_front():
    check_lane(samples.profile(), "short")
    check_lane(samples.profile(), "")
    with pytest.raises(NotFoundError, match="no lane 'shrot'") as caught:
        check_lane(samples.profile(), "shrot")
    assert "did you mean 'short'" in caught.value.hint


def test_an_address_without_slos_is_measured_and_not_judged():
    found = report([answered(ttft_s=60.0)] * 4 + [refused()], {})
    assert LoadVerdict(report=found).compliance is Compliance.NONE
    assert found.total.attainment is None
    assert found.total.good == 4


def test_completion_is_measured_end_to_end():
    slo = LaneSlo(targets=(LatencyTarget(metric=Metric.COMPLETION, percentile=0.95, limit_s=4.0),))
    found = report([answered("batch", ttft_s=4.5)] * 40, {"batch": slo})
    assert "completion P95 4.5s > 4s" in LoadVerdict(report=found).missed[0]


def test_goodput_and_tokens_are_over_the_same_time():
    found = replace(report([answered()] * 60)).total
    assert found.goodput_rps == pytest.approx(60 / END_S)


def test_the_report_shows_every_percentile_beside_its_promise():
    found = report([answered()] * 400 + [answered("long", ttft_s=3.0)] * 9)
    text = text_of(load_view(found, SLOS), Format.TABLE)
    assert "P99 300ms" in text
    assert "total" in text


def test_a_generator_that_lagged_and_a_drain_that_was_cut_are_said():
    found = replace(report([answered()], late_s=0.4), drain_timed_out=True, unfinished=3)
    text = text_of(load_view(found, SLOS), Format.TABLE)
    assert "the generator itself ran up to 400ms late" in text
    assert "not waited for any longer, 3 requests cut short" in text
