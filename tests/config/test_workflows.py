"""Workflows as a profile says them."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from fleetctl.config.profile import parse_profile
from fleetctl.config.profile_changes import diff_profiles
from fleetctl.errors import ConfigError
from fleetctl.model.workflows import ElapsedTarget, WorkflowKind, WorkflowsSpec
from tests.config.test_every_key import SAMPLE

AGENT = {"steps": 7, "slo": {"p50": "10s", "p99": "30s"}, "lane": "short"}


def profile(workflows: Any = None) -> Any:
    tree = deepcopy(SAMPLE)
    if workflows is not None:
        tree["workflows"] = workflows
    return parse_profile(json.dumps(tree), source="a profile", base_dir=Path())


def test_requests_are_by_themselves_unless_a_profile_says_otherwise() -> None:
    assert profile().workflows is None
    assert profile({}).workflows == WorkflowsSpec(order="plain", idle_s=60.0)


def test_a_kind_says_its_calls_its_promises_and_its_lane() -> None:
    made = profile({"idle": "20s", "kinds": {"agent": AGENT, "research": {"fan_out": 5}}}).workflows
    targets = (ElapsedTarget(percentile=0.5, limit_s=10.0), ElapsedTarget(percentile=0.99, limit_s=30.0))
    agent = WorkflowKind(name="agent", steps=7, fan_out=1, targets=targets, lane="short")
    assert made == WorkflowsSpec(idle_s=20.0, kinds=(agent, WorkflowKind(name="research", steps=1, fan_out=5)))
    assert agent.limit_s == 30.0
    assert made.kind("research").limit_s is None
    assert made.kind_of_lane("short") is agent or made.kind_of_lane("short") == agent
    assert made.kind_of_lane("long") is None


def test_of_several_kinds_of_a_lane_the_first_is_that_of_calls_which_name_none() -> None:
    made = profile({"kinds": {"first": {"lane": "long"}, "second": {"lane": "long"}}}).workflows
    assert made.kind_of_lane("long").name == "first"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"idle": "500ms"}, "workflows.idle: must lie between 1s and 1h"),
        ({"idle": "2h"}, "workflows.idle: must lie between 1s and 1h"),
        ({"idle": 60}, "workflows.idle: 60 is not a duration"),
        ({"order": "dedline"}, "workflows.order: 'dedline' is not an installed order.*installed: plain"),
        ({"kind": {}}, "workflows.kind: .*kinds"),
        ({"kinds": {"agent": {"lane": "shrot"}}}, "workflows.kinds.agent.lane: no lane is called 'shrot'.*short"),
        ({"kinds": {"agent": {"steps": 0}}}, "workflows.kinds.agent.steps"),
        ({"kinds": {"agent": {"fan_out": 1001}}}, "workflows.kinds.agent.fan_out"),
        ({"kinds": {"agent": {"slo": {}}}}, "workflows.kinds.agent.slo: promises nothing"),
        ({"kinds": {"agent": {"slo": {"p50": "3s", "p99": "2s"}}}}, r"p50 \(3 s\) is above p99 \(2 s\)"),
        ({"kinds": {"An agent": {}}}, "workflows.kinds"),
        ({"kinds": {f"k{n}": {} for n in range(65)}}, "workflows.kinds"),
    ],
)
def test_a_wrong_key_is_named_with_what_may_stand_there(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        profile(given)


def test_a_change_of_workflows_is_named_by_its_key() -> None:
    before, after = (
        profile({"kinds": {"agent": AGENT}}),
        profile({"kinds": {"agent": {**AGENT, "slo": {"p99": "40s"}}}}),
    )
    changes = {each.key: (each.old, each.new) for each in diff_profiles(before, after)}
    assert changes == {
        "workflows.kinds.agent.slo.p99": ("30s", "40s"),
        "workflows.kinds.agent.slo.p50": ("10s", ""),
    }
    added = {each.key: each.new for each in diff_profiles(profile(), before)}
    assert added["workflows.kinds"] == "agent"
    assert added["workflows.kinds.agent.steps"] == "7"
