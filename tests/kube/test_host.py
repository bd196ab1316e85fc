"""Controller and gateway placed in the cluster by `up` (`host: kubernetes`): commanded from laptops, answering without one."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx
import pytest
from kubernetes import client

from tests.kube.placed_fleet import KEY, MODEL, PlacedFleet, placed
from tests.sender import SENDER
from tests.waiting import until

if TYPE_CHECKING:
    from tests.e2e.fleet import Home
    from tests.kube.cluster import TestCluster

__all__ = ["placed"]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.essential,
    pytest.mark.timeout(600),
    pytest.mark.allow_hosts(["127.0.0.1", "::1", "10.200.0.0/16"]),  # pods' addresses, on loopback
]


def test_a_fleet_placed_in_the_cluster_needs_no_laptop(placed: PlacedFleet) -> None:
    cluster, namespace = placed.cluster, placed.namespace
    laptop, other, port, profile = placed.laptop, placed.other, placed.port, placed.profile
    neighbour = {"metadata": {"name": "chat-neighbour", "labels": {"app": "theirs"}}, "data": {"a": "b"}}
    cluster.core.create_namespaced_config_map(namespace, neighbour)
    before = placed.everything()

    theirs = {"metadata": {"name": "chat-fleetctl"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}}}
    cluster.core.create_namespaced_service(namespace, theirs)
    refused = laptop.run("up", str(profile), "--yes")
    assert refused.code != 0
    assert f"Service chat-fleetctl in {namespace} is somebody else's" in refused.err
    cluster.core.delete_namespaced_service("chat-fleetctl", namespace)
    assert placed.everything() == before

    up = laptop.fleetctl("up", str(profile), "--yes", timeout_s=240)
    assert up.strip() == f"http://chat-fleetctl.{namespace}.svc:{port}/v1"
    assert answers(placed) == "200"
    assert_doctor_looks_from_the_pod(laptop)
    kill(laptop)

    grant(placed, other, ways=[("get", "create"), "pods/portforward"])
    assert_seen(other, placed)
    other.fleetctl("scale", "short=2", "-f", "chat")
    until(lambda: len(placed.engine_pods()) == 2, "scaled from another laptop", within_s=60)
    assert "short" in other.fleetctl("why", "-f", "chat")
    assert f"serving chat on {endpoint(placed)}:{port}" in other.fleetctl("logs", "gateway", "--fleet", "chat")
    assert other.query("requests", "chat")
    assert_nobody_else_is_let_in(placed)

    # The controller's pod is deleted while requests come: they go on, and the next pod takes the lease and finds the engines.
    engines = placed.engine_pods()
    with Requests(placed) as requests_sent:
        until(lambda: requests_sent.answered > 3, "requests are answered")
        cluster.core.delete_namespaced_pod(placed.controller_pod().metadata.name, namespace)
        until(lambda: other.status("chat").controller_alive, "the next one is at work", within_s=90)
        begun = requests_sent.answered
        until(lambda: requests_sent.answered > begun + 10, "requests are answered")
    assert requests_sent.failures == []
    assert placed.engine_pods() == engines, "nothing was lost, and nothing ordered twice"

    # Who has no way to the pod sees what is on record, and what is written takes effect.
    grant(placed, other, ways=[])
    other.fleetctl("scale", "short=1", "-f", "chat")
    until(lambda: len(placed.engine_pods()) == 1, "scaled by the state alone", within_s=60)

    laptop.fleetctl("down", "chat", "--yes", timeout_s=120)
    until(lambda: placed.everything() == before, f"nothing is left: {placed.everything()} {before}", within_s=30)
    assert laptop.processes() == other.processes() == []


def kill(laptop: Home) -> None:
    """Kill what `up` left on its machine: there is nothing."""
    assert laptop.kill_everything() == []


def live(home: Home) -> Any:
    """Return a status that its controller gave, and not one of the record."""
    found = home.status("chat")
    assert found.controller_alive
    assert found.gateway_alive
    return found


def assert_seen(home: Home, placed: PlacedFleet) -> None:
    assert live(home).lanes[0].ready == 1
    assert f"Control  pod {placed.controller_pod().metadata.name}\n" in home.fleetctl("status", "chat")


def answers(placed: PlacedFleet) -> str:
    """Return the status of one completion, asked for where the gateway's Service leads."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
    try:
        found = SENDER.post(
            f"http://{endpoint(placed)}:{placed.port}/v1/chat/completions", json=body, timeout=30,
            headers={"Authorization": f"Bearer {KEY}"},
        )  # fmt: skip
    except httpx.HTTPError as exc:
        return type(exc).__name__
    return str(found.status_code)


def endpoint(placed: PlacedFleet) -> str:
    """Return the address of the gateway's Service's one ready endpoint; one that leads nowhere while there is none."""
    return next(iter(placed.endpoints()), "[::1]")


