"""What other controllers of a cluster are given fits the fleet's own objects, and reads what a gateway exports."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleetctl.errors import ConfigError
from fleetctl.model.kubernetes_addition import KubernetesAddition, KubernetesAdditions
from fleetctl.operations.rendering import RenderTarget, render
from fleetctl.plugins import load_engine
from fleetctl.render.kubernetes import kubernetes_files
from fleetctl.render.prometheus import render_rules
from tests.gateway.rig import GatewayRig
from tests.render import fleets
from tests.sites import plugins_site

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile

ALL = frozenset(KubernetesAddition)


def objects(kinds: frozenset[KubernetesAddition] = ALL, fleet: tuple[Profile, Plan] | None = None) -> list[Any]:
    profile, plan = fleet or fleets.one_of_each()
    files = kubernetes_files(profile, plan, load_engine, additions=KubernetesAdditions(kinds=kinds))
    return [each for file in files.values() for each in file.objects]


def of_kind(kind: str, found: list[Any]) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def test_what_keda_scales_leaves_its_replicas_alone_and_the_rest_keeps_them() -> None:
    found = objects()
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in of_kind("ScaledObject", found).values()}
    deployments = of_kind("Deployment", found)
    assert scaled == {f"support-chat-{lane}-spot" for lane in ("short", "long", "panel", "batch")}
    assert {name for name, each in deployments.items() if "replicas" not in each["spec"]} == scaled
    assert len(deployments) == 2 * len(scaled)


def test_without_keda_every_deployment_says_how_many() -> None:
    deployments = of_kind("Deployment", objects(ALL - {KubernetesAddition.KEDA}))
    assert all(each["spec"]["replicas"] for each in deployments.values())


def test_a_lane_on_demand_alone_is_scaled_there_and_one_without_replicas_not_at_all() -> None:
    profile, plan = fleets.one_of_each()
    first, second, *others = plan.lanes
    first = replace(first, spot=0, replicas=1, on_demand=1)
    second = replace(second, spot=0, replicas=0, on_demand=0)
    scaled = of_kind("ScaledObject", objects(fleet=(profile, replace(plan, lanes=(first, second, *others)))))
    assert set(scaled) == {"support-chat-short", "support-chat-panel-spot", "support-chat-batch-spot"}


def test_bounds_of_a_lane_count_what_is_on_demand() -> None:
    profile, _ = fleets.one_of_each()
    bounds = profile.lane("short").replicas
    spec = of_kind("ScaledObject", objects())["support-chat-short-spot"]["spec"]
    assert spec["minReplicaCount"] == max(bounds.min - 1, 0)
    assert spec["maxReplicaCount"] == max(bounds.max - 1, 2)
    assert spec["fallback"]["replicas"] == 2


async def test_what_keda_asks_prometheus_for_is_exported_by_a_gateway() -> None:
    queries = [each["spec"]["triggers"][0]["metadata"]["query"] for each in of_kind("ScaledObject", objects()).values()]
    read = {name for query in queries for name in re.findall(r"fleetctl_\w+", query)}
    async with GatewayRig() as rig:
        await rig.add("r1")
        page = (await rig.get("/metrics")).body.decode()
    assert read
    for name in read:
        assert f'\n{name}{{fleet="' in page, name


def test_an_objective_has_its_lanes_priority_in_both_groups_and_the_picker_a_band_of_it() -> None:
    found = objects()
    priorities = {name: each["value"] for name, each in of_kind("PriorityClass", found).items()}
    objectives = [each for each in found if each["kind"] == "InferenceObjective"]
    assert {each["apiVersion"] for each in objectives} == {
        "inference.networking.x-k8s.io/v1alpha2",
        "llm-d.ai/v1alpha2",
    }
    for each in objectives:
        assert each["spec"]["priority"] == priorities[each["spec"]["poolRef"]["name"]]
    assert set(of_kind("InferencePool", found)) == set(priorities)
    for name, each in of_kind("ConfigMap", found).items():
        config = yaml.safe_load(each["data"]["default-plugins.yaml"])
        assert config["flowControl"]["priorityBands"][0]["priority"] == priorities[name.removesuffix("-epp")]


def test_a_pool_and_its_monitor_choose_the_pods_of_the_lanes_deployments() -> None:
    found = objects()
    monitors = of_kind("PodMonitor", found)
    for name, pool in of_kind("InferencePool", found).items():
        chosen = pool["spec"]["selector"]["matchLabels"]
        assert monitors[name]["spec"]["selector"]["matchLabels"] == chosen
        for deployment in (f"{name}", f"{name}-spot"):
            template = of_kind("Deployment", found)[deployment]["spec"]["template"]
            assert chosen.items() <= template["metadata"]["labels"].items()
            (port,) = template["spec"]["containers"][0]["ports"]
            assert port["containerPort"] == pool["spec"]["targetPorts"][0]["number"]
            assert port["name"] == monitors[name]["spec"]["podMetricsEndpoints"][0]["port"]


def test_the_rule_has_the_groups_of_the_file_for_prometheus() -> None:
    profile, _ = fleets.one_of_each()
    (text,) = render_rules(profile).values()
    (rule,) = of_kind("PrometheusRule", objects()).values()
    assert rule["spec"]["groups"] == yaml.safe_load(text)["groups"]


def test_engines_let_in_prometheus_only_where_it_is_to_scrape_them() -> None:
    def peers(kinds: frozenset[KubernetesAddition]) -> str:
        return str(of_kind("NetworkPolicy", objects(kinds))["support-chat-short"]["spec"]["ingress"])

    assert "prometheus" in peers(frozenset({KubernetesAddition.MONITORS}))
    assert "prometheus" not in peers(ALL - {KubernetesAddition.MONITORS})
    assert "namespaceSelector" not in peers(frozenset())


def test_machines_have_no_such_controllers() -> None:
    additions = KubernetesAdditions(kinds=frozenset({KubernetesAddition.KEDA}))
    with pytest.raises(ConfigError, match="no keda on machines"):
        render(plugins_site(), *fleets.one_of_each(), target=RenderTarget.MACHINES, additions=additions)
