"""A fleet with bounds of its answers, and engines that would go on: what clients get, and that the engines stop."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.fleet import live_replicas
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FLEET = "bounded"
_PROFILE = """\
apiVersion: fleetctl/v1
name: {fleet}
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}}
engine: emulator
emulator: {{startup: 200ms}}
provider: local
workload: {{peak_rps: 1, prompt_tokens: {{p50: 100, p99: 400}}, output_tokens: {{p50: 129, p99: 6000}}}}
generation: {{default_max_tokens: 20, max_tokens: 5000, max_duration: 2s, capped_is: bad}}
lanes:
  chat: {{slo: {{ttft: {{p99: 5s}}}}, max_wait: 30s, replicas: 1, launch: {{max_model_len: 8192}}}}
capacity: {{gpus: [L40S], max_nodes: 4}}
gateway: {{port: {port}}}
"""


@pytest.fixture(scope="module")
def port(home: Home) -> Iterator[int]:
    port = free_port()
    profile = home.root / "bounded.yaml"
    profile.write_text(_PROFILE.format(fleet=FLEET, port=port))
    home.fleetctl("validate", str(profile))
    # What its own bounds end counts as bad, so no plan keeps this lane's objective.
    planned = home.fleetctl("plan", str(profile), "--accept-risk", "-o", "json")
    assert "no answer longer than generation.max_tokens (5,000)" in planned
    home.fleetctl("up", str(profile), "--accept-risk", "--yes", timeout_s=240.0)
    yield port
    home.fleetctl("down", FLEET, "--yes", timeout_s=120.0)


def post(port: int, **body: Any) -> tuple[dict[str, str], bytes]:
    messages = [{"role": "user", "content": "Tell me more"}]
    content = json.dumps(
        {"model": "meta-llama/Llama-3.1-8B-Instruct", "messages": messages, "ignore_eos": True, **body}
    )
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)
    connection.request("POST", "/v1/chat/completions", content, {"content-type": "application/json"})
    with closing(connection), connection.getresponse() as answer:
        return {name.lower(): value for name, value in answer.headers.items()}, answer.read()


def page(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)
    connection.request("GET", "/metrics")
    with closing(connection), connection.getresponse() as answer:
        return answer.read().decode()


def running(home: Home) -> float:
    """Return how many requests the lane's engine says that it has."""
    [replica] = live_replicas(home.status(FLEET))
    lines = page(replica.record.port).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running"))


def wait_for_the_idle_engine(home: Home) -> None:
    until(lambda: running(home) == 0.0, "the engine has no request any more", within_s=30.0)


def test_a_stream_that_goes_on_ends_by_the_clock_and_its_engine_stops(home: Home, port: int) -> None:
    headers, body = post(port, stream=True, max_tokens=9000, stream_options={"include_usage": True})
    assert headers["x-fleetctl-limit"] == "max_tokens=5000"
    events = [json.loads(line[5:]) for line in body.splitlines() if line.startswith(b"data: {")]
    *texts, end, usage = events
    assert end["choices"][0]["finish_reason"] == "length"
    assert end["choices"][0]["stop_reason"] == "max_duration"
    tokens = usage["usage"]["completion_tokens"]
    assert 5 < tokens < 5000
    assert len([event for event in texts if event["choices"][0]["delta"].get("content")]) <= tokens
    assert body.endswith(b"data: [DONE]\n\n")
    wait_for_the_idle_engine(home)
    explained = home.fleetctl("why", f"request/{headers['x-request-id']}", "-f", FLEET)
    assert "the server set the length of its answer: max_tokens=5000" in explained
    assert "the clock (generation.max_duration) ended its answer" in explained


def test_a_whole_answer_ends_by_the_clock_too(home: Home, port: int) -> None:
    headers, body = post(port, max_tokens=5000)
    assert headers["x-fleetctl-limit"] == "max_duration=2s"
    answer = json.loads(body)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["message"]["content"]
    assert 5 < answer["usage"]["completion_tokens"] < 5000
    wait_for_the_idle_engine(home)


def test_a_request_that_names_no_length_gets_the_default(port: int) -> None:
    headers, body = post(port)
    assert headers["x-fleetctl-limit"] == "default_max_tokens=20"
    assert json.loads(body)["usage"]["completion_tokens"] == 20


def test_each_is_counted_by_its_bound_and_bad_as_the_lane_says(port: int) -> None:
    lines = page(port)
    for reason, count in (("max_duration", 2), ("default_max_tokens", 1), ("max_tokens", 0)):
        assert f'fleetctl_gateway_bounded_total{{fleet="{FLEET}",lane="chat",reason="{reason}"}} {count}' in lines
    assert f'fleetctl_gateway_breaches_total{{fleet="{FLEET}",lane="chat",kind="capped"}} 3' in lines
