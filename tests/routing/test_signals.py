"""Scorers and filters that read an engine's figures, and the weights a profile gives them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fleetctl.core.routing.candidate import Candidate, EngineLoad, PromptLoad
from fleetctl.core.routing.filters.engine_not_queueing import engine_not_queueing
from fleetctl.core.routing.picker import Picker
from fleetctl.core.routing.registry import FILTERS, SCORERS, unknown_names
from fleetctl.core.routing.scorers.kv_headroom import kv_headroom
from fleetctl.model.profile import RoutingRules

PROMPT = PromptLoad(1000, {})


def replica(id_: str, *, kv_usage: float | None = None, waiting: int = 0, **changes: Any) -> Candidate:
    engine = EngineLoad(running=1, waiting=waiting, kv_usage=kv_usage) if kv_usage is not None else None
    fields: dict[str, Any] = {"in_rotation": True, "concurrency_max": 8, "prefill_tokens_per_s": 10_000.0} | changes
    return Candidate(id=id_, engine=engine, **fields)


def chosen(rules: RoutingRules, *candidates: Candidate, **registries: Any) -> str:
    found = Picker(rules, **registries).pick(candidates, PROMPT, random.Random(1), 0.0)
    assert found is not None
    return found.id


def test_the_emptier_kv_cache_scores_higher_and_an_unknown_one_as_the_mean():
    scores = kv_headroom([replica("a", kv_usage=0.9), replica("b", kv_usage=0.1), replica("c")], PROMPT, 0.0)
    assert scores == [pytest.approx(0.1), pytest.approx(0.9), pytest.approx(0.5)]
    assert kv_headroom([replica("a"), replica("b")], PROMPT, 0.0) == []


def test_by_default_an_engines_figures_change_nothing():
    full, empty = replica("full", kv_usage=0.99, waiting=9), replica("empty", kv_usage=0.0, in_flight=4)
    assert chosen(RoutingRules(), full, empty) == "full"


def test_a_weight_in_the_profile_changes_the_pick():
    full, empty = replica("full", kv_usage=0.99), replica("empty", kv_usage=0.0, in_flight=4)
    rules = RoutingRules(scorers={"least-predicted-ttft": 3.0, "kv-headroom": 4.0})
    assert chosen(rules, full, empty) == "empty"
    assert chosen(RoutingRules(scorers={"least-predicted-ttft": 3.0, "kv-headroom": 0.0}), full, empty) == "full"


def test_a_filter_in_the_profile_keeps_away_from_engines_that_queue_unless_all_do():
    rules = RoutingRules(filters=("engine-not-queueing",))
    queueing, other = replica("queueing", kv_usage=0.1, waiting=3), replica("other", kv_usage=0.1, in_flight=7)
    assert chosen(RoutingRules(), queueing, other) == "queueing"
    assert chosen(rules, queueing, other) == "other"
    assert chosen(rules, queueing) == "queueing"
    assert [c.id for c in engine_not_queueing([queueing, replica("silent")], PROMPT)] == ["silent"]


def test_one_more_scorer_is_a_function_and_a_line_in_the_registry():
    def by_name(candidates: Any, prompt: PromptLoad, now_s: float) -> list[float]:
        del prompt, now_s
        return [float(c.id == "b") for c in candidates]

    rules = RoutingRules(scorers={"least-predicted-ttft": 1.0, "by-name": 5.0})
    assert unknown_names(rules) == ["by-name"]
    with pytest.raises(KeyError):
        Picker(rules)
    assert chosen(rules, replica("a"), replica("b", in_flight=7), scorers={**SCORERS, "by-name": by_name}) == "b"


@pytest.mark.parametrize("name", sorted(SCORERS))
def test_every_registered_scorer_scores_each_candidate_in_zero_to_one(name):
    crowd = [
        replica("a", kv_usage=0.0),
        replica("b", kv_usage=1.0, in_flight=8),
        replica("c", prefill_tokens_per_s=1.0),
    ]
    for prompt in (PROMPT, PromptLoad(1000, {"a": 1000})):
        scores = SCORERS[name](crowd, prompt, 0.0)
        assert len(scores) in {0, 3}
        assert all(0.0 <= score <= 1.0 for score in scores)


def test_every_registered_filter_returns_some_of_the_candidates():
    crowd = [replica("a", kv_usage=0.5, waiting=1), replica("b")]
    assert all(set(keep(crowd, PROMPT)) <= set(crowd) for keep in FILTERS.values())
