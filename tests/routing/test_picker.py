"""Filter, score, pick."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given, strategies as st

from fleetctl.core.routing.candidate import Candidate, PromptLoad
from fleetctl.core.routing.ejection import BACKOFF_S_MAX, CONSECUTIVE_FAILURES, Ejection
from fleetctl.core.routing.picker import Picker
from fleetctl.core.routing.registry import SCORERS
from fleetctl.core.routing.scorers.prefix_affinity import prefix_affinity
from fleetctl.core.routing.shared_prefills import SharedPrefillLine
from fleetctl.core.routing.usable import usable
from fleetctl.model.profile import RoutingRules


def replica(id_: str, **changes: Any) -> Candidate:
    fields: dict[str, Any] = {"in_rotation": True, "concurrency_max": 8, "prefill_tokens_per_s": 10_000.0} | changes
    waiting_tokens = fields.pop("waiting_tokens", 0)
    found = Candidate(id=id_, line=SharedPrefillLine(fields["prefill_tokens_per_s"]), **fields)
    if waiting_tokens:
        found.line.join(waiting_tokens, 0.0)
    return found


PROMPT = PromptLoad(1000, {})
pick = Picker(RoutingRules()).pick
replicas = st.builds(
    replica,
    st.uuids().map(str),
    in_rotation=st.booleans(),
    concurrency_max=st.integers(1, 64),
    prefill_tokens_per_s=st.one_of(st.just(0.0), st.floats(1e-3, 1e6)),
    in_flight=st.integers(0, 70),
    waiting_tokens=st.integers(0, 10**6),
    ejected_until_s=st.sampled_from([0.0, 5.0, 50.0]),
)
fleets = st.lists(replicas, max_size=8, unique_by=lambda c: c.id)


def chosen(candidates: list[Candidate], prompt: PromptLoad = PROMPT, seed: int = 0) -> str | None:
    found = pick(candidates, prompt, random.Random(seed), 0.0)
    return found.id if found else None


@given(fleets, st.data())
def test_every_score_lies_between_zero_and_one(candidates, data):
    if not candidates:
        return
    tokens = data.draw(st.integers(0, 10**5))
    cached = data.draw(st.dictionaries(st.sampled_from([c.id for c in candidates]), st.integers(0, tokens)))
    for scorer in SCORERS.values():
        scores = scorer(candidates, PromptLoad(tokens, cached), 0.0)
        assert len(scores) in {0, len(candidates)}
        assert all(0.0 <= s <= 1.0 for s in scores)


@given(fleets, st.integers())
def test_the_picked_replica_is_one_that_may_take_the_request(candidates, seed):
    able = usable(candidates, now_s=10.0)
    found = pick(able, PROMPT, random.Random(seed), 10.0)
    assert (found is None) == (not able)
    if found:
        assert found.in_rotation
        assert found.in_flight < found.concurrency_max
        assert found.ejected_until_s <= 10.0


@given(fleets, st.integers())
def test_the_same_seed_picks_the_same_replica(candidates, seed):
    assert chosen(candidates, seed=seed) == chosen(candidates, seed=seed)


def test_the_shortest_way_to_a_first_token_wins():
    assert chosen([replica("busy", waiting_tokens=20_000), replica("idle")]) == "idle"
    assert chosen([replica("slow", prefill_tokens_per_s=2_000.0), replica("fast")]) == "fast"


def test_with_equal_prefill_the_emptier_batch_wins():
    assert chosen([replica("a", in_flight=6), replica("b", in_flight=2)]) == "b"


def test_a_cached_prefix_attracts_until_the_load_bound():
    cached = PromptLoad(1000, {"warm": 900})
    assert chosen([replica("warm"), replica("cold")], cached) == "warm"
    crowd = [replica("warm", in_flight=7), replica("cold"), replica("cool")]
    assert prefix_affinity(crowd, cached, 0.0) == [0.0, 0.0, 0.0]


def test_ties_are_spread():
    rng = random.Random(5)
    counts = Counter(c.id for _ in range(600) if (c := pick([replica(n) for n in "abc"], PROMPT, rng, 0.0)))
    assert set(counts) == set("abc")
    assert min(counts.values()) > 120


def test_an_ejected_replica_takes_one_probe_when_its_time_is_over():
    out = replica("out", ejected_until_s=5.0)
    assert usable([out], now_s=4.9) == []
    assert usable([out], now_s=5.0) == [out]
    out.in_flight = 1
    assert usable([out], now_s=5.0) == []


def test_a_displaced_request_may_go_beyond_the_slot_limit_but_not_back():
    full = replica("full", in_flight=8)
    assert usable([full], now_s=0.0) == []
    assert usable([full], now_s=0.0, beyond_limit=True) == [full]
    assert usable([full], now_s=0.0, beyond_limit=True, tried={"full"}) == []


def test_three_failures_in_a_row_eject_and_an_answer_brings_back():
    ejection = Ejection()
    for _ in range(CONSECUTIVE_FAILURES - 1):
        ejection.failed(1.0)
    assert not ejection.is_ejected
    ejection.failed(1.0)
    assert ejection.until_s == 2.0
    ejection.failed(1.5)  # was already under way
    assert ejection.until_s == 2.0
    ejection.failed(2.0)  # the probe
    assert ejection.until_s == 4.0
    ejection.answered()
    assert not ejection.is_ejected
    ejection.failed(9.0)
    assert not ejection.is_ejected


def test_backing_off_has_an_end():
    ejection, now_s = Ejection(), 0.0
    for _ in range(60):
        ejection.failed(now_s)
        now_s = max(now_s, ejection.until_s)
    ejection.failed(now_s)
    assert ejection.until_s - now_s <= BACKOFF_S_MAX
