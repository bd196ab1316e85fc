"""A real vLLM in a pod: `up` on a cluster, its probes, an answer by the official client, a deleted pod, `down`."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from openai import OpenAI

from fleetctl_kubernetes.settings import REPLICA
from tests.e2e.fleet import Home
from tests.engines.environment import engine_env, offline, option_cache
from tests.kube.cluster import remove_namespaces
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.engines, pytest.mark.timeout(900)]

NAMESPACE = "real"
START_S = 600.0  # a minute where nothing else runs
PROFILE = """\
apiVersion: fleetctl/v1
name: weighty
model: {{id: tiny, path: {model}}}
engine: vllm
provider: {{kind: kubernetes, namespace: {namespace}}}
workload:
  peak_rps: 1
  prompt_tokens: {{p50: 60, p99: 900}}
  output_tokens: {{p50: 16, p99: 64}}
lanes:
  all:
    slo: {{ttft: {{p99: 10s}}, itl: {{p99: 5s}}}}
    max_wait: 60s
    replicas: 1
    launch:
      max_num_seqs: 8
      max_model_len: 8192
      max_num_batched_tokens: 4096
      gpu_memory_utilization: 0.1
      extra_args: [--enforce-eager]
      env: {env}
capacity: {{gpus: [L40S]}}
control: {{start_timeout: 10m}}
gateway: {{port: {port}}}
"""


@pytest.fixture
def home(cluster: TestCluster) -> Iterator[Home]:
    environment = engine_env()
    root = Path(tempfile.mkdtemp(prefix="fv-"))
    cluster.namespace(NAMESPACE)
    variables = {
        "KUBECONFIG": str(cluster.kubeconfig),
        "FLEETCTL_VLLM": str(environment / "bin/vllm"),
        **option_cache(),
    }
    home = Home(root=root, env=variables)
    yield home
    home.run("down", "weighty", "--yes")
    remove_namespaces(cluster, NAMESPACE)
    left = home.kill_everything()
    shutil.rmtree(root, ignore_errors=True)
    assert left == []


def test_a_pod_of_a_real_vllm_answers_and_its_successor_does_too(cluster: TestCluster, home: Home) -> None:
    environment, port = engine_env(), free_port()
    # The image's programs are those of the engines' environment here; its GPU is this machine's CPU.
    env = offline() | {"VLLM_CPU_KVCACHE_SPACE": "1", "PATH": f"{environment}/bin{os.pathsep}{os.environ['PATH']}"}
    profile = home.root / "weighty.yaml"
    profile.write_text(
        PROFILE.format(model=environment / "models/tiny", namespace=NAMESPACE, port=port, env=json.dumps(env))
    )
    home.fleetctl("up", str(profile), "--yes", "--timeout", f"{START_S:.0f}s", timeout_s=START_S + 60)
    client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="unused", timeout=120)
    answer = client.completions.create(
        model="tiny", prompt="the quick brown fox", max_tokens=8, extra_body={"ignore_eos": True}
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    (pod,) = cluster.core.list_namespaced_pod(NAMESPACE, label_selector=REPLICA).items
    assert pod.spec.containers[0].image.startswith("vllm/vllm-openai")
    assert pod.spec.containers[0].resources.limits == {"nvidia.com/gpu": "1"}
    assert "Application startup complete" in home.fleetctl("logs", pod.metadata.labels[REPLICA], "--fleet", "weighty")

    cluster.core.delete_namespaced_pod(pod.metadata.name, NAMESPACE, grace_period_seconds=60)

    def is_whole() -> bool:
        pods = cluster.core.list_namespaced_pod(NAMESPACE, label_selector=REPLICA).items
        lane = home.status("weighty").lanes[0]
        return {each.metadata.uid for each in pods}.isdisjoint({pod.metadata.uid}) and lane.ready == 1

    until(is_whole, "another engine is ready in its stead", within_s=START_S)
    stream = client.completions.create(
        model="tiny", prompt="the lazy dog", max_tokens=8, stream=True, stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    (usage,) = [chunk.usage for chunk in stream if chunk.usage is not None]
    assert usage.completion_tokens == 8
    home.fleetctl("down", "weighty", "--yes", timeout_s=120)
    assert cluster.core.list_namespaced_pod(NAMESPACE).items == []
