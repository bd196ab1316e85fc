"""What other controllers of a cluster are given fits the fleet's own objects, and reads what engines export."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleetctl.errors import ConfigError
from fleetctl.model.host_choice import HostChoice
from fleetctl.model.kubernetes_addition import KubernetesAddition, KubernetesAdditions
from fleetctl.model.plan import ReplicaThroughput
from fleetctl.model.tls import TlsSpec
from fleetctl.operations.rendering import RenderTarget, render
from fleetctl.plugins import load_engine
from fleetctl.render.kubernetes import kubernetes_files
from fleetctl.render.prometheus import render_rules
from tests.render import fleets
from tests.sites import plugins_site

if TYPE_CHECKING:
    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile

ALL = frozenset(KubernetesAddition)


def objects(kinds: frozenset[KubernetesAddition] = ALL, fleet: tuple[Profile, Plan] | None = None) -> list[Any]:
    profile, plan = fleet or fleets.one_of_each()
    additions = KubernetesAdditions(kinds=kinds, image="tests/fleetctl:1", namespace="llm")
    files = kubernetes_files(profile, plan, load_engine, additions=additions)
    return [each for file in files.values() for each in file.objects]


def of_kind(kind: str, found: list[Any]) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def engines(found: list[Any]) -> dict[str, Any]:
    """Return the Deployments of lanes."""
    deployments = of_kind("Deployment", found)
    return {name: each for name, each in deployments.items() if "fleetctl.dev/lane" in each["metadata"]["labels"]}


def test_what_keda_scales_leaves_its_replicas_alone_and_the_rest_keeps_them() -> None:
    found = objects()
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in of_kind("ScaledObject", found).values()}
    deployments = engines(found)
    assert scaled == {f"support-chat-{lane}-spot" for lane in ("short", "long", "panel", "batch")}
    assert {name for name, each in deployments.items() if "replicas" not in each["spec"]} == scaled
    assert len(deployments) == 2 * len(scaled)


def test_without_keda_every_deployment_says_how_many() -> None:
    deployments = engines(objects(ALL - {KubernetesAddition.KEDA}))
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
    assert spec["minReplicaCount"] == max(bounds.min - 1, 0)  # one is on demand
    assert spec["maxReplicaCount"] == max(bounds.max - 1, 2)
    assert spec["fallback"]["replicas"] == 2


def test_keda_reads_what_each_lanes_engine_says_of_itself_by_the_labels_that_its_monitor_keeps() -> None:
    found = objects()
    monitors = of_kind("PodMonitor", found)
    played = {"short": "vllm", "long": "tgi", "panel": "sglang", "batch": "tgi"}
    for lane, engine in played.items():
        trigger = of_kind("ScaledObject", found)[f"support-chat-{lane}-spot"]["spec"]["triggers"][0]["metadata"]
        assert "fleetctl_gateway" not in trigger["query"]
        assert f'{{__name__=~"{"|".join(load_engine(engine).request_gauges)}",' in trigger["query"]
        kept = [re.sub(r"\W", "_", each) for each in monitors[f"support-chat-{lane}"]["spec"]["podTargetLabels"]]
        selected = monitors[f"support-chat-{lane}"]["spec"]["selector"]["matchLabels"]
        assert re.findall(r'(fleetctl_dev_\w+)="([^"]+)"', trigger["query"]) == [
            *zip(kept, selected.values(), strict=True)
        ]
        assert trigger["ignoreNullValues"] == "false"  # nothing scraped is no load of zero


def fleet_that_may_sleep() -> tuple[Profile, Plan]:
    """Return a fleet whose lanes may all be at zero, of which the first alone has nothing on demand beside what is scaled."""
    profile, plan = fleets.one_of_each()
    lanes = tuple(replace(lane, replicas=replace(lane.replicas, min=0)) for lane in profile.lanes)
    alone = replace(plan.lanes[0], spot=0, replicas=1, on_demand=1)
    return replace(profile, lanes=lanes), replace(plan, lanes=(alone, *plan.lanes[1:]))


def keda_text(*kinds: KubernetesAddition) -> str:
    additions = KubernetesAdditions(kinds=frozenset({KubernetesAddition.KEDA, *kinds}))
    return kubernetes_files(*fleet_that_may_sleep(), load_engine, additions=additions)["with.keda.yaml"].text


def test_where_no_engine_is_left_none_would_see_a_request_so_one_stays() -> None:
    scaled = of_kind("ScaledObject", objects(frozenset({KubernetesAddition.KEDA}), fleet_that_may_sleep()))
    spec = scaled["support-chat-short"]["spec"]
    assert spec["minReplicaCount"] == 1
    assert len(spec["triggers"]) == 1
    assert scaled["support-chat-long-spot"]["spec"]["minReplicaCount"] == 0  # beside one on demand
    text = keda_text(KubernetesAddition.MONITORS)
    assert "# short: one replica stays, though replicas.min is 0" in text
    assert "`--with inference` or `--with llm-d`" in text
    assert "# long: one replica stays" not in text


@pytest.mark.parametrize("kind", [KubernetesAddition.INFERENCE, KubernetesAddition.LLM_D])
def test_a_picker_before_the_engines_wakes_a_lane_at_zero_and_holds_requests_until_the_first_is_there(
    kind: KubernetesAddition,
) -> None:
    profile, plan = fleet_that_may_sleep()
    found = objects(frozenset({KubernetesAddition.KEDA, kind}), (profile, plan))
    spec = of_kind("ScaledObject", found)["support-chat-short"]["spec"]
    engines, held = (each["metadata"] for each in spec["triggers"])
    assert spec["minReplicaCount"] == 0
    assert f'inference_pool="{next(iter(of_kind("InferencePool", found)))}"' in held["query"]
    assert engines["threshold"] == held["threshold"]
    assert engines["ignoreNullValues"] == held["ignoreNullValues"] == "false"  # who is not scraped is no load of zero
    # The others have replicas on demand, so that engines always count.
    assert len(of_kind("ScaledObject", found)["support-chat-long-spot"]["spec"]["triggers"]) == 1

    def patience(lane: str, among: list[Any]) -> float:
        text = of_kind("ConfigMap", among)[f"support-chat-{lane}-epp"]["data"]["default-plugins.yaml"]
        return float(yaml.safe_load(text)["flowControl"]["defaultRequestTTL"].removesuffix("s"))

    assert patience("short", found) > profile.control.start_timeout_s
    assert patience("long", found) == profile.lane("long").max_wait_s
    # Where nothing has the lane go to zero its queue is as patient as its own.
    assert patience("short", objects(frozenset({kind}), (profile, plan))) == profile.lane("short").max_wait_s
    assert "the picker support-chat-short-epp" in keda_text(kind)
    assert "one replica stays" not in keda_text(kind)


def test_the_file_for_keda_says_where_its_threshold_comes_from() -> None:
    profile, plan = fleets.one_of_each()
    carried = ReplicaThroughput(rps=2.0 * plan.lanes[0].rps, prompt_share=0.5, output_share=0.4)
    plan = replace(plan, lanes=(replace(plan.lanes[0], throughput=carried), *plan.lanes[1:]))
    additions = KubernetesAdditions(kinds=frozenset({KubernetesAddition.KEDA}))
    text = kubernetes_files(profile, plan, load_engine, additions=additions)["with.keda.yaml"].text
    first = next(each for each in yaml.safe_load_all(text))["spec"]["triggers"][0]["metadata"]
    (line,) = [line for line in text.splitlines() if line.startswith("# short: a replica is due")]
    assert f"a replica is due {first['threshold']} requests" in line
    assert f"{carried.rps:.4g} req/s with every promise kept" in line


def test_an_engine_that_does_not_count_its_requests_is_not_scaled_by_them() -> None:
    class Silent(type(load_engine("vllm"))):  # type: ignore[misc]  # an engine of somebody else's
        request_gauges = ()

    additions = KubernetesAdditions(kinds=frozenset({KubernetesAddition.KEDA}))
    with pytest.raises(ConfigError, match="lane short: engine vllm has no series of the requests"):
        kubernetes_files(
            *fleets.one_of_each(), lambda name: Silent() if name == "vllm" else load_engine(name), additions=additions
        )


def test_an_objective_has_its_lanes_priority_in_both_groups_and_the_picker_a_band_of_it() -> None:
    found = objects()
    priorities = {f"support-chat-{lane}": 10 - rank for rank, lane in enumerate(("short", "long", "panel", "batch"))}
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


def test_a_gateways_figures_are_scraped_where_they_are_given() -> None:
    profile, plan = fleets.one_of_each()

    def endpoint(**changes: Any) -> dict[str, Any]:
        gateway = replace(profile.gateway, **{key: value for key, value in changes.items() if key != "host_choice"})
        changed = replace(profile, gateway=gateway, host_choice=changes.get("host_choice", profile.host_choice))
        monitors = of_kind("PodMonitor", objects(fleet=(changed, plan)))
        (found,) = monitors[f"{profile.name}-gateway"]["spec"]["podMetricsEndpoints"]
        return dict(found)

    open_to_all = endpoint(api_keys=(), tls=None)
    assert (open_to_all["port"], "authorization" in open_to_all, "scheme" in open_to_all) == ("http", False, False)
    # One pod with controller and gateway: at the clients' port figures are for who has a key.
    keyed = endpoint(api_keys=("file:/etc/key", "env:LLM_KEY"), tls=TlsSpec(secret="tls"))  # noqa: S106  # its name
    secret = {"name": f"{profile.name}-fleetctl-secrets", "key": "LLM_KEY"}
    assert keyed["authorization"] == {"type": "Bearer", "credentials": secret}
    assert (keyed["port"], keyed["scheme"]) == ("http", "https")
    # Gateways in pods of their own have a port that clients do not reach.
    placed = endpoint(api_keys=("env:LLM_KEY",), host_choice=HostChoice(name="kubernetes"))
    assert (placed["port"], "authorization" in placed, "scheme" in placed) == ("control", False, False)


def test_the_rule_has_the_groups_of_the_file_for_prometheus() -> None:
    profile, _ = fleets.one_of_each()
    (text,) = render_rules(profile).values()
    (rule,) = of_kind("PrometheusRule", objects()).values()
    assert rule["spec"]["groups"] == yaml.safe_load(text)["groups"]


def test_engines_let_in_prometheus_only_where_it_is_to_scrape_them() -> None:
    def peers(kinds: frozenset[KubernetesAddition]) -> str:
        return str(of_kind("NetworkPolicy", objects(kinds))["support-chat-short"]["spec"]["ingress"])

    assert "prometheus" in peers(frozenset({KubernetesAddition.MONITORS}))
    assert "prometheus" in peers(frozenset({KubernetesAddition.KEDA}))
    assert "prometheus" not in peers(ALL - {KubernetesAddition.MONITORS, KubernetesAddition.KEDA})
    assert "namespaceSelector" not in peers(frozenset())


def test_the_pod_that_ranks_pods_is_let_in_and_its_account_is_that_of_the_namespace() -> None:
    found = objects(frozenset({KubernetesAddition.DELETION_COSTS}))
    name = "support-chat-deletion-costs"
    labels = of_kind("Deployment", found)[name]["spec"]["template"]["metadata"]["labels"]
    for policy in of_kind("NetworkPolicy", found).values():
        (rule,) = policy["spec"]["ingress"]
        assert any(peer["podSelector"]["matchLabels"].items() <= labels.items() for peer in rule["from"])
    assert of_kind("RoleBinding", found)[name]["subjects"][0]["namespace"] == "llm"
    assert of_kind("Role", found)[name]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "patch"]}
    ]


def test_without_an_image_nothing_that_ranks_pods_is_written() -> None:
    additions = KubernetesAdditions(kinds=frozenset({KubernetesAddition.DELETION_COSTS}))
    with pytest.raises(ConfigError, match="no image to run deletion-costs from"):
        kubernetes_files(*fleets.one_of_each(), load_engine, additions=additions)


def test_machines_have_no_such_controllers() -> None:
    additions = KubernetesAdditions(kinds=frozenset({KubernetesAddition.KEDA}))
    with pytest.raises(ConfigError, match="no keda on machines"):
        render(plugins_site(), *fleets.one_of_each(), target=RenderTarget.MACHINES, additions=additions)
