"""Controller and gateway placed in the cluster by `up` (`host: kubernetes`): commanded from laptops, answering without one."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx
import pytest
from kubernetes import client

from fleetctl_kubernetes.settings import REPLICA
from tests.e2e.fleet import Home, free_port
from tests.kube.cluster import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.allow_hosts(["127.0.0.1", "::1", "10.200.0.0/16"]),  # pods' addresses, on loopback
]

NAMESPACE, RECORDS = "placed", "records"
KEY = "sk-of-the-tests"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
PROFILE = """
apiVersion: fleetctl/v1
name: chat
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: 500ms, speed: 4}
provider: {kind: kubernetes, namespace: placed}
host: {kind: kubernetes, image: "tests/fleetctl:1"}
workload:
  peak_rps: 2
  prompt_tokens: {p50: 300, p99: 2000}
  output_tokens: {p50: 64, p99: 200}
lanes:
  short:
    slo: {ttft: {p99: 1s}, itl: {p99: 90ms}}
    max_wait: 10s
    replicas: {min: 1, max: 3}
capacity: {gpus: [L40S], on_demand: minimum, max_nodes: 4}
gateway: {host: 0.0.0.0, port: PORT, api_keys: [env:LLM_KEY]}
"""


@pytest.fixture
def laptops(cluster: TestCluster) -> Iterator[tuple[Home, Home]]:
    """Two directories that share nothing but the cluster; the second is what cron has of an environment."""
    for namespace in (NAMESPACE, RECORDS):
        cluster.namespace(namespace)
    roots = [Path(tempfile.mkdtemp(prefix="fh-")) for _ in range(2)]
    shared = {"FLEETCTL_STATE": f"kubernetes://{RECORDS}"}
    other_kubeconfig = roots[1] / "another-config"
    shutil.copy(cluster.kubeconfig, other_kubeconfig)
    first = Home(root=roots[0], env={**shared, "KUBECONFIG": str(cluster.kubeconfig), "LLM_KEY": KEY})
    second = Home(root=roots[1], env={**shared, "KUBECONFIG": str(other_kubeconfig), "COLUMNS": "80"})
    yield first, second
    first.kill_everything()
    second.kill_everything()
    there = namespaces(cluster) & {NAMESPACE, RECORDS}
    for namespace in there:
        cluster.core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
        cluster.core.delete_namespace(namespace)
    until(lambda: not there & namespaces(cluster), "the namespaces have gone", within_s=60)
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)


def test_a_fleet_placed_in_the_cluster_needs_no_laptop(
    cluster: TestCluster, laptops: tuple[Home, Home], tmp_path: Path
) -> None:
    laptop, other = laptops
    port, profile = free_port(), tmp_path / "chat.yaml"
    profile.write_text(PROFILE.replace("PORT", str(port)))
    neighbour = {"metadata": {"name": "chat-neighbour", "labels": {"app": "theirs"}}, "data": {"a": "b"}}
    cluster.core.create_namespaced_config_map(NAMESPACE, neighbour)
    before = everything(cluster)

    theirs = {"metadata": {"name": "chat-fleetctl"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}}}
    cluster.core.create_namespaced_service(NAMESPACE, theirs)
    refused = laptop.run("up", str(profile), "--yes")
    assert refused.code != 0
    assert "Service chat-fleetctl in placed is somebody else's" in refused.err
    cluster.core.delete_namespaced_service("chat-fleetctl", NAMESPACE)
    assert everything(cluster) == before

    up = laptop.fleetctl("up", str(profile), "--yes", timeout_s=240)
    assert up.strip() == f"http://chat-fleetctl.{NAMESPACE}.svc:{port}/v1"
    assert answers(cluster, port) == "200"
    kill(laptop)

    grant(cluster, other, ways=[("get", "create"), "pods/portforward"])
    assert live(other).lanes[0].ready == 1
    other.fleetctl("scale", "short=2", "-f", "chat")
    until(lambda: len(engine_pods(cluster)) == 2, "scaled from another laptop", within_s=60)
    assert "short" in other.fleetctl("why", "-f", "chat")
    assert f"serving chat on 0.0.0.0:{port}" in other.fleetctl("logs", "gateway", "--fleet", "chat")
    assert other.query("requests", "chat")
    assert_nobody_else_is_let_in(cluster)

    # Its pod is deleted while requests come: the next pod takes the lease and finds the engines that it left.
    engines = engine_pods(cluster)
    with Requests(cluster, port) as requests_sent:
        until(lambda: requests_sent.answered > 3, "requests are answered")
        cluster.core.delete_namespaced_pod(our_pod(cluster).metadata.name, NAMESPACE)
        begun = requests_sent.answered
        until(lambda: requests_sent.answered > begun + 10 and requests_sent.in_a_row > 10, "it is back", within_s=90)
    assert engine_pods(cluster) == engines, "nothing was lost, and nothing ordered twice"

    # Who has no way to the pod sees what is on record, and what is written takes effect.
    grant(cluster, other, ways=[])
    other.fleetctl("scale", "short=1", "-f", "chat")
    until(lambda: len(engine_pods(cluster)) == 1, "scaled by the state alone", within_s=60)

    laptop.fleetctl("down", "chat", "--yes", timeout_s=120)
    until(lambda: everything(cluster) == before, f"nothing is left: {everything(cluster)} {before}", within_s=30)
    assert laptop.processes() == other.processes() == []


def namespaces(cluster: TestCluster) -> set[str]:
    return {each.metadata.name for each in cluster.core.list_namespace().items}


def kill(laptop: Home) -> None:
    """Kill what `up` left on its machine: there is nothing."""
    assert laptop.kill_everything() == []


def live(home: Home) -> Any:
    """Return a status that its controller gave, and not one of the record."""
    found = home.status("chat")
    assert found.controller_alive
    assert found.gateway_alive
    return found


def answers(cluster: TestCluster, port: int) -> str:
    """Return the status of one completion, asked for where the gateway's Service leads."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
    try:
        found = httpx.post(
            f"http://{endpoint(cluster)}:{port}/v1/chat/completions", json=body, timeout=30,
            headers={"Authorization": f"Bearer {KEY}"},
        )  # fmt: skip
    except httpx.HTTPError as exc:
        return type(exc).__name__
    return str(found.status_code)


