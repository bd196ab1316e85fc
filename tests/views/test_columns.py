"""The columns that both faces show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.model.ladder import LadderStep
from fleetctl.testing.samples import EPOCH
from fleetctl.views.canvas import PLAIN, UNICODE, Canvas
from fleetctl.views.decisions import DECISIONS_LIVE, EVENTS, action_cell, decisions_table
from fleetctl.views.lanes import LANES_FIGURES, LANES_LIVE, LANES_STATUS, lanes_table
from fleetctl.views.replicas import REPLICAS_LIVE, REPLICAS_STATUS, replicas_table
from fleetctl.views.table import Align, Cell, Column, Layout, Table, Tone, fill, text_table
from tests.tui.fleets import busy, decisions

TEXT = Canvas(width=240, marks=PLAIN)


@pytest.mark.parametrize(
    "columns", [LANES_LIVE, LANES_STATUS, LANES_FIGURES, REPLICAS_LIVE, REPLICAS_STATUS, DECISIONS_LIVE, EVENTS]
)
def test_a_face_shows_a_column_once(columns):
    keys = [column.key for column in columns]
    assert len(set(keys)) == len(keys)


def texts(table: Table, key: str) -> list[str]:
    at = next(number for number, column in enumerate(table.columns) if column.key == key)
    return [row.cells[at].text for row in table.rows]


def test_both_faces_give_a_lane_the_same_figures():
    shown = lanes_table(busy(), Canvas(width=240, marks=UNICODE), LANES_LIVE, is_stale=False)
    printed = lanes_table(busy(), TEXT, LANES_FIGURES, is_stale=False)
    for key in ("lane", "shed", "queued", "step"):
        assert texts(shown, key) == texts(printed, key)
    measured = [text.split()[0] for text in texts(shown, "ttft")]
    assert measured == [text.split()[0].removeprefix("~") for text in texts(printed, "ttft")]


def test_without_colour_few_samples_are_marked():
    shown = lanes_table(busy(), Canvas(width=240, marks=UNICODE), LANES_LIVE, is_stale=False)
    printed = lanes_table(busy(), TEXT, LANES_FIGURES, is_stale=False)
    assert (texts(shown, "queue_wait")[2], texts(printed, "queue_wait")[2]) == ("42s", "~42s")


def test_a_bar_is_drawn_on_a_screen_and_not_in_text():
    shown = lanes_table(busy(), Canvas(width=240, marks=UNICODE), LANES_LIVE, is_stale=False)
    assert any(UNICODE.full in text for text in texts(shown, "ttft"))
    assert not any(
        UNICODE.full in text for text in texts(lanes_table(busy(), TEXT, LANES_LIVE, is_stale=False), "ttft")
    )


def test_a_state_has_a_dot_on_a_screen_and_is_a_bare_word_in_text():
    printed = replicas_table(busy(), TEXT, REPLICAS_STATUS, now=EPOCH, is_stale=False, with_gone=True)
    assert "ready" in texts(printed, "state")


def test_an_action_says_whether_it_was_done():
    done = [entry for entry in decisions() if entry.ok and not entry.shadow]
    assert action_cell(done[0]).text == done[0].action
    assert len(decisions_table(decisions(), EVENTS, time=str).rows) == len(decisions())


def test_dividers_stand_one_under_another_and_tails_behind_them():
    columns = (Column[str](key="pair", title="A/B", cell=pair, align=Align.DIVIDER),)
    table = fill(columns, ["1/20", "100/2"], key=str)
    assert [row.cells[0].text for row in table.rows] == ["  1/20|", "100/2 |"]


def pair(text: str) -> Cell:
    return Cell(spans=((text, Tone.PLAIN),), divider=text.index("/"), tail=(("|", Tone.DIM),))


def test_a_layout_leaves_out_the_columns_there_is_no_room_for():
    table = text_table("A +B", [("a", "b")])
    assert [column.title for column in table.within(Layout.NORMAL).columns] == ["A"]
    assert [column.title for column in table.within(Layout.WIDE).columns] == ["A", "B"]
    assert LadderStep.NORMAL.value in texts(lanes_table(busy(), TEXT, LANES_LIVE, is_stale=False), "step")


def test_lanes_say_which_model_they_serve_where_they_serve_several():
    status = busy()
    long_name = "an-organisation/a-model-with-a-long-name"
    names = [long_name, "small", "small"]
    several = replace(status, lanes=tuple(map(lambda lane, name: replace(lane, model=name), status.lanes, names)))
    for columns in (LANES_FIGURES, LANES_STATUS):
        assert texts(lanes_table(several, TEXT, columns, is_stale=False), "model") == names
    screen = Canvas(width=240, marks=UNICODE)
    assert texts(lanes_table(several, screen, LANES_LIVE, is_stale=False), "model") == [
        f"{long_name[:23]}…",
        *names[1:],
    ]
    one = lanes_table(replace(status, lanes=several.lanes[1:]), TEXT, LANES_STATUS, is_stale=False)
    assert "model" not in [column.key for column in one.columns]
