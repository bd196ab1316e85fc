"""What a fleet was placed with (`host: kubernetes`), deleted by somebody: its controller makes it again, or `up` does."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.desired import DesiredPhase
from fleetctl_kubernetes.settings import MANAGED_BY
from tests.e2e.fleet import Home
from tests.kube.fault_proxy import proxy_thread
from tests.kube.placed_fleet import PlacedFleet, placed
from tests.kube.test_faults import leading_to
from tests.kube.test_gateway_pods import Traffic
from tests.kube.test_host import answers
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["placed"]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.allow_hosts(["127.0.0.1", "::1", "10.200.0.0/16"]),  # pods' addresses, on loopback
]
_SECONDS = 30.0  # a look comes every three
_OURS = "chat-fleetctl"


def test_the_controller_makes_again_what_somebody_deletes(placed: PlacedFleet) -> None:
    laptop, namespace, core = placed.laptop, placed.namespace, placed.cluster.core
    laptop.fleetctl("up", str(placed.profile), "--yes", timeout_s=240)
    secret = core.read_namespaced_secret(_OURS, namespace).data
    controller = placed.controller_pod().metadata.uid
    for each in _objects(placed):
        _delete_and_await(placed, *each)
    assert core.read_namespaced_secret(_OURS, namespace).data == secret, "no token is another"
    assert placed.controller_pod().metadata.uid == controller
    until(lambda: answers(placed) == "200", "requests are answered", within_s=60)
    restored = [each["reason"] for each in laptop.query("events", "chat") if each["action"] == "restore"]
    assert len(restored) == len(_objects(placed)), restored
    service = _objects(placed)[0]

    def shown() -> bool:  # for half a minute each time
        _delete_and_await(placed, *service)
        return f"Service {_OURS} was gone, and is made again" in laptop.status("chat").reason

    until(shown, "status says it")
    client.AppsV1Api(placed.cluster.api).patch_namespaced_deployment(
        f"{_OURS}-gateway", namespace, {"spec": {"replicas": 0}}
    )
    scaled = f"Deployment {_OURS}-gateway is scaled to 0 of 1: `fleetctl up` scales it back"
    until(lambda: scaled in laptop.status("chat").reason, "status says that somebody has scaled it", within_s=60)
    laptop.fleetctl("up", str(placed.profile), "--yes", timeout_s=240)
    until(lambda: answers(placed) == "200", "requests are answered again", within_s=60)
    _assert_status_says_why_a_gateway_does_not_start(placed)
    for verb, resource, name in (("get", "secrets", _OURS), ("patch", "deployments.apps", f"{_OURS}-gateway")):
        assert _may(placed, verb, resource, name)
        assert not _may(placed, verb, resource, "another")
        assert not _may(placed, verb, resource, "")


def test_a_deleted_configmap_of_the_fleets_own_is_made_again_with_its_next_pod(placed: PlacedFleet) -> None:
    laptop, namespace, core = placed.laptop, placed.namespace, placed.cluster.core
    laptop.fleetctl("up", str(placed.profile), "--yes", timeout_s=240)
    (anchor,) = core.list_namespaced_config_map(namespace, label_selector=f"{MANAGED_BY}=fleetctl").items
    engines = placed.engine_pods()
    core.delete_namespaced_config_map(anchor.metadata.name, namespace)  # its pods go with it, by the garbage collector
    read: Any = core.read_namespaced_config_map
    until(
        lambda: _uid(read, anchor.metadata.name, namespace) not in {"", anchor.metadata.uid}, "there again", within_s=60
    )
    until(
        lambda: bool(placed.engine_pods() - engines) and answers(placed) == "200", "requests are answered", within_s=60
    )


def test_up_heals_a_fleet_whose_secret_went_while_no_controller_lived(placed: PlacedFleet) -> None:
    laptop, namespace, core = placed.laptop, placed.namespace, placed.cluster.core
    placed.write_profile(("api_keys", "processes: 2, api_keys"))
    laptop.fleetctl("up", str(placed.profile), "--yes", timeout_s=240)
    before = {each.metadata.uid for each in placed.gateway_pods()}
    with Traffic(placed) as traffic:
        until(lambda: traffic.whole > 10, "requests are answered")
        apps = client.AppsV1Api(placed.cluster.api)
        apps.patch_namespaced_deployment(_OURS, namespace, {"spec": {"replicas": 0}})
        until(lambda: len(_controllers(placed)) == 0, "no controller lives", within_s=60)
        shown = laptop.run("status", "chat").out
        (gateway,) = [line for line in shown.splitlines() if line.startswith("Gateway")]
        assert gateway.endswith("(answering)"), "gateways live without a controller"
        assert "nor gateway" not in shown
        core.delete_namespaced_secret(_OURS, namespace)
        shown = laptop.run("status", "chat").out
        assert f"Secret {_OURS} in {namespace} is gone" in " ".join(shown.split())
        assert f"Secret {_OURS} in {namespace} is gone" in " ".join(laptop.run("why", "-f", "chat").err.split())
        laptop.fleetctl("up", str(placed.profile), "--yes", timeout_s=240)
        until(
            lambda: not before & {each.metadata.uid for each in placed.gateway_pods()} and len(placed.endpoints()) == 2,
            "the gateways have the new token", within_s=90,
        )  # fmt: skip
        until(lambda: all(each.answers for each in laptop.status("chat").gateways), "they answer the controller")
        seen = traffic.whole
        until(lambda: traffic.whole > seen + 10, "requests go on")
        assert traffic.failures == []


def test_down_ends_a_fleet_whose_secret_and_controller_are_gone(placed: PlacedFleet) -> None:
    laptop, namespace, core = placed.laptop, placed.namespace, placed.cluster.core
    before = placed.everything()
    laptop.fleetctl("up", str(placed.profile), "--yes", timeout_s=240)
    apps = client.AppsV1Api(placed.cluster.api)
    apps.patch_namespaced_deployment(_OURS, namespace, {"spec": {"replicas": 0}})
    until(lambda: len(_controllers(placed)) == 0, "no controller lives", within_s=60)
    core.patch_namespaced_secret(_OURS, namespace, {"data": {"environment.json": None}})
    assert "lacks what the controller is started with" in " ".join(laptop.run("status", "chat").out.split())
    core.delete_namespaced_secret(_OURS, namespace)
    scaled = laptop.run("scale", "short=2", "-f", "chat")
    assert scaled.code == 9
    assert f"no controller of chat can start: Secret {_OURS} in {namespace} is gone" in scaled.err
    assert "`fleetctl up PROFILE` makes it again" in scaled.err
    assert not _uid(core.read_namespaced_secret, _OURS, namespace), "none is made that no controller could start with"
    laptop.fleetctl("down", "chat", "--yes", timeout_s=120)
    until(lambda: placed.everything() == before, f"nothing is left: {placed.everything()} {before}", within_s=30)


def test_up_ends_in_time_and_says_why_its_pod_does_not_start(placed: PlacedFleet) -> None:
    laptop = placed.laptop
    placed.write_profile(("tests/fleetctl:1", "tests/missing:1"))
    begun = laptop.run("up", str(placed.profile), "--yes", "--timeout", "6s", timeout_s=60)
    assert begun.code != 0
    for words in ("does not answer after 6 s", "ImagePullBackOff", "tests/missing:1", "host.image_pull_secrets"):
        assert words in begun.err, begun.err
    for command in (("status", "chat"), ("why", "-f", "chat"), ("logs", "controller", "--fleet", "chat")):
        shown = laptop.run(*command)
        assert "ImagePullBackOff" in shown.out + shown.err, command
    full = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}  # which engines tolerate, and fleetctl's own pods do not
    for each in placed.cluster.core.list_node().items:
        placed.cluster.core.patch_node(each.metadata.name, {"spec": {"taints": [full]}})
    try:
        placed.write_profile(("tests/fleetctl:1", "tests/fleetctl:2"))
        again = laptop.run("up", str(placed.profile), "--yes", "--timeout", "6s", timeout_s=60)
        assert "Unschedulable" in again.err, again.err
    finally:
        for each in placed.cluster.core.list_node().items:
            placed.cluster.core.patch_node(each.metadata.name, {"spec": {"taints": []}})


def test_up_reads_the_state_once_a_second_at_most_while_it_waits_for_its_pod(placed: PlacedFleet) -> None:
    placed.write_profile(("tests/fleetctl:1", "tests/missing:1"))
    apps = client.AppsV1Api(placed.cluster.api)
    with proxy_thread(placed.cluster.api.configuration.host) as (proxy, address):
        led = leading_to(address, placed.cluster.kubeconfig, placed.laptop.root)
        laptop = Home(root=placed.laptop.root, env={**placed.laptop.env, "KUBECONFIG": str(led)})
        waiting = laptop.start("up", str(placed.profile), "--yes")
        until(lambda: len(apps.list_namespaced_deployment(placed.namespace).items) == 2, "it is placed", within_s=60)
        state_path = f"/api/v1/namespaces/{placed.records}/configmaps/"

        def readings() -> int:
            calls = dict(proxy.calls)
            return sum(
                count for (method, path), count in calls.items() if method == "GET" and path.startswith(state_path)
            )

        before, begun_s = readings(), SYSTEM_CLOCK.monotonic_s()
        until(lambda: SYSTEM_CLOCK.monotonic_s() - begun_s > 10, "ten seconds of waiting")
        seen = readings() - before
        passed_s = SYSTEM_CLOCK.monotonic_s() - begun_s
        waiting.send_signal(signal.SIGINT)
        waiting.communicate(timeout=60)
        assert 1 <= seen <= passed_s, dict(proxy.calls)


def test_ctrl_c_ends_the_wait_for_a_pod_that_does_not_start(placed: PlacedFleet) -> None:
    laptop = placed.laptop
    placed.write_profile(("tests/fleetctl:1", "tests/missing:1"))
    waiting = laptop.start("up", str(placed.profile), "--yes")
    apps = client.AppsV1Api(placed.cluster.api)
    until(lambda: apps.list_namespaced_deployment(placed.namespace).items, "it is placed", within_s=60)
    waiting.send_signal(signal.SIGINT)  # one, as Ctrl-C is
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 128 + signal.SIGINT, err
    assert "detached; chat goes on coming up" in err
    assert "Traceback" not in err
    assert laptop.status("chat").phase is DesiredPhase.UP


def test_own_pods_and_engines_have_the_pull_secrets_that_the_profile_names(placed: PlacedFleet) -> None:
    placed.write_profile(
        ("namespace: NAMESPACE".replace("NAMESPACE", placed.namespace), f"namespace: {placed.namespace}, image_pull_secrets: [engines]"),
        ('tests/fleetctl:1"', 'tests/fleetctl:1", image_pull_secrets: [ours, theirs]'),
    )  # fmt: skip
    placed.laptop.fleetctl("up", str(placed.profile), "--yes", timeout_s=240)
    found = placed.cluster.core.list_namespaced_pod(placed.namespace).items
    secrets = {
        each.metadata.labels.get("app.kubernetes.io/name", "engine"): [
            s.name for s in each.spec.image_pull_secrets or ()
        ]
        for each in found
    }
    assert secrets == {"fleetctl": ["ours", "theirs"], "fleetctl-gateway": ["ours", "theirs"], "engine": ["engines"]}


def _objects(placed: PlacedFleet) -> list[tuple[str, str, Callable[..., Any], Callable[..., Any]]]:
    core, api = placed.cluster.core, placed.cluster.api
    apps, policy, network = client.AppsV1Api(api), client.PolicyV1Api(api), client.NetworkingV1Api(api)
    gateway = f"{_OURS}-gateway"
    return [
        ("Service", _OURS, core.read_namespaced_service, core.delete_namespaced_service),
        ("PodDisruptionBudget", gateway, policy.read_namespaced_pod_disruption_budget, policy.delete_namespaced_pod_disruption_budget),
        ("NetworkPolicy", gateway, network.read_namespaced_network_policy, network.delete_namespaced_network_policy),
        ("Secret", _OURS, core.read_namespaced_secret, core.delete_namespaced_secret),
        ("Deployment", gateway, apps.read_namespaced_deployment, apps.delete_namespaced_deployment),
    ]  # fmt: skip


def _delete_and_await(placed: PlacedFleet, kind: str, name: str, read: Callable[..., Any], delete: Any) -> None:
    """Delete one of the fleet's own objects; return once another is there."""
    before, namespace = read(name, placed.namespace).metadata.uid, placed.namespace
    delete(name, namespace)
    until(lambda: _uid(read, name, namespace) not in {"", before}, f"{kind} {name} is there again", within_s=_SECONDS)


