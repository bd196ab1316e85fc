"""A whole fleet on a cluster: `up` from a profile, answers through the gateway, pods and machines that are taken, `down`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from openai import OpenAI

from fleetctl_kubernetes.settings import FLEET, REPLICA
from tests.e2e.fleet import Home, live_replicas
from tests.kube.live_fleet import Traffic
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.essential, pytest.mark.timeout(600)]

NAMESPACE = "llm"
ABSENT = "absent"
PROFILE = """
apiVersion: fleetctl/v1
name: pods
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: 500ms, speed: 4}
provider: kubernetes
workload:
  peak_rps: 3
  prompt_tokens: {p50: 300, p99: 2000}
  output_tokens: {p50: 64, p99: 200}
lanes:
  short:
    match: {uncached_prompt_tokens: "< 512"}
    slo: {ttft: {p99: 1s}, itl: {p99: 90ms}}
    max_wait: 5s
    replicas: {min: 2, max: 3}
    spot: burst
  long:
    slo: {ttft: {p99: 3s}, itl: {p99: 90ms}}
    max_wait: 10s
    replicas: {min: 1, max: 2}
capacity: {gpus: [L40S], on_demand: minimum, max_nodes: 8}
gateway: {host: 127.0.0.1, port: PORT}
"""


@pytest.fixture
def home(cluster: TestCluster) -> Iterator[Home]:
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    cluster.namespace(NAMESPACE)
    variables = {
        "KUBECONFIG": str(cluster.kubeconfig), "FLEETCTL_KUBE_NAMESPACE": NAMESPACE,
        "FLEETCTL_KUBE_IMAGE": "tests/emulator:1",
    }  # fmt: skip
    home = Home(root=root, env=variables)
    yield home
    home.run("down", "pods", "--yes")
    cluster.core.delete_collection_namespaced_pod(NAMESPACE, grace_period_seconds=0)
    cluster.core.delete_namespace(NAMESPACE)
    until(lambda: not has_namespace(cluster, NAMESPACE), "the namespace has gone")
    left = home.kill_everything()
    shutil.rmtree(root, ignore_errors=True)
    assert left == []


def has_namespace(cluster: TestCluster, name: str) -> bool:
    return any(each.metadata.name == name for each in cluster.core.list_namespace().items)


def ready(home: Home) -> list[str]:
    status = home.status("pods")
    return [row.record.id for row in live_replicas(status) if row.record.state.value == "ready"]


def test_a_fleet_on_a_cluster_answers_survives_deletions_and_leaves_nothing(
    cluster: TestCluster, home: Home, tmp_path: Path
) -> None:
    core = cluster.core
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "neighbour"}, "data": {"a": "b"}})
    port = free_port()
    profile = tmp_path / "pods.yaml"
    profile.write_text(PROFILE.replace("PORT", str(port)))
    home.fleetctl("up", str(profile), "--yes", timeout_s=240)

    pods = core.list_namespaced_pod(NAMESPACE, label_selector=f"{FLEET}=pods").items
    assert len(pods) >= 3
    assert {pod.status.pod_ip.rpartition(".")[0] for pod in pods} == {pods[0].status.pod_ip.rpartition(".")[0]}
    client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    answer = client.chat.completions.create(
        model="meta-llama/Llama-3.1-8B-Instruct", messages=[{"role": "user", "content": "hello"}], max_tokens=8
    )
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8

    before = ready(home)
    with Traffic(port) as traffic:
        until(lambda: traffic.answered >= 5, "requests are answered")
        core.delete_collection_namespaced_pod(NAMESPACE, label_selector=f"{REPLICA}={before[0]}")
        until(lambda: before[0] not in ready(home) and len(ready(home)) >= len(before), "it is replaced", within_s=120)
        answered = traffic.answered
        until(lambda: traffic.answered > answered + 5, "requests are answered")
    assert traffic.failures == []

    home.fleetctl("down", "pods", "--yes", timeout_s=120)
    listings = (core.list_namespaced_pod, core.list_namespaced_config_map, core.list_namespaced_service_account)
    until(
        lambda: (
            {item.metadata.name for listing in listings for item in listing(NAMESPACE).items}
            == {"neighbour", "default", "kube-root-ca.crt"}
        ),
        "the namespace holds nothing of ours",
    )


def test_up_creates_nothing_where_the_namespace_does_not_exist(home: Home, tmp_path: Path) -> None:
    profile = tmp_path / "pods.yaml"
    profile.write_text(PROFILE.replace("PORT", str(free_port())))
    elsewhere = Home(root=home.root, env={**home.env, "FLEETCTL_KUBE_NAMESPACE": ABSENT})
    ran = elsewhere.run("up", str(profile), "--yes")
    assert ran.code == 10
    assert f"{ABSENT} does not exist" in ran.err
    assert f"kubectl create namespace {ABSENT}" in ran.err
    assert elsewhere.query("ls") == []
