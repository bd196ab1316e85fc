"""Figures of tiers over the windows they are shown for, also of tiers that a change of the profile took away."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.dispatch.request import ActiveRequest
from fleetctl.core.routing.candidate import PromptLoad
from fleetctl.model.tiers import TierSpec, route_tiers
from tests.dispatch.event_heap import EventHeap, Fate, HeapExchange, dispatcher_on, route, table
from tests.fairness.lane_of_tiers import LANE, TIERS

if TYPE_CHECKING:
    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.model.gateway import RoutingTable
    from fleetctl.model.tiers import TierSnapshot

PLAIN = table(route("r1"), lanes=(LANE,))
TIERED = replace(PLAIN, tiers=route_tiers(TIERS))


class Lane:
    """One lane on a heap of events; every request of it is answered within a tenth of a second."""

    def __init__(self, given: RoutingTable = TIERED) -> None:
        self.heap = EventHeap()
        self.dispatcher = dispatcher_on(self.heap)
        self.dispatcher.apply(given)

    @property
    def lane(self) -> DispatchLane[ActiveRequest]:
        return self.dispatcher.routes.lanes[LANE.name]

    def send(self, tier: str, *, prompt_tokens: int = 99, end_s: float = 0.1) -> None:
        """Send a request of so many tokens, and one of an answer."""
        exchange, tiers = HeapExchange(self.heap, self.dispatcher, lambda _: Fate(end_s=end_s)), self.lane.tiers
        assert tiers is not None
        exchange.request = ActiveRequest(
            exchange, self.lane, PromptLoad(prompt_tokens, {}), [], self.heap.now_s, is_stream=True, tier=tiers.named(tier)
        )  # fmt: skip
        self.dispatcher.submit(exchange.request)

    def answer_all(self) -> None:
        self.heap.run(self.heap.now_s + 5.0)

    def wait(self, seconds: float) -> None:
        self.answer_all()
        self.heap.now_s += seconds

    def seen(self) -> dict[str, TierSnapshot]:
        return {tier.name: tier for tier in self.lane.snapshot(self.heap.now_s).tiers}

    def hour_shares(self) -> dict[str, float | None]:
        return {name: tier.windows[-1].token_share for name, tier in self.seen().items()}


def test_the_share_of_an_hours_tokens_is_of_all_of_that_hour_and_of_nothing_else() -> None:
    lane = Lane()
    assert lane.hour_shares() == {"premium": None, "standard": None, "free": None}
    for _ in range(3):
        lane.send("premium")
    lane.wait(600.0)  # long after what counts for who goes first is forgotten
    lane.send("free")
    lane.answer_all()
    assert lane.hour_shares() == {"premium": 0.75, "standard": 0.0, "free": 0.25}
    assert lane.seen()["free"].had == pytest.approx(1.0)
    windows = {window.seconds: window.token_share for window in lane.seen()["free"].windows}
    assert windows[60.0] == 1.0
    lane.wait(3300.0)
    assert lane.hour_shares() == {"premium": 0.0, "standard": 0.0, "free": 1.0}


def test_a_removed_tier_keeps_its_figures_for_an_hour() -> None:
    lane = Lane()
    lane.send("free")
    lane.send("premium")
    lane.answer_all()
    lane.dispatcher.apply(replace(TIERED, tiers=route_tiers((*TIERS[:2], TierSpec(name="bronze")))))
    assert list(lane.seen()) == ["premium", "standard", "bronze", "free"]
    gone = lane.seen()["free"]
    assert (gone.is_removed, gone.due, gone.floor) == (True, 0.0, 0.0)
    assert (gone.windows[-1].offered, gone.windows[-1].good, gone.windows[-1].token_share) == (1, 1, 0.5)
    assert not lane.seen()["bronze"].is_removed
    lane.wait(3601.0)
    assert list(lane.seen()) == ["premium", "standard", "bronze"]


def test_a_tier_that_returns_goes_on_where_it_was() -> None:
    lane = Lane()
    lane.send("free")
    lane.answer_all()
    lane.dispatcher.apply(replace(TIERED, tiers=TIERED.tiers[:2]))
    lane.dispatcher.apply(TIERED)
    assert list(lane.seen()) == ["premium", "standard", "free"]
    assert lane.seen()["free"].windows[-1].offered == 1
    assert not lane.seen()["free"].is_removed


def test_figures_stay_too_where_a_profile_has_no_tier_any_more_and_what_still_runs_ends_in_its_own() -> None:
    lane = Lane()
    lane.send("free", end_s=4000.0)
    lane.dispatcher.apply(PLAIN)
    assert {name: (tier.is_removed, tier.in_flight) for name, tier in lane.seen().items()}["free"] == (True, 1)
    lane.heap.now_s = 3700.0
    assert list(lane.seen()) == ["free"]
    lane.heap.run()
    assert lane.lane.snapshot(lane.heap.now_s).tiers == ()


def test_no_more_removed_tiers_are_kept_than_a_profile_may_have() -> None:
    lane = Lane()
    for number in range(20):
        lane.dispatcher.apply(replace(TIERED, tiers=route_tiers((TierSpec(name=f"t{number}"),))))
    assert [name for name, tier in lane.seen().items() if tier.is_removed] == [f"t{n}" for n in range(11, 19)]