def _uid(read: Callable[..., Any], name: str, namespace: str) -> str:
    """Return the uid of an object; empty: it is not there."""
    try:
        return str(read(name, namespace).metadata.uid)
    except client.ApiException as exc:
        if exc.status != 404:
            raise
        return ""


def _assert_status_says_why_a_gateway_does_not_start(placed: PlacedFleet) -> None:
    """An edited Deployment is left as it is; of a pod that it brings and that cannot start the status has Kubernetes' words."""
    pod = {"spec": {"containers": [{"name": "gateway", "image": "tests/missing:1"}]}}
    body = {"spec": {"template": pod}}
    client.AppsV1Api(placed.cluster.api).patch_namespaced_deployment(f"{_OURS}-gateway", placed.namespace, body)
    until(lambda: "ImagePullBackOff" in placed.laptop.status("chat").reason, "status says why")
    assert "host.image_pull_secrets" in placed.laptop.status("chat").reason


def _may(placed: PlacedFleet, verb: str, resource: str, name: str) -> bool:
    """Whether the controller's account may do this to an object of this name; empty: to any."""
    kind, _, group = resource.partition(".")
    attributes = {"namespace": placed.namespace, "verb": verb, "resource": kind, "group": group, "name": name}
    user = f"system:serviceaccount:{placed.namespace}:{_OURS}"
    review = {"spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes}}
    authorization = client.AuthorizationV1Api(placed.cluster.api)
    return bool(authorization.create_subject_access_review(review).status.allowed)


def _controllers(placed: PlacedFleet) -> list[str]:
    labels = "app.kubernetes.io/name=fleetctl,fleetctl.dev/host-of=chat"
    return [
        p.metadata.name for p in placed.cluster.core.list_namespaced_pod(placed.namespace, label_selector=labels).items
    ]
