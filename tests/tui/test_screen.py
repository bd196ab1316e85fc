"""The screen as people see it, at three sizes, and its keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from textual.binding import Binding

from fleetctl.model.observation import StoreCondition, StoreFault
from fleetctl.model.replica import ReplicaState
from fleetctl.testing.samples import EPOCH
from fleetctl.tui.app import FleetApp
from fleetctl.tui.grid import Grid
from fleetctl.tui.keys import WRITING
from tests.tui.fleets import busy, calm, decisions, replicas, tiered
from tests.tui.rig import screen_rig

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.status import FleetStatus

SIZES = [(80, 24), (120, 40), (200, 50)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_busy_fleet(size: tuple[int, int], same_picture: Callable[[str], None]) -> None:
    async with screen_rig(size=size) as rig:
        same_picture(rig.picture())


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_calm_fleet(size: tuple[int, int], same_picture: Callable[[str], None]) -> None:
    async with screen_rig(calm(), size=size) as rig:
        same_picture(rig.picture())


async def test_ascii_screen(same_picture: Callable[[str], None]) -> None:
    async with screen_rig(size=(80, 24), is_ascii=True) as rig:
        assert rig.text().isascii()
        same_picture(rig.picture())


@pytest.mark.parametrize("keys", [("question_mark",), ("d",), ("s",), ("1", "x"), ("e",)], ids="-".join)
async def test_what_opens_above(keys: tuple[str, ...], same_picture: Callable[[str], None]) -> None:
    async with screen_rig(size=(80, 24)) as rig:
        await rig.press(*keys)
        assert rig.modal
        same_picture(rig.picture())


async def test_a_silent_stream_turns_stale_and_hides_its_figures(same_picture: Callable[[str], None]) -> None:
    async with screen_rig() as rig:
        assert "212ms" in rig.text()
        await rig.pass_time(12)
        text = rig.text()
        assert "STALE 12s" in text
        assert "212ms" not in text
        assert "r1" in text
        same_picture(rig.picture())
        await rig.feed(busy())
        assert "212ms" in rig.text()
        assert "STALE" not in rig.text()


async def test_a_dead_controller_is_stale_at_once_although_statuses_come() -> None:
    async with screen_rig() as rig:
        await rig.feed(busy(controller_alive=False))
        assert "STALE" in rig.text()
        assert "212ms" not in rig.text()


async def test_a_slow_stream_is_not_stale_within_its_own_rhythm() -> None:
    async with screen_rig() as rig:
        await rig.pass_time(10)
        await rig.feed(busy())
        await rig.pass_time(25)
        assert "live" in rig.text()
        await rig.pass_time(6)
        assert "STALE" in rig.text()


async def test_a_forgotten_fleet_is_said_to_be_gone() -> None:
    async with screen_rig() as rig:
        await rig.feed(None)
        await rig.pass_time(7)
        head, reason, *_ = rig.text().splitlines()
        assert "DOWN" in head
        assert "gone 7s" in head
        assert "STALE" not in rig.text()
        assert "the fleet is gone; it is shown again once it is up: fleetctl up PROFILE" in reason


async def test_a_fleet_that_was_gone_is_shown_again_once_it_is_up() -> None:
    async with screen_rig() as rig:
        await rig.feed(None)
        assert "fleetctl up" in rig.text()
        await rig.clock.advance(2)
        await rig.feed(busy())
        assert "live" in rig.text()
        assert "the fleet is gone" not in rig.text()


async def test_a_controller_that_repeats_what_it_saw_is_not_live_and_says_why() -> None:
    condition = StoreCondition(fault=StoreFault.MISSING, message="state missing: nothing is decided", since=EPOCH)
    stuck = busy(store_condition=condition)
    async with screen_rig(stuck) as rig:
        assert "live" in rig.text()
        await rig.feed(stuck, is_news=False)  # for the repetitions to be equal
        for _ in range(7):
            await rig.pass_time(1)
            await rig.feed(stuck, is_news=False)
        head, reason, *_ = rig.text().splitlines()
        assert "STALE 7s" in head
        assert "nothing is decided" in reason
        assert "212ms" not in rig.text()


def without(*gone: str) -> FleetStatus:
    return busy(replicas=tuple(r for r in replicas() if r.record.id not in gone))


async def test_the_cursor_stays_on_its_replica_when_rows_come_and_go_above_it() -> None:
    async with screen_rig(without("r2", "r3")) as rig:
        await rig.press("down", "down")
        grid = rig.app.grid("replicas")
        assert grid.cursor_key == "r12"
        await rig.feed(busy())
        assert grid.cursor_key == "r12"
        await rig.feed(without("r1", "r2"))
        assert grid.cursor_key == "r12"
        await rig.feed(without("r1", "r2", "r12"))
        assert grid.cursor_key == "r20"  # what now stands where it stood


async def test_the_cursors_row_keeps_its_place_on_the_screen_while_rows_come_above_it() -> None:
    async with screen_rig(without("r2", "r3"), size=(80, 24)) as rig:
        await rig.press("end", "up")
        before = _line_of(rig.text(), "r32")
        await rig.feed(busy())
        assert rig.app.grid("replicas").cursor_key == "r32"
        assert _line_of(rig.text(), "r32") == before


async def test_the_cursor_goes_from_row_to_row_and_never_on_to_what_stands_below_one() -> None:
    async with screen_rig(size=(80, 24)) as rig:
        grid = rig.app.grid("replicas")
        lines = rig.text().splitlines()
        noticed = next(at for at, line in enumerate(lines) if "r20 replaces it" in line)
        assert "r12 " in lines[noticed - 1]
        await rig.press("down", "down", "down", "down")
        assert grid.cursor_key == "r12"
        await rig.press("down")
        assert grid.cursor_key == "r20"
        await rig.press("end")
        assert grid.cursor_key == "r33"
        assert any("r33 " in line for line in rig.text().splitlines())


def _line_of(text: str, word: str) -> int:
    return next(i for i, line in enumerate(text.splitlines()) if f" {word} " in line or f"│{word} " in line)


async def test_decisions_follow_the_newest_until_the_cursor_leaves_it() -> None:
    older, newest = busy(decisions=decisions()[:-1]), busy()
    async with screen_rig(older) as rig:
        grid = rig.app.grid("decisions")
        assert grid.cursor_key == "107"
        await rig.feed(newest)
        assert grid.cursor_key == "108"
        await rig.press("4", "up")
        assert grid.cursor_key == "107"
        more = replace(decisions()[-1], seq=109, at=EPOCH + timedelta(seconds=1))
        await rig.feed(busy(decisions=(*decisions(), more)))
        assert grid.cursor_key == "107"


async def test_digits_focus_their_panels_and_3_opens_and_closes_the_trend() -> None:
    async with screen_rig(size=(80, 24)) as rig:
        for key, name in (("1", "lanes"), ("2", "replicas"), ("4", "decisions"), ("3", "trend")):
            await rig.press(key)
            assert rig.app.focused_grid.id == name
        assert rig.app.grid("trend").display
        await rig.press("3")
        assert not rig.app.grid("trend").display
        assert rig.app.focused_grid.id == "replicas"


async def test_filter_narrows_the_focused_panel_and_escape_lets_go() -> None:
    async with screen_rig() as rig:
        await rig.press("slash", *"long")
        assert [row.key for row in rig.app.grid("replicas").rows] == ["r11", "r12", "r20"]
        assert len(rig.app.grid("decisions").rows) == len(decisions())
        await rig.press("enter")
        assert rig.app.focused_grid.id == "replicas"
        assert "/long" in rig.text()
        await rig.press("escape")
        assert len(rig.app.grid("replicas").rows) == 9
        await rig.press("slash", "exclamation_mark", *"spot", "enter")
        assert [row.key for row in rig.app.grid("replicas").rows] == ["r1", "r2", "r11"]
        await rig.press("slash", "escape")
        assert len(rig.app.grid("replicas").rows) == 9


async def test_drain_asks_first_and_does_nothing_on_no() -> None:
    async with screen_rig() as rig:
        await rig.press("d")
        assert "Drain r1?" in rig.text()
        assert "15 requests are in flight there." in rig.text()
        await rig.press("n")
        assert rig.modal == ""
        assert rig.actions.done == []


async def test_drain_takes_the_marked_replicas_else_the_cursors() -> None:
    async with screen_rig() as rig:
        await rig.press("d", "y")
        assert rig.actions.done == [("drain", "r1", None)]
        await rig.press("down", "space", "space")
        assert "2 marked" in rig.text()
        await rig.press("1", "d", "y")
        assert rig.actions.done[1:] == [("drain", "r2", None), ("drain", "r3", None)]
        assert "marked" not in rig.text()


async def test_a_replica_that_is_gone_cannot_be_drained() -> None:
    async with screen_rig() as rig:
        await rig.press("end", "d")
        assert rig.modal == ""
        assert "live replica" in rig.text()


async def test_scale_shows_what_would_change_before_it_does() -> None:
    async with screen_rig() as rig:
        await rig.press("1", "down", "s", "4", "enter")
        assert "long: scale 4" in rig.text()
        assert rig.actions.done == []
        await rig.press("y")
        assert rig.actions.done == [("scale", "long", 4)]


async def test_a_scale_that_takes_much_away_at_once_says_so_and_is_done_once_that_is_confirmed() -> None:
    async with screen_rig() as rig:
        await rig.press("1", "down", "s", "0", "enter")
        assert "At once: long would lose 6 of 6 replicas" in rig.text()
        assert rig.actions.done == []
        await rig.press("y")
        assert rig.actions.done == [("scale", "long", 0)]


async def test_scale_to_auto_gives_the_lane_back() -> None:
    async with screen_rig() as rig:
        await rig.press("s", *"auto", "enter", "y")
        assert rig.actions.done == [("scale", "short", None)]


async def test_a_refused_scale_says_why_and_what_to_do_and_changes_nothing() -> None:
    async with screen_rig() as rig:
        await rig.press("s", "9", "enter")
        assert rig.modal == ""
        assert "over the cap of 8" in rig.text()
        assert "raise capacity.max_nodes" in rig.text()
        assert rig.actions.done == []


async def test_shed_pins_the_chosen_step() -> None:
    async with screen_rig() as rig:
        await rig.press("1", "down", "x", "down", "enter")
        assert "Pin long?" in rig.text()
        await rig.press("y")
        assert rig.actions.done == [("shed", "long", "shed")]
        await rig.press("x", "home", "enter", "y")
        assert rig.actions.done[1:] == [("shed", "long", None)]


async def test_explain_tells_the_row_under_the_cursor_in_any_panel() -> None:
    async with screen_rig() as rig:
        await rig.press("e")
        assert "Why r1" in rig.text()
        assert "r1 is as it should be" in rig.text()
        await rig.press("escape", "1", "down", "e")
        assert "Why long" in rig.text()
        assert "forecast 6.9 rps" in rig.text()
        await rig.press("escape", "4", "home", "enter")
        assert "Why r32" in rig.text()


async def test_pause_freezes_what_is_shown_and_lets_the_newest_in_again() -> None:
    async with screen_rig() as rig:
        await rig.press("p")
        assert "PAUSED" in rig.text()
        await rig.feed(without("r31"))
        await rig.pass_time(60)
        assert "r31" in rig.text()
        assert "STALE" not in rig.text()
        await rig.press("p")
        await rig.feed(without("r31"))
        assert "PAUSED" not in rig.text()
        assert "r31" not in rig.text()


async def test_help_lists_exactly_the_keys_that_work() -> None:
    async with screen_rig(size=(120, 50)) as rig:
        await rig.press("question_mark")
        text = rig.text()
        for binding in (*FleetApp.BINDINGS, *Grid.BINDINGS):
            assert isinstance(binding, Binding)
            assert binding.description in text
            owner = rig.app if binding in FleetApp.BINDINGS else rig.app.grid("lanes")
            assert hasattr(owner, f"action_{binding.action.split('(')[0]}")


async def test_a_read_only_screen_has_no_key_that_changes_anything() -> None:
    async with screen_rig(is_readonly=True) as rig:
        await rig.press("d", "s", "x", "space")
        assert rig.modal == ""
        assert rig.actions.done == []
        assert not rig.app.grid("replicas").marked
        for word in ("Drain", "Scale", "Shed"):
            assert word not in rig.text()
        await rig.press("question_mark")
        names = {b.description for b in FleetApp.BINDINGS if isinstance(b, Binding) and b.id in WRITING}
        assert names == {"Mark", "Drain", "Scale", "Shed"}
        assert not any(f" {name} " in rig.text() for name in names)


async def test_a_click_puts_the_cursor_on_the_row() -> None:
    async with screen_rig() as rig:
        await rig.pilot.click("#replicas", offset=(10, 4))
        await rig.settle()
        assert rig.app.grid("replicas").cursor_key == "r3"


async def test_a_large_fleet_scrolls_and_keeps_its_heading() -> None:
    one = next(r for r in replicas() if r.record.id == "r1")
    many = tuple(replace(one, record=replace(one.record, id=f"r{n}")) for n in range(1, 301))
    async with screen_rig(busy(replicas=many), size=(80, 24)) as rig:
        await rig.press("end")
        assert rig.app.grid("replicas").cursor_key == "r300"
        assert "r300" in rig.text()
        assert "IN-FLIGHT" in rig.text()
        await rig.press("home", "pagedown")
        assert "r1 " not in rig.app.grid("replicas").cursor_key


async def test_a_resize_changes_the_layout() -> None:
    async with screen_rig(size=(200, 50)) as rig:
        assert "PRESSURE" in rig.text()
        await rig.pilot.resize_terminal(80, 24)
        await rig.settle()
        assert "PRESSURE" not in rig.text()
        assert "QUEUE WAIT" not in rig.text()
        assert "BURN" in rig.text()


async def test_state_changes_do_not_move_rows() -> None:
    async with screen_rig() as rig:
        before = [row.key for row in rig.app.grid("replicas").rows]
        shuffled = tuple(
            replace(r, record=replace(r.record, state=ReplicaState.DRAINING)) for r in reversed(replicas())
        )
        await rig.feed(busy(replicas=shuffled))
        assert [row.key for row in rig.app.grid("replicas").rows] == before


async def test_q_leaves_and_nothing_is_done_to_the_fleet() -> None:
    async with screen_rig() as rig:
        await rig.press("q")
        assert not rig.app.is_running
        assert rig.actions.done == []


@pytest.mark.parametrize("key", ["5", "6"])
@pytest.mark.parametrize("size", [(80, 24), (140, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_tiers_and_workflows_open_by_their_key_and_close_again(
    size: tuple[int, int], key: str, same_picture: Callable[[str], None]
) -> None:
    async with screen_rig(tiered(), size=size) as rig:
        title = {"5": "5 Tiers", "6": "6 Workflows"}[key]
        assert title not in rig.text()
        await rig.press(key)
        same_picture(rig.picture())
        await rig.press(key)
        assert title not in rig.text()


@pytest.mark.parametrize("width", [80, 140])
async def test_tiers_stand_beside_what_they_are_promised_and_their_share(width: int) -> None:
    async with screen_rig(tiered(), size=(width, 40)) as rig:
        await rig.press("5")
        (row,) = (line.split() for line in rig.text().splitlines() if " premium " in line)
        assert row[1:9] == ["short", "premium", "1,200", "97.42%", "164ms/150ms", "410ms/300ms", "61.2%", "59%"]
        assert "trial (removed)" in rig.text()
        await rig.press("e")
        assert rig.modal  # a tier's lane is explained
        await rig.press("escape", "6")
        (row,) = (line.split() for line in rig.text().splitlines() if line.startswith("│ agent"))
        assert row[1:7] == ["agent", "0", "40", "100%", "~9s/10s", "~9s/30s"]


async def test_the_tallest_screens_have_tiers_and_workflows_by_themselves_where_there_are_some() -> None:
    async with screen_rig(tiered(), size=(120, 60)) as rig:
        assert "5 Tiers" in rig.text()
        assert "6 Workflows" in rig.text()
    async with screen_rig(busy(), size=(120, 60)) as rig:
        assert "Tiers" not in rig.text()
        await rig.press("5")
        assert "the profile declares no tiers" in rig.text()


async def test_a_silent_stream_hides_tiers_figures_too() -> None:
    async with screen_rig(tiered(), size=(120, 60)) as rig:
        assert "61.2%" in rig.text()
        await rig.pass_time(12)
        assert "61.2%" not in rig.text()
        assert "no current figures" in rig.text()


async def test_eighty_columns_have_room_for_stalls_and_every_other_column() -> None:
    async with screen_rig(size=(80, 24)) as rig:
        titles, *rows = rig.text().splitlines()[3:7]
        assert titles.split()[-8:] == ["STALL", "RPS", "in/ok", "SHED", "BURN", "READY", "STEP", "│"]
        assert rows[1].split()[4] == "12.82%"
        assert "pause-batch" in rows[2]
