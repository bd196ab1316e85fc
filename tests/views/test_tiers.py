"""A tier's figures as people read them."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.model.gateway import LaneSnapshot
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric, Quantiles
from fleetctl.model.tiers import TierSnapshot, TierWindow
from fleetctl.views.table import Tone, titles
from fleetctl.views.tiers import tier_lines, tier_table

WINDOWS = tuple(
    TierWindow(
        seconds=seconds, offered=1204, good=1190, missed=10, refused={"tier-share": 3, "predicted-wait": 4},
        token_share=0.312,
        ttft=Quantiles(count=1190, p50_s=0.1, p95_s=0.15, p99_s=0.18),
    )
    for seconds in (10.0, 60.0, 300.0, 3600.0)
)  # fmt: skip
PREMIUM = TierSnapshot(name="premium", in_flight=4, queued=2, due=0.59, had=0.02, floor=0.2, windows=WINDOWS)
LANE_SLO = LaneSlo(targets=(LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=2.0),))
NEW = TierSnapshot(name="free", due=0.115, floor=0.05, slo=LANE_SLO)


def test_a_row_says_what_a_tier_had_and_what_it_is_due() -> None:
    table = tier_table([("short", (PREMIUM, NEW)), ("long", ())])
    assert table is not None
    assert [each.text for each in titles(table)][:4] == ["LANE", "TIER", "OFFERED", "GOOD"]
    rows = [[each.text for each in row.cells] for row in table.rows]
    assert rows[0] == ["short", "premium", "1,204", "99.17%", "7", "180ms", "31.2%", "59%", "20%", "4", "2"]
    assert rows[1] == ["short", "free", "0", "-", "0", "-/2s", "-", "11.5%", "5%", "0", "0"]


def test_what_a_tier_is_promised_stands_beside_what_was_measured() -> None:
    strict = LaneSlo(targets=(LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=0.1),))
    table = tier_table([("short", (replace(PREMIUM, slo=LANE_SLO), replace(PREMIUM, slo=strict)))])
    assert table is not None
    cells = [row.cells[5] for row in table.rows]
    assert [each.spans for each in cells] == [(("180ms/2s", Tone.PLAIN),), (("180ms/100ms", Tone.BAD),)]


def test_a_removed_tier_keeps_its_row_and_is_due_nothing() -> None:
    gone = replace(PREMIUM, is_removed=True, in_flight=1, queued=0)
    table = tier_table([("short", (NEW, gone))])
    assert table is not None
    row = [each.text for each in table.rows[1].cells]
    assert row == ["short", "premium (removed)", "1,204", "99.17%", "7", "180ms", "31.2%", "-", "-", "1", "0"]
    seen = LaneSnapshot(name="short", in_flight=4, queued=2, oldest_wait_s=0.0, windows=(), tiers=(gone,))
    [line] = tier_lines(seen)
    assert (
        line == "premium (removed): 99.17% good of 1,204 in 5m, 7 refusals; 31.2% of the tokens; 1 in flight, 0 queued"
    )


def test_a_fleet_without_tiers_has_no_such_table() -> None:
    assert tier_table([("short", ()), ("long", ())]) is None
    assert list(tier_lines(None)) == []


def test_a_line_says_the_same_of_the_last_minutes() -> None:
    seen = LaneSnapshot(name="short", in_flight=4, queued=2, oldest_wait_s=0.0, windows=(), tiers=(PREMIUM, NEW))
    premium, free = tier_lines(seen)
    assert premium == (
        "premium: 99.17% good of 1,204 in 5m, 7 refusals; 31.2% of the tokens (due 59%, floor 20%); 4 in flight, 2 queued"
    )
    assert free.startswith("free: none good of 0 in 5m, 0 refusals")