class Requests:
    """Requests one after the other until it is left."""

    def __init__(self, placed: PlacedFleet) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self._placed = placed
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _send(self) -> None:
        while not self._over.wait(0.05):
            found = answers(self._placed)
            if found == "200":
                self.answered += 1
            else:
                self.failures.append(found)


def assert_doctor_looks_from_the_pod(laptop: Home) -> None:
    """What holds of this machine alone, as who reaches the engines from it, is no finding on a fleet that is not on it."""
    names = {check["name"] for check in json.loads(laptop.run("doctor", "-o", "json").out)}
    assert any(name.endswith("of chat: host") for name in names)
    assert not any(name.endswith("network policy") for name in names)


def assert_nobody_else_is_let_in(placed: PlacedFleet) -> None:
    """The pod's endpoint answers who has the Secret's token: neither nobody, nor a client of the gateway; no admin call at all."""
    pod = placed.controller_pod()
    ports = {each.name: each.container_port for each in pod.spec.containers[0].ports}
    url = f"http://{pod.status.pod_ip}:{ports['control']}"
    secret = placed.cluster.core.read_namespaced_secret("chat-fleetctl", placed.namespace).data["token"]
    token = {"x-fleetctl-token": base64.b64decode(secret).decode()}
    assert httpx.get(f"{url}/livez").text == "ok"
    for headers in ({}, {"x-fleetctl-token": KEY}, {"Authorization": f"Bearer {KEY}"}):
        for path in ("/v1/status", "/v1/requests", "/v1/logs/controller"):
            assert httpx.get(url + path, headers=headers).status_code == 401
    assert httpx.get(f"{url}/v1/status", headers=token).status_code == 200
    for path in ("/v1/snapshot", "/v1/table", "/v1/logs/..%2f..%2fenvironment", "/v1/logs/environment.json"):
        assert httpx.get(url + path, headers=token).status_code in {400, 404}
    assert pod.spec.security_context.run_as_user == 65532
    assert pod.spec.containers[0].security_context.read_only_root_filesystem


def grant(placed: PlacedFleet, home: Home, *, ways: list[Any]) -> None:
    """Have a machine act as an account that may read and write the state, and reach the pod in these ways alone."""
    verbs, resource = ways or ((), "")
    cluster, account = placed.cluster, "commander"
    rules = {
        placed.records: [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get", "list", "patch", "delete"]}
        ],
        placed.namespace: [
            {"apiGroups": [""], "resources": ["secrets", "pods"], "verbs": ["get", "list"]},
            *([{"apiGroups": [""], "resources": [resource], "verbs": [*verbs]}] if ways else ()),
        ],
    }
    roles = client.RbacAuthorizationV1Api(cluster.api)
    if not any(
        each.metadata.name == account for each in cluster.core.list_namespaced_service_account(placed.records).items
    ):
        cluster.core.create_namespaced_service_account(placed.records, {"metadata": {"name": account}})
    for namespace, granted in rules.items():
        body = {"metadata": {"name": account}, "rules": granted}
        if any(each.metadata.name == account for each in roles.list_namespaced_role(namespace).items):
            roles.replace_namespaced_role(account, namespace, body)
            continue
        roles.create_namespaced_role(namespace, body)
        subject = {"kind": "ServiceAccount", "name": account, "namespace": placed.records}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
        bound = {"metadata": {"name": account}, "roleRef": reference, "subjects": [subject]}
        roles.create_namespaced_role_binding(namespace, bound)
    token = cluster.core.create_namespaced_service_account_token(account, placed.records, {"spec": {}}).status.token
    path = Path(home.env["KUBECONFIG"])
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path.write_text(json.dumps(config))


def finalize(cluster: TestCluster, namespace: str) -> None:
    """Let an empty namespace go, as its controller does only after half of the longest grace that its pods had."""
    emptied = cluster.core.read_namespace(namespace)
    emptied.spec.finalizers = []
    cluster.core.replace_namespace_finalize(namespace, emptied)
    gone = lambda: all(each.metadata.name != namespace for each in cluster.core.list_namespace().items)  # noqa: E731
    until(gone, "the namespace has gone", within_s=30)


def test_a_fleet_whose_namespace_is_deleted_is_taken_down_from_the_laptop(placed: PlacedFleet) -> None:
    cluster, namespace, laptop = placed.cluster, placed.namespace, placed.laptop
    laptop.fleetctl("up", str(placed.profile), "--yes", timeout_s=240)
    cluster.core.delete_namespace(namespace)
    until(lambda: not cluster.core.list_namespaced_pod(namespace).items, "its pods have ended", within_s=120)
    finalize(cluster, namespace)
    laptop.fleetctl("state", "unlock", "chat", "--yes")  # else its lease is waited for, 30 s
    laptop.fleetctl("down", "chat", "--yes", timeout_s=240)
    assert laptop.query("ls") == []
    assert laptop.processes() == []
    assert not [name for kind, name in placed.everything() if "chat" in name]
