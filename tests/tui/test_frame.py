"""The plain frame, and the tables it shares with the screen."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, strategies as st

from fleetctl.cli.journal_views import why_view
from fleetctl.cli.output import Format, text_of
from fleetctl.model.gateway_process import GatewayStatus
from fleetctl.model.node import Notice, NoticeKind
from fleetctl.model.replica import ReplicaState
from fleetctl.model.rollout import RolloutPhase, RolloutStatus
from fleetctl.model.slo import Quantiles
from fleetctl.model.subject import Subject
from fleetctl.operations.fleets import Explanation
from fleetctl.testing.samples import EPOCH
from fleetctl.tui.frame import once
from fleetctl.views.canvas import ASCII, UNICODE, Canvas, bar, ratio_tone, sparkline
from fleetctl.views.lanes import LANES_LIVE, lanes_table
from fleetctl.views.replicas import REPLICAS_LIVE, number_of, replicas_table
from fleetctl.views.table import Align, Cell, Column, Layout, Tone, cell, cut, fill, fit, layout_of, line
from tests.tui.fleets import busy, calm, lanes, replicas

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.gateway import LaneSnapshot
    from fleetctl.model.status import FleetStatus, ReplicaStatus

WIDE = Canvas(width=200, marks=UNICODE, zone=UTC)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_frame_of_a_busy_fleet(width: int, same_text: Callable[[str], None]) -> None:
    same_text(once(busy(), width=width, zone=UTC))


def test_frame_in_ascii_is_ascii(same_text: Callable[[str], None]) -> None:
    text = once(busy(), width=120, is_ascii=True, zone=UTC)
    assert text.isascii()
    same_text(text)


def test_frame_of_a_fleet_without_traffic(same_text: Callable[[str], None]) -> None:
    same_text(once(calm(), width=80, zone=UTC))


def test_frame_without_a_controller_shows_records_and_no_figures() -> None:
    text = once(busy(controller_alive=False), width=120, zone=UTC)
    assert "STALE" in text
    assert "r20" in text
    for figure in ("212ms", "12.4", "18.2", "94"):
        assert figure not in text


@given(width=st.integers(40, 260))
def test_no_line_is_wider_than_asked(width: int) -> None:
    for status in (busy(), calm()):
        assert max(len(text) for text in once(status, width=width, zone=UTC).splitlines()) <= width


def test_columns_stand_one_under_another_in_every_layout() -> None:
    for width in (80, 120, 200):
        rows = once(busy(), width=width, zone=UTC).splitlines()
        head = next(row for row in rows if row.startswith("LANE"))
        at = head.index("STEP")
        lane_rows = rows[rows.index(head) + 1 : rows.index(head) + 4]
        assert [row[at:].split()[0] for row in lane_rows] == ["normal", "spill", "pause-batch"]
        slashes = {row.index("/") for row in lane_rows[:2]}
        assert len(slashes) == 1


def test_figures_on_few_samples_are_grey_and_without_a_bar() -> None:
    few = replace(lanes()[0], traffic=_with_samples(20))
    sure, unsure = (
        lanes_table(busy(lanes=(lane,)), WIDE, LANES_LIVE, is_stale=False).rows[0].cells[1]
        for lane in (lanes()[0], few)
    )
    assert sure.spans[0] == ("212ms", Tone.PLAIN)
    assert unsure.spans[0] == ("212ms", Tone.DIM)
    assert UNICODE.full in sure.text
    assert UNICODE.full not in unsure.text


def _with_samples(count: int) -> LaneSnapshot:
    traffic = lanes()[0].traffic
    assert traffic is not None
    window = traffic.window(60.0)
    few = msgspec.structs.replace(window, ttft=Quantiles(count=count, p50_s=0.1, p95_s=0.2, p99_s=0.212, max_s=0.3))
    return replace(traffic, windows=(few,))


def test_a_figure_over_its_promise_is_red_and_one_near_it_yellow() -> None:
    table = lanes_table(busy(), WIDE, LANES_LIVE, is_stale=False)
    tones = {row.key: (row.cells[1].spans[0][1], row.cells[2].spans[0][1]) for row in table.rows}
    assert tones["long"] == (Tone.BAD, Tone.WARN)
    assert tones["short"] == (Tone.PLAIN, Tone.PLAIN)
    assert [ratio_tone(ratio) for ratio in (0.0, 0.79, 0.8, 1.0, 1.01)] == [
        Tone.PLAIN, Tone.PLAIN, Tone.WARN, Tone.WARN, Tone.BAD,
    ]  # fmt: skip


def test_replicas_are_ordered_by_lane_and_number_whatever_their_state() -> None:
    expected = ["r1", "r2", "r3", "r11", "r12", "r20", "r31", "r32", "r33"]
    for order in (replicas(), tuple(reversed(replicas()))):
        table = replicas_table(busy(replicas=order), WIDE, REPLICAS_LIVE, now=EPOCH, is_stale=False)
        assert [row.key for row in table.rows] == expected
    assert sorted(["a-10", "a-9", "a-1"], key=number_of) == ["a-1", "a-9", "a-10"]


def test_a_replica_that_left_is_shown_for_two_minutes_and_a_failed_one_stays() -> None:
    later = replicas_table(busy(), WIDE, REPLICAS_LIVE, now=EPOCH + timedelta(minutes=3), is_stale=False)
    keys = [row.key for row in later.rows]
    assert "r33" not in keys
    assert "r32" in keys


UNSCHEDULABLE = (
    "Unschedulable: 0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's node affinity/selector. "
    "no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
)


def waiting(replica_id: str) -> FleetStatus:
    """Return the busy fleet with a replica that no node has room for."""
    return busy(
        replicas=tuple(replace(r, pending_reason=UNSCHEDULABLE) if r.record.id == replica_id else r for r in replicas())
    )


@pytest.mark.parametrize("width", [80, 100, 120])
def test_why_a_replica_does_not_serve_has_lines_of_its_own_where_its_row_has_no_room(width: int) -> None:
    rows = once(waiting("r20"), width=width, zone=UTC).splitlines()
    at = next(number for number, row in enumerate(rows) if row.startswith("r20"))
    below = rows[at + 1 : at + 3]
    assert all(row.startswith("     ") for row in below)
    assert rows[at + 3].startswith("r31")
    shown = " ".join(row.strip() for row in below)
    assert shown.startswith("Unschedulable: 0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s)")
    # It ends with a whole word, and says that there is more.
    assert shown.endswith("…")
    assert f"{shown[:-1]} " in f"{UNSCHEDULABLE} "
    assert len(shown) > width
    # One that serves says nothing that anybody looks for.
    assert rows[at - 2].startswith("r12") or rows[at - 1].startswith("r12")


def test_replicas_that_ended_stand_below_those_that_live_and_are_few() -> None:
    first = replicas()[0]
    ended = tuple(
        replace(
            first,
            record=replace(
                first.record, id=f"r{number}", state=ReplicaState.FAILED, changed_at=EPOCH - timedelta(seconds=number)
            ),
        )
        for number in range(100, 130)
    )
    living = {r.record.id for r in replicas() if r.record.state.is_live}
    status = busy(replicas=(*ended, *replicas()))
    keys = [row.key for row in replicas_table(status, WIDE, REPLICAS_LIVE, now=EPOCH, is_stale=False).rows]
    assert set(keys[: len(living)]) == living
    assert keys[len(living) :] == ["r32", "r33", "r100", "r101", "r102"]  # the latest first
    assert "\n27 more replicas have ended: fleetctl events demo\n" in once(status, width=80, zone=UTC)
    everything = replicas_table(status, WIDE, REPLICAS_LIVE, now=EPOCH, is_stale=False, with_gone=True)
    assert len(everything.rows) == len(living) + 32


def test_a_notice_counts_down_to_nothing_and_not_below() -> None:
    def time_left(seconds: float) -> str:
        table = replicas_table(busy(), WIDE, REPLICAS_LIVE, now=EPOCH + timedelta(seconds=seconds), is_stale=False)
        return next(row for row in table.rows if row.key == "r12").cells[-1].text

    assert time_left(0).startswith("taken in 01:37")
    assert time_left(96).startswith("taken in 00:01")
    assert time_left(500).startswith("taken in 00:00")


@pytest.mark.parametrize(("phase", "is_shown"), [(phase, phase is not RolloutPhase.COMPLETE) for phase in RolloutPhase])
def test_the_header_names_a_rollout_until_it_is_complete(phase: RolloutPhase, is_shown: bool) -> None:
    rollout = RolloutStatus(phase=phase, revision=4, stable=3, lanes=(), started_at=EPOCH, ended_at=None)
    for width in (80, 200):
        header = once(busy(rollout=rollout), width=width, zone=UTC).splitlines()[0]
        assert (f"rollout 3 -> 4 {phase}" in header) is is_shown
    assert "rollout" not in once(busy(), width=200, zone=UTC)


def test_the_header_says_how_many_of_several_gateways_answer() -> None:
    def header(*gateways: GatewayStatus) -> str:
        return once(busy(gateways=gateways), width=200, zone=UTC).splitlines()[0]

    first, second, silent = (GatewayStatus(number=n, answers=n < 3) for n in (1, 2, 3))
    assert " 2 gateways " in header(first, second)
    assert " 2/3 gateways " in header(first, second, silent)
    assert " 2 gateways " in header(first, second, replace(silent, is_leaving=True))
    assert "gateway" not in header(first)
    assert "2/3 gateways" in once(busy(gateways=(first, second, silent)), width=80, zone=UTC).splitlines()[0]


def test_the_header_counts_notices_by_kind_hints_included() -> None:
    def warned(at: int, kind: NoticeKind, seconds: float | None) -> ReplicaStatus:
        deadline = EPOCH + timedelta(seconds=seconds) if seconds is not None else None
        notice = Notice(kind=kind, deadline=deadline, is_certain=deadline is not None)
        known = replicas()[at]
        return replace(known, record=replace(known.record, notice=notice, notice_deadline=deadline))

    def header(*found: ReplicaStatus) -> str:
        return once(busy(replicas=found), width=200, zone=UTC).splitlines()[0]

    taken = warned(0, NoticeKind.INTERRUPTION, 97), warned(1, NoticeKind.INTERRUPTION, 60)
    others = warned(2, NoticeKind.REBALANCE, None), warned(4, NoticeKind.MAINTENANCE, 600)
    assert "! 2 interruption 01:00" in header(*taken)
    assert "! 2 interruption + 1 rebalance + 1 maintenance 01:00" in header(*taken, *others)
    assert re.search(r"! 1 rebalance (?!\d)", header(others[0]))
    assert "!" not in header(replicas()[0])


def test_filter_keeps_or_with_a_bang_hides() -> None:
    table = replicas_table(busy(), WIDE, REPLICAS_LIVE, now=EPOCH, is_stale=False)
    assert [row.key for row in table.matching("LONG").rows] == ["r11", "r12", "r20"]
    kept = {row.key for row in table.matching("spot").rows}
    hidden = {row.key for row in table.matching("!spot").rows}
    assert kept | hidden == {row.key for row in table.rows}
    assert not kept & hidden
    assert table.matching("!") == table


@given(ratio=st.floats(0, 3), width=st.integers(0, 30))
def test_a_bar_is_as_wide_as_asked_and_full_only_at_the_limit(ratio: float, width: int) -> None:
    for marks in (UNICODE, ASCII):
        text = "".join(part for part, _ in bar(ratio, width, marks, Tone.PLAIN))
        assert len(text) == width
        if ratio >= 1:
            assert text == marks.full * width


@given(values=st.lists(st.floats(0, 100), max_size=40), width=st.integers(1, 30), ceiling=st.floats(0, 50))
def test_a_sparkline_is_as_wide_as_asked_and_red_over_the_ceiling(
    values: list[float], width: int, ceiling: float
) -> None:
    spans = sparkline(tuple(values), width, UNICODE, ceiling=ceiling)
    assert sum(len(text) for text, _ in spans) == width
    over = sum(len(text) for text, tone in spans if tone is Tone.BAD)
    assert over == sum(value > ceiling for value in values[-width:])


@given(text=st.text(alphabet="abc ", max_size=30), width=st.integers(0, 30))
def test_a_cut_cell_is_never_too_wide_and_says_that_something_is_missing(text: str, width: int) -> None:
    shown = cut(Cell(spans=((text[:4], Tone.BAD), (text[4:], Tone.DIM))), width, ellipsis="…")
    assert len(shown) <= width
    assert shown.text == text or width == 0 or shown.text.endswith("…")


def test_flexible_column_takes_what_is_left() -> None:
    columns = (
        Column[str](key="a", title="A", cell=lambda row: cell(row * 2)),
        Column[str](key="n", title="N", cell=lambda _: cell("7"), align=Align.RIGHT),
        Column[str](key="why", title="WHY", cell=lambda _: cell("because of this and that"), is_flexible=True),
    )
    table = fill(columns, ["a"], key=str)
    placed = fit(table, 20)
    assert sum(placed.widths) + placed.gap * 2 == 20
    assert "".join(text for text, _ in line(table, table.rows[0].cells, placed, ellipsis="…")) == "aa  7  because of t…"


def test_layouts_change_at_100_and_160_columns() -> None:
    assert [layout_of(width) for width in (79, 99, 100, 159, 160)] == [
        Layout.COMPACT, Layout.COMPACT, Layout.NORMAL, Layout.NORMAL, Layout.WIDE,
    ]  # fmt: skip


def test_why_says_whole_what_a_replica_waits_for() -> None:
    found = next(r for r in waiting("r20").replicas if r.record.id == "r20")
    explained = Explanation(
        fleet="demo", subject=Subject.replica("r20"), now="", lane=None, replica=found, plan=None, entries=()
    )
    assert f"Waits    {UNSCHEDULABLE}" in text_of(why_view(explained, now=EPOCH), Format.TABLE)