def endpoint(cluster: TestCluster) -> str:
    """Return the address of the gateway's Service's one ready endpoint; one that leads nowhere while there is none."""
    slices = client.DiscoveryV1Api(cluster.api).list_namespaced_endpoint_slice(
        NAMESPACE, label_selector="kubernetes.io/service-name=chat-fleetctl"
    )
    ready = [each for item in slices.items for each in item.endpoints or () if each.conditions.ready]
    return str(ready[0].addresses[0]) if ready else "[::1]"


class Requests:
    """Requests one after the other until it is left."""

    def __init__(self, cluster: TestCluster, port: int) -> None:
        self.answered = self.in_a_row = 0
        self.failures: list[str] = []
        self._cluster, self._port = cluster, port
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
            found = answers(self._cluster, self._port)
            if found == "200":
                self.answered += 1
                self.in_a_row += 1
            else:
                self.failures.append(found)
                self.in_a_row = 0


def assert_nobody_else_is_let_in(cluster: TestCluster) -> None:
    """The pod's endpoint answers who has the Secret's token: neither nobody, nor a client of the gateway; no admin call at all."""
    pod = our_pod(cluster)
    ports = {each.name: each.container_port for each in pod.spec.containers[0].ports}
    url = f"http://{pod.status.pod_ip}:{ports['control']}"
    secret = cluster.core.read_namespaced_secret("chat-fleetctl", NAMESPACE).data["token"]
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


