"""Which PriorityClass a rendered lane has, and which names of objects cannot stand beside each other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.errors import ConfigError
from fleetctl.model.kubernetes_addition import KubernetesAddition, KubernetesAdditions
from fleetctl.plugins import load_engine
from fleetctl.render.kubernetes import kubernetes_files
from tests.render import fleets

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile


def fleet(*lanes: str, interruptible: str = "") -> tuple[Profile, Plan]:
    specs = (replace(fleets.lane(each, "vllm"), interruptible=each == interruptible) for each in lanes)
    return fleets.fleet(*((spec, fleets.lane_plan(spec.name, "vllm")) for spec in specs))


def objects(
    rendered: tuple[Profile, Plan], *kinds: KubernetesAddition, namespace: str = "llm"
) -> dict[tuple[str, str], Any]:
    additions = KubernetesAdditions(kinds=frozenset(kinds), namespace=namespace)
    files = kubernetes_files(*rendered, load_engine, additions=additions)
    return {(x["kind"], x["metadata"]["name"]): x for each in files.values() for x in each.objects}


def class_of(found: dict[tuple[str, str], Any], deployment: str) -> str | None:
    name: str | None = found["Deployment", deployment]["spec"]["template"]["spec"].get("priorityClassName")
    return name


def test_a_profiles_own_classes_are_the_rendered_lanes_too_and_none_is_made() -> None:
    profile, plan = fleet("short", "long")
    profile = replace(profile, provider="kubernetes", provider_settings={"priority_classes": ("short=serving",)})
    found = objects((profile, plan))
    assert [kind for kind, _ in found if kind == "PriorityClass"] == []
    assert class_of(found, "support-chat-short") == "serving"
    assert class_of(found, "support-chat-long") is None


def test_lanes_are_ranked_by_their_place_in_the_profile_whatever_the_plan_leaves_out() -> None:
    profile, plan = fleet("short", "long", "batch", interruptible="batch")
    found = objects((profile, replace(plan, lanes=plan.lanes[1:])))
    assert {name: each["value"] for (kind, name), each in found.items() if kind == "PriorityClass"} == {
        "llm.support-chat.lane-2": -1, "llm.support-chat.interruptible": -10,
    }  # fmt: skip
    assert class_of(found, "support-chat-long-spot") == "llm.support-chat.lane-2"


def test_lanes_beyond_the_last_rank_share_its_class() -> None:
    lanes = [f"lane{number}" for number in range(12)]
    found = objects(fleet(*lanes))
    values = sorted(each["value"] for (kind, _), each in found.items() if kind == "PriorityClass")
    assert values == list(range(-9, 1))
    assert {class_of(found, f"support-chat-lane{number}") for number in (9, 10, 11)} == {"llm.support-chat.lane-10"}


def test_requests_are_shed_of_a_lane_that_may_be_interrupted_and_of_no_other() -> None:
    found = objects(fleet("short", "long", "batch", interruptible="batch"), KubernetesAddition.INFERENCE)
    priorities = [each["spec"]["priority"] for (kind, _), each in found.items() if kind == "InferenceObjective"]
    assert priorities == sorted(priorities, reverse=True)
    assert [each < 0 for each in priorities] == [False, False, True]


def test_lanes_whose_objects_would_have_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="both have a Deployment support-chat-short-spot"):
        objects(fleet("short", "short-spot"))


def test_a_namespace_that_no_cluster_can_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="Team_A"):
        objects(fleet("short"), namespace="Team_A")
