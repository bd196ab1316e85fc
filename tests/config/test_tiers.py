"""Tiers as a profile says them: their order, what lanes and keys say of them, and what contradicts itself."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.codec import decode, encode
from fleetctl.config.profile import parse_profile
from fleetctl.config.profile_changes import diff_profiles
from fleetctl.core.rollout.in_force import digests
from fleetctl.errors import ConfigError
from fleetctl.model.gateway import RoutingTable
from fleetctl.model.generation import GenerationSpec
from fleetctl.model.slo import LatencyTarget, Metric
from fleetctl.model.tiers import slo_of
from tests.config import key_effects
from tests.config.test_every_key import SAMPLE, with_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.profile import Profile

TIERS = {
    "premium": {"weight": 6, "floor": "20%", "slo": {"ttft": {"p99": "200ms"}}, "retry_budget": "20%"},
    "standard": {"weight": 3, "floor": "10%", "generation": {"max_tokens": 900}},
    "free": {"floor": "5%", "max_share": "80%"},
}


def profile(changes: Mapping[str, Any] | None = None, tiers: Any = TIERS) -> Profile:
    tree = deepcopy(SAMPLE) | ({"tiers": deepcopy(tiers)} if tiers is not None else {})
    for dotted, value in (changes or {}).items():
        tree = with_key(tree, dotted, value)
    return parse_profile(json.dumps(tree), source="a profile", base_dir=Path())


def test_tiers_are_ranked_in_the_order_they_are_written_and_reach_the_routing_table() -> None:
    made = profile({"lanes.short.tier": "standard"})
    assert [tier.name for tier in made.tiers] == ["premium", "standard", "free"]
    assert [tier.floor for tier in made.tiers] == [0.2, 0.1, 0.05]
    assert made.tiers[1].generation == GenerationSpec(max_tokens=900)
    table = decode(RoutingTable, encode(key_effects.table(made)))
    assert [(tier.name, tier.priority, tier.weight) for tier in table.tiers] == [("premium", 0, 6), ("standard", 1, 3), ("free", 2, 1)]  # fmt: skip
    assert {lane.name: lane.tier for lane in table.lanes} == {"short": "standard", "long": "", "batch": ""}


def test_a_fleet_without_tiers_has_none_in_its_table() -> None:
    made = profile(tiers=None)
    assert (made.tiers, key_effects.table(made).tiers) == ((), ())


def test_a_tier_holds_a_lane_to_its_own_targets_of_what_the_lane_promises() -> None:
    made = profile()
    short, batch, premium = made.lane("short").slo, made.lane("batch").slo, made.tiers[0]
    own = LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=0.2)
    assert slo_of(short, premium).targets == (own, *(t for t in short.targets if t.metric is not Metric.TTFT))
    assert slo_of(batch, premium) == batch
    assert slo_of(short, made.tiers[1]) is short


def test_a_key_has_a_name_and_a_tier() -> None:
    keys = ["env:A", {"key": "env:B", "name": "acme", "tier": "premium"}, {"key": "file:C", "tier": "free"}]
    made = profile({"gateway.api_keys": keys, "gateway.tier_header": True}).gateway
    assert made.key_names == {"env:B": "acme"}
    assert made.key_tiers == {"env:B": "premium", "file:C": "free"}
    assert made.tier_header


def test_a_change_of_tiers_replaces_no_replica_and_is_named_by_its_keys() -> None:
    before, after = profile(), profile({"tiers.free.weight": 2, "lanes.short.tier": "premium"})
    plan = key_effects.desired(before).plan
    assert digests(before, plan) == digests(after, plan)
    changes = {each.key: (each.old, each.new) for each in diff_profiles(before, after)}
    assert changes == {"lanes.short.tier": ("", "premium"), "tiers.free.weight": ("1", "2")}
    without = diff_profiles(profile(tiers=None), before)
    assert ("tiers", "", "premium standard free") in [(each.key, each.old, each.new) for each in without]


def test_the_order_of_tiers_is_a_change() -> None:
    made = profile()
    turned = replace(made, tiers=made.tiers[::-1])
    assert [(c.key, c.new) for c in diff_profiles(made, turned)] == [("tiers", "free standard premium")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lanes.short.tier": "premum"}, r"lanes.short.tier: no tier is called 'premum' \(did you mean 'premium'\?\); tiers: premium"),
        ({"gateway.api_keys": [{"key": "env:A", "tier": "gold"}]}, r"gateway.api_keys\[0\].tier: no tier is called 'gold'"),
        ({"tiers.premium.floor": "90%"}, r"tiers: their floors are 1.05 .*premium 0.9 \+ standard 0.1 \+ free 0.05"),
        ({"tiers.free.weight": 0}, "tiers.free.weight: must be more than 0"),
        ({"tiers.free.weight": -1}, "tiers.free.weight: must be more than 0"),
        ({"tiers.free.max_share": "0%"}, "tiers.free.max_share.*above 0%"),
        ({"tiers.free.max_share": "3%"}, r"tiers.free: floor \(5%\) is above max_share \(3%\)"),
        ({"tiers.free.retry_budget": "101%"}, "tiers.free.retry_budget"),
        ({"tiers.free.wieght": 1}, "did you mean 'weight'"),
        ({"tiers.free.slo": {}}, "tiers.free.slo: promises nothing"),
        ({"tiers.free.slo": {"stream_gap": {"p99": "1s"}}}, "tiers.free.slo.stream_gap: no lane promises stream_gap"),
        ({"tiers.free.generation": {"loop": "off"}}, "tiers.free.generation.loop: unknown key"),
        ({"gateway.tier_header": True}, "gateway.tier_header: needs api_keys"),
        ({"gateway.api_keys": [{"key": "env:A", "name": "a"}, {"key": "env:B", "name": "a"}]}, r"gateway.api_keys\[1\].name: another key is called 'a'"),
        ({"gateway.api_keys": [{"key": "env:A", "name": "A b"}]}, r"gateway.api_keys\[0\].*name"),
        ({"tiers": {f"t{n}": {} for n in range(9)}}, "tiers: .*8"),
        ({"tiers": {"Premium": {}}}, "tiers.Premium"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused_by_its_key(changes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        profile(changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lanes.short.tier": "premium"}, "lanes.short.tier: there are no tiers; declare it: tiers: {premium: {weight: 1}}"),
        ({"gateway.tier_header": True, "gateway.api_keys": ["env:A"]}, "gateway.tier_header: there are no tiers"),
    ],
)  # fmt: skip
def test_tiers_that_nobody_declared_are_refused(changes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        profile(changes, tiers=None)