def grant(cluster: TestCluster, home: Home, *, ways: list[Any]) -> None:
    """Have a machine act as an account that may read and write the state, and reach the pod in these ways alone."""
    verbs, resource = ways or ((), "")
    account = "commander"
    rules = {
        RECORDS: [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get", "list", "patch", "delete"]}
        ],
        NAMESPACE: [
            {"apiGroups": [""], "resources": ["secrets", "pods"], "verbs": ["get", "list"]},
            *([{"apiGroups": [""], "resources": [resource], "verbs": [*verbs]}] if ways else ()),
        ],
    }
    roles = client.RbacAuthorizationV1Api(cluster.api)
    if not any(each.metadata.name == account for each in cluster.core.list_namespaced_service_account(RECORDS).items):
        cluster.core.create_namespaced_service_account(RECORDS, {"metadata": {"name": account}})
    for namespace, granted in rules.items():
        body = {"metadata": {"name": account}, "rules": granted}
        if any(each.metadata.name == account for each in roles.list_namespaced_role(namespace).items):
            roles.replace_namespaced_role(account, namespace, body)
            continue
        roles.create_namespaced_role(namespace, body)
        subject = {"kind": "ServiceAccount", "name": account, "namespace": RECORDS}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
        bound = {"metadata": {"name": account}, "roleRef": reference, "subjects": [subject]}
        roles.create_namespaced_role_binding(namespace, bound)
    token = cluster.core.create_namespaced_service_account_token(account, RECORDS, {"spec": {}}).status.token
    path = Path(home.env["KUBECONFIG"])
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path.write_text(json.dumps(config))


def our_pod(cluster: TestCluster) -> Any:
    found = cluster.core.list_namespaced_pod(NAMESPACE, label_selector="fleetctl.dev/host-of=chat").items
    return next(each for each in found if each.metadata.deletion_timestamp is None)


def engine_pods(cluster: TestCluster) -> set[str]:
    found = cluster.core.list_namespaced_pod(NAMESPACE, label_selector=REPLICA).items
    return {each.metadata.name for each in found if each.metadata.deletion_timestamp is None}


def everything(cluster: TestCluster) -> set[tuple[str, str]]:
    """Return what is in the fleet's namespace, and of the cluster what bears fleetctl's name; the account of its user aside."""
    core, roles, apps = cluster.core, client.RbacAuthorizationV1Api(cluster.api), client.AppsV1Api(cluster.api)
    listings = {
        "pod": core.list_namespaced_pod, "service": core.list_namespaced_service, "secret": core.list_namespaced_secret,
        "account": core.list_namespaced_service_account, "configmap": core.list_namespaced_config_map,
        "role": roles.list_namespaced_role, "binding": roles.list_namespaced_role_binding,
        "deployment": apps.list_namespaced_deployment, "replicaset": apps.list_namespaced_replica_set,
        "budget": client.PolicyV1Api(cluster.api).list_namespaced_pod_disruption_budget,
        "policy": client.NetworkingV1Api(cluster.api).list_namespaced_network_policy,
        "lease": client.CoordinationV1Api(cluster.api).list_namespaced_lease,
    }  # fmt: skip
    found = {(kind, each.metadata.name) for kind, listed in listings.items() for each in listed(NAMESPACE).items}
    of_cluster = {"cluster-role": roles.list_cluster_role, "cluster-binding": roles.list_cluster_role_binding}
    found |= {(kind, each.metadata.name) for kind, listed in of_cluster.items() for each in listed().items}
    return {(kind, name) for kind, name in found if name != "commander"}


def test_a_fleet_whose_namespace_is_deleted_is_taken_down_from_the_laptop(
    cluster: TestCluster, laptops: tuple[Home, Home], tmp_path: Path
) -> None:
    laptop, _ = laptops
    profile = tmp_path / "chat.yaml"
    profile.write_text(PROFILE.replace("PORT", str(free_port())))
    laptop.fleetctl("up", str(profile), "--yes", timeout_s=240)
    cluster.core.delete_namespace(NAMESPACE)
    until(lambda: NAMESPACE not in namespaces(cluster), "the namespace has gone", within_s=120)
    laptop.fleetctl("state", "unlock", "chat", "--yes")  # else its lease is waited for, 30 s
    laptop.fleetctl("down", "chat", "--yes", timeout_s=240)
    assert laptop.query("ls") == []
    assert laptop.processes() == []
    assert not [name for kind, name in everything(cluster) if "chat" in name]
