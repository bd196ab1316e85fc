"""Three tiers, and two tenants of one, through the dispatcher: who is served what where not all can be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.core.dispatch.request import ActiveRequest
from fleetctl.core.fairness.lane_tiers import LaneTiers
from fleetctl.core.routing.candidate import PromptLoad
from fleetctl.model.ladder import LadderStep
from fleetctl.model.tiers import TierSpec, route_tiers
from tests.dispatch.event_heap import EventHeap, Fate, HeapExchange, dispatcher_on, route, table
from tests.fairness.lane_of_tiers import LANE, TIERS, Flow, FlowResult, run

CAPACITY_RPS = 32.0  # two replicas of eight slots, held for half a second each
SETTLED_S = 10.0  # shares are counted over about this time
SEEDS = (1, 2)
PROMPTS = (200, 8_000, 20_000, 60_000)  # tokens, of which an engine computes 20,000 a second


def mixed(times: float) -> tuple[Flow, ...]:
    """At 1x about nine tenths of what the lane can serve."""
    shares = {"premium": 0.12, "standard": 0.28, "free": 0.6}
    return tuple(Flow(tier=tier, rps=0.9 * CAPACITY_RPS * times * share) for tier, share in shares.items())


def shares_of(found: dict[Flow, FlowResult]) -> dict[str, float]:
    total = sum(each.served_tokens for each in found.values())
    return {flow.tier: each.served_tokens / total for flow, each in found.items()}


def served_rps(found: dict[Flow, FlowResult], seconds: float) -> float:
    return sum(each.ends["answered"] for each in found.values()) / seconds


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("times", [1.0, 2.0, 4.0])
def test_premium_is_served_whatever_the_others_want_and_nobody_is_under_its_floor(times: float, seed: int) -> None:
    found = run(mixed(times), seed=seed)
    assert {flow.tier: each.good_share for flow, each in found.items()}["premium"] >= 0.995
    for tier in TIERS:
        result = next(each for flow, each in found.items() if flow.tier == tier.name)
        assert shares_of(found)[tier.name] >= tier.floor or result.good_share >= 0.97
    assert served_rps(found, 60.0) >= 0.9 * min(times * 0.9 * CAPACITY_RPS, CAPACITY_RPS)


@pytest.mark.parametrize("seed", SEEDS)
def test_where_all_want_more_each_has_its_due_in_tokens_whatever_the_length_of_its_requests(seed: int) -> None:
    long = {"premium": 100, "standard": 400, "free": 100}
    flows = tuple(Flow(tier=tier, rps=3 * CAPACITY_RPS, prompt_tokens=tokens) for tier, tokens in long.items())
    shares = shares_of(run(flows, seed=seed, count_from_s=SETTLED_S))
    due = {tier.name: tier.floor + 0.65 * tier.weight / 10 for tier in TIERS}
    for tier in TIERS:
        assert shares[tier.name] == pytest.approx(due[tier.name], rel=0.1)
        assert shares[tier.name] >= tier.floor


def test_what_a_tier_does_not_use_is_anybodys() -> None:
    alone = run((Flow(tier="free", rps=4 * CAPACITY_RPS),))
    assert served_rps(alone, 60.0) >= 0.97 * CAPACITY_RPS
    gone = run((Flow(tier="premium", rps=0.4 * CAPACITY_RPS, until_s=20.0), Flow(tier="free", rps=4 * CAPACITY_RPS)))
    assert served_rps(gone, 60.0) >= 0.95 * CAPACITY_RPS


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tenant_loses_nothing_to_another_of_its_tier_that_sends_ten_times_as_much(seed: int) -> None:
    quiet, noisy = Flow(tier="standard", client=1, rps=9.6), Flow(tier="standard", client=2, rps=96.0)
    found = run((quiet, noisy), seed=seed)
    assert found[quiet].good_share > 0.99
    assert served_rps(found, 60.0) >= 0.97 * CAPACITY_RPS


def test_a_full_queue_of_a_lower_tier_makes_room_for_a_higher_one() -> None:
    # The lane lets requests wait for longer than its whole queue takes to be served.
    lane = replace(LANE, max_wait_s=30.0, queue_max=8, slo=LANE.slo)
    found = run((Flow(tier="free", rps=64.0, service_s=4.0), Flow(tier="premium", rps=0.5, service_s=4.0)), lane=lane)
    by_tier = {flow.tier: each for flow, each in found.items()}
    assert by_tier["free"].ends["tier-share"] > 0
    assert by_tier["premium"].ends["queue-full"] == by_tier["premium"].ends["tier-share"] == 0


def test_a_tier_holds_no_more_of_a_lane_than_its_share() -> None:
    tiers = (TierSpec(name="premium"), TierSpec(name="free", max_share=0.25))
    found = run((Flow(tier="free", rps=4 * CAPACITY_RPS),), tiers=tiers)
    assert served_rps(found, 60.0) == pytest.approx(0.25 * CAPACITY_RPS, rel=0.1)


@pytest.mark.parametrize("step", [LadderStep.SHED, LadderStep.BREAKER])
def test_a_step_of_the_ladder_is_the_lowest_tiers_first_and_leaves_it_its_floor(step: LadderStep) -> None:
    found = run(
        tuple(Flow(tier=tier, rps=2 * CAPACITY_RPS) for tier in ("premium", "standard", "free")),
        lane=replace(LANE, step=step),
        count_from_s=SETTLED_S,
    )
    shares, calm = shares_of(found), 0.65 * 6 / 10 + 0.2
    assert shares["premium"] > calm
    assert shares["free"] >= 0.95 * 0.05
    by_tier = {flow.tier: each for flow, each in found.items()}
    assert by_tier["free"].ends[step.value] > 0
    assert by_tier["premium"].ends[step.value] == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["premium", "standard", "free"]), st.integers(1, 3), st.floats(1.0, 60.0)),
        min_size=1,
        max_size=4,
        unique_by=lambda each: each[:2],
    ),
    st.integers(0, 1000),
)
@settings(max_examples=15, deadline=None)
def test_every_request_ends_once_and_capacity_is_used_whoever_wants_it(
    wanted: list[tuple[str, int, float]], seed: int
) -> None:
    flows = tuple(Flow(tier=tier, client=client, rps=rps, until_s=20.0) for tier, client, rps in wanted)
    found = run(flows, seed=seed)
    for each in found.values():
        assert sum(each.ends.values()) == each.offered
    offered = sum(each.offered for each in found.values()) / 20.0
    assert served_rps(found, 20.0) >= 0.85 * min(offered, CAPACITY_RPS)


def test_without_tiers_a_lane_is_first_come_first_served_as_ever() -> None:
    flows = (Flow(tier="", client=1, rps=20.0), Flow(tier="", client=2, rps=40.0))
    found = run(flows, tiers=())
    one = run(flows, tiers=(TierSpec(name="only"),))
    shares = [each.served_tokens for each in found.values()]
    assert shares[1] / shares[0] == pytest.approx(2.0, rel=0.15)  # by what each sends
    assert served_rps(one, 60.0) == pytest.approx(served_rps(found, 60.0), rel=0.03)


@pytest.mark.parametrize("budget", [0.0, 0.2])
def test_no_more_of_a_clients_requests_are_retries_than_its_tier_may_have(budget: float) -> None:
    tiers = (TierSpec(name="free", retry_budget=budget),)
    found = run((Flow(tier="free", rps=3 * CAPACITY_RPS, retries=3),), tiers=tiers)
    (result,) = found.values()
    assert result.ends["retry-budget"] > 0
    assert served_rps(found, 60.0) > 0.5 * CAPACITY_RPS


def test_fresh_requests_of_a_busy_key_are_no_retries_however_many_of_it_were_refused() -> None:
    flow = (Flow(tier="free", rps=3 * CAPACITY_RPS),)
    budgeted = run(flow, tiers=(TierSpec(name="free", retry_budget=0.0),))
    plain = run(flow, tiers=(TierSpec(name="free"),))
    assert [each.ends for each in budgeted.values()] == [each.ends for each in plain.values()]
    assert all(each.ends.total() > 1.5 * each.ends["answered"] for each in plain.values()), "most were refused"


def test_tiers_that_come_and_go_keep_those_who_wait() -> None:
    heap = EventHeap()
    dispatcher = dispatcher_on(heap)
    plain = table(route("r1", concurrency_max=1), lanes=(replace(LANE, max_wait_s=30.0),))
    tiered = replace(plain, tiers=route_tiers(TIERS))
    other = replace(plain, tiers=route_tiers(TIERS[::-1][:2]))
    dispatcher.apply(plain)
    exchanges = []
    for number in range(4):
        exchange = HeapExchange(heap, dispatcher, lambda _: Fate(end_s=1.0))
        exchange.submit(client=number)
        exchanges.append(exchange)
    lane = dispatcher.routes.lanes[LANE.name]
    for each, tiers in ((tiered, 3), (other, 2), (plain, 0), (tiered, 3)):
        dispatcher.apply(each)
        assert lane.queue.size == 3
        assert [t.item.client for t in lane.queue.tickets()] == [1, 2, 3]
        assert (len(lane.tiers.all) if lane.tiers is not None else 0) == tiers
    heap.run()
    assert [each.ends for each in exchanges] == [["answered", "over"]] * 4
    assert all(tier.waiting == tier.in_flight == 0 for tier in lane.tiers.all) if lane.tiers is not None else False


@given(st.lists(st.tuples(st.floats(0.0, 0.4), st.sampled_from(PROMPTS)), min_size=2, max_size=12), st.integers(2, 3))
@settings(max_examples=60, deadline=None)
def test_whatever_a_lower_tier_sends_an_engine_is_left_that_answers_a_higher_one_in_time(
    sent: list[tuple[float, int]], replicas: int
) -> None:
    heap = EventHeap()
    dispatcher = dispatcher_on(heap)
    tiers = route_tiers((TierSpec(name="premium", weight=6), TierSpec(name="free")))
    rows = [route(f"r{number}") for number in range(replicas)]
    dispatcher.apply(replace(table(*rows, lanes=(LANE,)), tiers=tiers))
    lane = dispatcher.routes.lanes[LANE.name]
    assert lane.tiers is not None

    def arrive(tier: str, tokens: int) -> str:
        # No first token of the long ones comes: the engines are where their lines are forecast to be.
        exchange = HeapExchange(heap, dispatcher, lambda _: Fate(token_s=60.0 if tier == "free" else 0.01, end_s=60.0))
        exchange.request = ActiveRequest(
            exchange, lane, PromptLoad(tokens, {}), [], heap.now_s, is_stream=True,
            tier=lane.tiers.named(tier) if lane.tiers is not None else None,
        )  # fmt: skip
        dispatcher.submit(exchange.request)
        return exchange.sent_to[-1] if exchange.sent_to else ""

    assert arrive("premium", 200)
    for gap_s, tokens in sent:
        until_s = heap.now_s + gap_s
        heap.run(until_s)
        heap.now_s = until_s
        arrive("free", tokens)
        first = min(c.line.wait_s(heap.now_s) + c.line.own_s(200) for c in lane.candidates)
        assert first <= lane.budget_s + 1e-9
    assert arrive("premium", 200)


def test_a_lane_of_one_engine_serves_the_long_prompts_of_a_lower_tier_while_nobody_else_sends() -> None:
    alone = run((Flow(tier="free", rps=0.2, prompt_tokens=30_000, service_s=2.0),), replicas=1)
    (free,) = alone.values()
    assert free.ends["answered"] > 0.8 * free.offered


def test_a_tier_under_its_floor_goes_before_a_higher_one_that_is_under_its_due() -> None:
    # Long requests of the first may take so much that the second stays under its due for ever, however often it goes first.
    held = LaneTiers(route_tiers(TIERS), LANE, 0.0)
    premium, standard, free = held.all
    for tier, tokens in ((premium, 790.0), (standard, 200.0), (free, 10.0)):
        tier.served.add(tokens, 0.0)
    assert held.in_order(0.0) == [free, standard, premium]
    free.served.add(90.0, 0.0)  # its floor, and not yet its due
    assert held.in_order(0.0) == [standard, free, premium]


CAPPED = replace(LANE, step=LadderStep.SHED, max_tokens_cap=256, context_tokens_cap=4096)


def tiers_that_had(**tokens: float) -> LaneTiers:
    """Return the tiers of a lane that sheds its lowest, after each was served so many tokens just now."""
    tiers = LaneTiers(route_tiers(TIERS), CAPPED, 0.0)
    for name, amount in tokens.items():
        tier = tiers.named(name)
        assert tier is not None
        tier.served.add(amount, 1.0)
    return tiers


@pytest.mark.parametrize(
    ("premium", "standard", "free", "is_capped"),
    [
        (40, 40, 20, False),  # its due is 61 %: free's floor, 5 %, is all that free is due while it is shed
        (80, 15, 5, True),
        (100, 0, 0, True),
    ],
)
def test_nothing_is_cut_of_a_tier_under_its_due_while_lower_ones_are_served(premium, standard, free, is_capped):
    tiers = tiers_that_had(premium=premium, standard=standard, free=free)
    tier = tiers.named("premium")
    assert tier is not None
    assert tier.stepped.context_tokens == 4096
    found = tiers.degradation(tier, 1.0)
    assert (found.context_tokens is not None) is is_capped
    assert tier.degradation == found


def test_the_lowest_tier_is_cut_and_shed_as_its_lane_says_but_for_its_floor():
    tiers = tiers_that_had(premium=94, standard=0, free=6)
    lowest = tiers.named("free")
    assert lowest is not None
    assert tiers.degradation(lowest, 1.0) is lowest.stepped
    assert lowest.stepped.sheds_waiting
    under = tiers_that_had(premium=97, standard=0, free=3)
    lowest = under.named("free")
    assert lowest is not None
    assert not under.degradation(lowest, 1.0).sheds_waiting
    assert under.degradation(lowest, 1.0).context_tokens == 4096


@pytest.mark.parametrize(("served", "rank"), [(0.0, 0), (3.0, 0), (40.0, 2)])
@pytest.mark.parametrize("sign", [1, -1, 0])
def test_engines_pass_nobody_before_what_a_floor_is_to_have_served(served: float, rank: int, sign: int) -> None:
    heap = EventHeap()
    dispatcher = dispatcher_on(heap)
    routes = replace(route("r1", concurrency_max=8), priority_sign=sign)
    dispatcher.apply(replace(table(routes, lanes=(LANE,)), tiers=route_tiers(TIERS)))
    lane = dispatcher.routes.lanes[LANE.name]
    assert lane.tiers is not None
    premium, _, free = lane.tiers.all
    premium.served.add(60.0, 0.0)
    free.served.add(served, 0.0)
    exchange = HeapExchange(heap, dispatcher, lambda _: Fate(end_s=1.0))
    request = exchange.request = ActiveRequest(exchange, lane, PromptLoad(10, {}), [], 0.0, is_stream=True, tier=free)
    dispatcher.submit(request)
    assert request.turn is not None
    assert request.turn.rank == (rank if sign else 0)
