"""A fleet as large as people run: up, every lane answers, down, and nothing is left."""

from __future__ import annotations

import os

import httpx
import pytest

from tests.e2e.fleet import Home, live_replicas
from tests.ports import free_port

# 200 by FLEETCTL_TEST_REPLICAS=200: as many interpreters start, which takes two cores more than a minute.
REPLICAS = int(os.environ.get("FLEETCTL_TEST_REPLICAS", "60"))

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

PROFILE = """
apiVersion: fleetctl/v1
name: large
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}}
engine: emulator
emulator: {{flavour: vllm, startup: 100ms}}
provider: local
workload: {{peak_rps: 6, prompt_tokens: {{p50: 400, p99: 2000}}, output_tokens: {{p50: 60, p99: 200}}}}
slo: {{objective: 99%, window: 7d}}
lanes:
  all:
    slo: {{ttft: {{p99: 5s}}}}
    max_wait: 30s
    replicas: {{min: {replicas}, max: {replicas}}}
capacity: {{gpus: [L40S], max_nodes: {nodes}}}
"""


def test_a_large_fleet_comes_up_answers_and_leaves_nothing(home: Home) -> None:
    profile = home.root / "large.yaml"
    profile.write_text(PROFILE.format(replicas=REPLICAS, nodes=REPLICAS + 5))
    up = home.run("up", str(profile), "--port", str(free_port()), "--yes", timeout_s=600)
    assert up.code == 0, up.err
    status = home.status("large")
    assert home.query("status")["condition"]["type"] == "READY"
    assert len(live_replicas(status)) == REPLICAS
    answered = set()
    for number in range(2 * REPLICAS):
        body = {"model": "meta-llama/Llama-3.1-8B-Instruct", "max_tokens": 1}
        body["messages"] = [{"role": "user", "content": f"{number} says hello"}]
        answer = httpx.post(f"{up.out.strip()}/chat/completions", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        answered.add(answer.headers["x-fleetctl-replica"])
    assert len(answered) > 1
    down = home.run("down", "large", "--yes", timeout_s=300)
    assert down.code == 0, down.err
    assert home.processes() == []
    assert home.sockets() == []
