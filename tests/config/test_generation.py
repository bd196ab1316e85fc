"""The bounds of answers as a profile says them: for the fleet, a lane, an API key."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from fleetctl.config.profile import parse_profile
from fleetctl.core.plan.workload import lane_demands
from fleetctl.errors import ConfigError
from fleetctl.model.generation import CappedIs, GenerationSpec
from tests.config.test_every_key import SAMPLE


def profile(generation: Any = None, lane: Any = None, keys: Any = None) -> Any:
    tree = deepcopy(SAMPLE)
    if generation is not None:
        tree["generation"] = generation
    if lane is not None:
        tree["lanes"]["short"]["generation"] = lane
    if keys is not None:
        tree["gateway"] = {"api_keys": keys}
    return parse_profile(json.dumps(tree), source="a profile", base_dir=Path())


def test_nothing_is_bounded_unless_a_profile_says_so() -> None:
    assert {lane.generation for lane in profile().lanes} == {GenerationSpec()}
    assert not GenerationSpec().is_bounding


def test_a_lane_changes_only_the_keys_it_names() -> None:
    made = profile(
        {"default_max_tokens": 512, "max_tokens": 4096, "max_duration": "60s", "stop": ["#", "#"]},
        {"max_tokens": 8192, "capped_is": "bad"},
    )
    assert made.lane("long").generation == GenerationSpec(
        default_max_tokens=512, max_tokens=4096, max_duration_s=60.0, stop=("#",)
    )
    assert made.lane("short").generation == GenerationSpec(
        default_max_tokens=512, max_tokens=8192, max_duration_s=60.0, stop=("#",), capped_is=CappedIs.BAD
    )


def test_a_key_may_have_bounds_of_its_own() -> None:
    made = profile(keys=["env:A", {"key": "env:B", "generation": {"max_tokens": 9}}, {"key": "file:C"}])
    assert made.gateway.api_keys == ("env:A", "env:B", "file:C")
    assert made.gateway.key_generation == {"env:B": GenerationSpec(max_tokens=9)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"generation": {"default_max_tokens": 9, "max_tokens": 8}}, r"default_max_tokens \(9\) is above max_tokens \(8\)"),
        ({"generation": {"max_tokens": 8}, "lane": {"default_max_tokens": 9}}, "lanes.short.generation.default_max_tokens"),
        ({"generation": {"default_max_tokens": 9}, "lane": {"max_tokens": 8}}, "lanes.short.generation.max_tokens"),
        ({"generation": {"max_tokens": 0}}, "generation.max_tokens.*1 or more"),
        ({"generation": {"max_duration": "0s"}}, "generation.max_duration"),
        ({"generation": {"max_duration": 60}}, "generation.max_duration.*60s|unit"),
        ({"generation": {"stop": [""]}}, "generation.stop"),
        ({"generation": {"stop": list("abcde")}}, "generation.stop"),
        ({"generation": {"capped_is": "fine"}}, "generation.capped_is.*good, bad"),
        ({"generation": {"loop": "cut"}}, "generation.loop.*off, observe, stop"),
        ({"keys": [{"key": "env:A", "generation": {"loop": "off"}}]}, "loop"),
        ({"generation": {"max_token": 3}}, "max_tokens"),
        ({"keys": ["sk-secret"]}, "gateway.api_keys"),
        ({"keys": [{"key": "sk-secret"}]}, "gateway.api_keys"),
        ({"keys": [{"generation": {}}]}, "gateway.api_keys"),
        ({"keys": [{"key": "env:A", "generation": {"capped_is": "bad"}}]}, "capped_is"),
    ],
)  # fmt: skip
def test_what_is_no_bound_is_refused_by_its_key(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        profile(**given)
    assert "sk-secret" not in str(raised.value)


def test_the_plan_is_for_answers_as_long_as_the_lane_lets_them_get() -> None:
    free, bounded = lane_demands(profile()), lane_demands(profile(lane={"max_tokens": 200}))
    assert free["short"].output.points[-1] > 600
    assert bounded["short"].output.points[-1] == 200
    assert bounded["short"].output.mean < free["short"].output.mean
    assert "generation.max_tokens (200)" in bounded["short"].source
    assert bounded["long"] == free["long"]
