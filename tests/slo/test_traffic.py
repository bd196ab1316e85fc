"""Tiers and clients are counted apart, in bounded memory; nobody's requests are lost from the sums."""

from __future__ import annotations

from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.stopwatch import RequestStopwatch
from fleetctl.core.slo.traffic import CLIENTS_COUNTED_MAX, CLIENTS_SHOWN_MAX, TrafficBreakdown
from fleetctl.model.slo import LaneSlo
from fleetctl.model.traffic import OTHERS

ACCOUNTS = LaneAccounts(LaneSlo(targets=()), now_s=0.0)


def request(ending: Ending | None = Ending.COMPLETE, *, ttft_s: float = 0.5) -> RequestStopwatch:
    """One that was answered, refused (None), or left by its client."""
    watch = RequestStopwatch(ACCOUNTS, 0.0)
    if ending is None:
        watch.refused(0.0, "queue-full")
        return watch
    watch.tokens(ttft_s, 1)
    watch.stop(1.0, ending, is_stream=True, prompt_tokens=0, output_tokens_uncounted=0)
    return watch


def test_each_request_counts_once_for_its_tier_and_once_for_its_client():
    counted = TrafficBreakdown()
    counted.add("premium", "acme", request(), served_tokens=30)
    counted.add("premium", "umbra", request(None), refusal="queue-full")
    counted.add("free", "acme", request(Ending.CANCELLED), served_tokens=10)

    premium, free = counted.by_tier(("premium", "standard", "free"))
    assert (premium.name, premium.offered, premium.good, premium.refused) == ("premium", 2, 1, {"queue-full": 1})
    assert (premium.good_share, premium.token_share, premium.ttft.count) == (0.5, 0.75, 1)
    assert (free.offered, free.undecided, free.good_share) == (1, 1, None), "in no share"
    assert [(each.name, each.offered) for each in counted.by_client()] == [("acme", 2), ("umbra", 1)]


def test_without_any_name_there_is_nothing_to_break_down():
    counted = TrafficBreakdown()
    counted.add("", "", request())
    assert (counted.by_tier(), counted.by_client()) == ((), ())


def test_however_many_clients_come_few_are_shown_and_the_rest_is_summed_up():
    counted, many = TrafficBreakdown(), CLIENTS_COUNTED_MAX + 500
    for number in range(many):
        counted.add("", f"c{number}", request(), served_tokens=1)
        if number < 3:
            counted.add("", f"c{number}", request(), served_tokens=1)

    assert len(counted.clients) <= CLIENTS_COUNTED_MAX + 1
    shown = counted.by_client()
    assert len(shown) == CLIENTS_SHOWN_MAX + 1
    assert {each.name for each in shown[:3]} == {"c0", "c1", "c2"}
    assert shown[-1].name == OTHERS
    assert sum(each.offered for each in shown) == many + 3
    assert sum(each.token_share for each in shown) == 1.0


def test_merged_counts_are_those_of_all_requests_together():
    one, other, both = TrafficBreakdown(), TrafficBreakdown(), TrafficBreakdown()
    for counted, tier in ((one, "premium"), (other, "premium"), (other, "free")):
        counted.add(tier, "acme", request(), served_tokens=5)
        both.add(tier, "acme", request(), served_tokens=5)
    one.merge(other)
    assert one.by_tier() == both.by_tier()
    assert one.by_client() == both.by_client()
