"""A lane's shed allowance: which refusals are good, and that every count, window and verdict goes by it alike."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, strategies as st

from fleetctl.core.gateway_merge import sum_of_totals
from fleetctl.core.slo.binomial import chance_of_at_least
from fleetctl.core.slo.burn import is_surely_bad
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.judge import COUNTS_ALONE, RUN_CONFIDENCE, judge_live, judge_run, judge_runs
from fleetctl.core.slo.lane_stats import LaneStats
from fleetctl.core.slo.ledger import add_totals, begin, count_over, hours_since, kinds_over
from fleetctl.core.slo.promises import TierPromises
from fleetctl.core.slo.traffic import TrafficCounts
from fleetctl.core.slo.wording import describe
from fleetctl.load.accounts import ClientAccounts
from fleetctl.model.budget import BudgetLedger, RequestTotals
from fleetctl.model.gateway import LaneSnapshot, LaneWindow
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric, covered_refusals
from fleetctl.model.tiers import TierSpec
from fleetctl.model.verdict import Compliance, SloFinding
from fleetctl.testing.samples import EPOCH

OBJECTIVE = 0.95
TTFT = LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=1.0)
counts = st.integers(0, 400)
shares = st.integers(0, 99).map(lambda percent: percent / 100)


def window(good: int, refused: int, late: int, shed: float) -> LaneWindow:
    stats = LaneStats()
    stats.good = good
    for kind, count in (("refused", refused), ("ttft", late)):
        if count:
            stats.breached[kind] = count
    return stats.window(60.0, LaneSlo(targets=(), shed=shed))


def share_of(good: int, refused: int, late: int, shed: float, confidence: float = COUNTS_ALONE) -> SloFinding:
    return judge_run(window(good, refused, late, shed), objective=OBJECTIVE, confidence=confidence).findings[0]


@given(counts, counts, counts, shares)
def test_what_is_covered_is_good_and_nothing_else_changes(good: int, refused: int, late: int, shed: float) -> None:
    found, plain = window(good, refused, late, shed), window(good, refused, late, 0.0)
    assert found.judged == plain.judged == good + refused + late
    assert plain.covered == 0
    assert plain.missed == refused + late
    assert found.attained + found.missed == found.judged
    assert 0 <= found.covered <= min(refused, shed * found.judged + 1e-6)
    assert found.covered == refused or found.covered + 1 > shed * found.judged - 1e-6, "as many as the share lets"
    assert sum(found.missed_by_kind.values()) == found.missed
    assert found.missed_by_kind.get("ttft", 0) == late, "an allowance covers refusals alone"
    assert found.good == good, "what was served well is counted by itself"


@given(counts, counts, counts, shares, shares)
def test_a_larger_allowance_never_makes_a_verdict_worse(
    good: int, refused: int, late: int, one: float, other: float
) -> None:
    grave = [Compliance.KEPT, Compliance.NONE, Compliance.UNDECIDED, Compliance.MISSED]
    tight, loose = (share_of(good, refused, late, shed, RUN_CONFIDENCE) for shed in (min(one, other), max(one, other)))
    assert loose.missed <= tight.missed
    assert grave.index(loose.compliance) <= grave.index(tight.compliance)


@given(counts, counts, counts, shares)
def test_a_promise_is_kept_just_where_other_misses_and_all_of_them_are_both_inside_their_shares(
    good: int, refused: int, late: int, shed: float
) -> None:
    offered, found = good + refused + late, share_of(good, refused, late, shed)
    if not offered:
        assert found.compliance is Compliance.NONE
        return
    allowed = offered * (1 - OBJECTIVE)
    whole = int(offered * shed + 1e-6)
    is_kept = late <= allowed + 1e-9 and late + refused <= allowed + whole + 1e-9
    assert (found.compliance is Compliance.KEPT) is is_kept
    assert found.covered + found.missed == refused + late
    assert (found.measured or 0.0) == pytest.approx(1.0 - found.missed / offered)


@given(counts, counts, counts)
def test_without_an_allowance_the_verdict_is_the_binomial_test_of_all_misses(
    good: int, refused: int, late: int
) -> None:
    found, offered = share_of(good, refused, late, 0.0, RUN_CONFIDENCE), good + refused + late
    if found.compliance in (Compliance.MISSED, Compliance.UNDECIDED):
        chance = chance_of_at_least(refused + late, offered, 1 - OBJECTIVE)
        assert (found.compliance is Compliance.MISSED) is (chance <= 1 - RUN_CONFIDENCE)


def test_refusals_just_beyond_the_allowance_of_few_requests_condemn_nobody() -> None:
    # Of 40 requests 20 % may be refused: nine are one more, which a lane that keeps its promise shows every third time.
    assert share_of(31, 9, 0, 0.20, RUN_CONFIDENCE).compliance is Compliance.KEPT, "one is within the objective's 5 %"
    assert share_of(29, 11, 0, 0.20, RUN_CONFIDENCE).compliance is Compliance.UNDECIDED
    assert share_of(10, 30, 0, 0.20, RUN_CONFIDENCE).compliance is Compliance.MISSED
    assert share_of(49, 41, 10, 0.50, RUN_CONFIDENCE).compliance is Compliance.MISSED, (
        "ten late of a hundred, whatever is refused"
    )


def test_one_refusal_of_too_few_requests_is_a_miss() -> None:
    assert covered_refusals(1, allowance=0.02 * 49) == 0
    assert covered_refusals(1, allowance=0.02 * 50) == 1
    assert share_of(10, 1, 0, 0.02).covered == 0


def test_a_verdict_says_what_was_refused_as_allowed() -> None:
    found = share_of(80, 20, 0, 0.15)
    assert (found.covered, found.missed, found.kinds) == (15, 5, {"refused": 5})
    assert describe(found).startswith(
        "95 of 100 requests good, 15 of them refused as allowed (5 refused), 95% promised"
    )


def test_live_windows_each_cover_their_own_share() -> None:
    snapshot = LaneSnapshot(
        name="chat",
        in_flight=0,
        queued=0,
        oldest_wait_s=0.0,
        windows=(
            msgspec.structs.replace(window(0, 100, 0, 0.2), seconds=10.0),
            msgspec.structs.replace(window(500, 100, 0, 0.2), seconds=60.0),
        ),
    )
    found = judge_live(snapshot, objective=OBJECTIVE, before=None, now=EPOCH)
    assert found.compliance is Compliance.MISSED, (
        "ten seconds in which all are refused are a breach, whatever the minute allows"
    )


@given(st.lists(st.tuples(counts, counts, counts), min_size=1, max_size=4), shares)
def test_several_runs_are_judged_by_the_sums_of_what_each_covers(runs: list[tuple[int, int, int]], shed: float) -> None:
    verdicts = [judge_run(window(*run, shed), objective=OBJECTIVE, confidence=COUNTS_ALONE) for run in runs]
    whole = judge_runs(verdicts, confidence=COUNTS_ALONE).findings[0]
    assert whole.covered == sum(each.findings[0].covered for each in verdicts)
    assert whole.missed + whole.covered == sum(refused + late for _, refused, late in runs)


@given(st.lists(st.tuples(counts, counts, counts), min_size=1, max_size=12), shares)
def test_an_error_budget_counts_as_the_judge_does(parts: list[tuple[int, int, int]], shed: float) -> None:
    ledger, found, now = None, RequestTotals(), EPOCH
    for number, (good, refused, late) in enumerate(parts):
        now = EPOCH + timedelta(seconds=7 * number)
        added = RequestTotals(good=good, bad=refused + late, kinds={"refused": refused, "ttft": late})
        found = sum_of_totals([found, added])
        ledger = add_totals(
            ledger or begin(RequestTotals(), gateway_started_at=EPOCH, now=EPOCH),
            found,
            gateway_started_at=EPOCH,
            now=now,
            window_s=7 * 86400.0,
            objective=OBJECTIVE,
            shed=shed,
        )
    assert ledger is not None
    good, refused, late = (sum(part[place] for part in parts) for place in range(3))
    whole = window(good, refused, late, shed)
    for window_s in (3600.0, 7 * 86400.0):
        counted = count_over(ledger, window_s, now)
        assert (counted.good, counted.bad, counted.covered) == (whole.attained, whole.missed, whole.covered)
        kinds = {kind: count for kind, count in kinds_over(ledger, window_s, now).items() if count}
        assert kinds == {kind: count for kind, count in whole.missed_by_kind.items() if count}
        share = judge_run(whole, objective=OBJECTIVE).findings[0]
        if counted.total and counted.burn is not None:
            assert counted.burn == pytest.approx(share.factor)
            assert not (is_surely_bad(counted) and share.compliance is Compliance.KEPT)
    hours = hours_since(ledger, EPOCH)
    assert sum(hour.good + hour.bad for hour in hours) == whole.judged


def test_an_allowance_that_changes_covers_what_was_refused_under_it() -> None:
    totals = RequestTotals(good=80, bad=20, kinds={"refused": 20})
    begun = begin(RequestTotals(), gateway_started_at=EPOCH, now=EPOCH)

    def counted(ledger: BudgetLedger, totals: RequestTotals, shed: float) -> BudgetLedger:
        return add_totals(
            ledger, totals, gateway_started_at=EPOCH, now=EPOCH, window_s=86400.0, objective=OBJECTIVE, shed=shed
        )

    ledger = counted(begun, totals, 0.2)
    assert count_over(ledger, 86400.0, EPOCH).bad == 0
    both = count_over(counted(ledger, sum_of_totals([totals, totals]), 0.0), 86400.0, EPOCH)
    assert (both.covered, both.bad) == (20, 20)


def test_all_lanes_together_cover_what_each_covers_and_no_more() -> None:
    slos = {"open": LaneSlo(targets=(TTFT,), shed=0.5), "strict": LaneSlo(targets=(TTFT,))}
    accounts = ClientAccounts(slos, objective=0.9, now_s=0.0)
    for lane, endings in (("open", "gr" * 5), ("strict", "g" * 8 + "rr")):
        for each in endings:
            watch = accounts.begin(lane, 0.0, is_stream=True)
            if each == "g":
                watch.tokens(0.1, 1)
            ending = Ending.COMPLETE if each == "g" else Ending.REFUSED
            accounts.end(watch, 0.2, ending, is_stream=True, message="")
    opened, strict = accounts.whole("open", 1.0), accounts.whole("strict", 1.0)
    assert (opened.compliance, opened.good, opened.findings[0].covered) == (Compliance.KEPT, 10, 5)
    assert (strict.good, strict.findings[0].covered) == (8, 0)
    _, total = accounts.total(1.0)
    assert (total.good, total.offered, total.findings[0].covered) == (18, 20, 5)


@pytest.mark.parametrize(("shed", "compliance"), [(0.0, Compliance.MISSED), (0.4, Compliance.KEPT)])
def test_a_tier_with_promises_of_its_own_has_an_allowance_of_its_own(shed: float, compliance: Compliance) -> None:
    slos = {"open": LaneSlo(targets=(TTFT,), shed=0.9)}
    accounts, counted = ClientAccounts(slos, objective=0.95, now_s=0.0), TrafficCounts()
    for number in range(50):
        watch = accounts.begin("open", 0.0, is_stream=True)
        is_refused = number % 5 < 2
        if not is_refused:
            watch.tokens(0.1, 1)
        accounts.end(watch, 0.2, Ending.REFUSED if is_refused else Ending.COMPLETE, is_stream=True, message="full")
        counted.add(watch, refusal="full" if is_refused else "", served_tokens=1)
    tiers = (TierSpec(name="gold", slo=LaneSlo(targets=(TTFT,), shed=shed)),)
    promised = TierPromises(tiers=tiers, lanes=tuple(slos.values()), objective=0.95, confidence=RUN_CONFIDENCE)
    share, _ = promised.judged("gold", counted)
    assert (share.compliance, share.samples, share.missed) == (compliance, 50, 0 if shed else 20)
