"""A fleet whose clients make workflows of many calls, seen as one from its faces: by OpenAI's client, and by a trace id."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import openai
import pytest

from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.workflow_figures import WorkflowWindow
    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FLEET, MODEL = "flows", "meta-llama/Llama-3.1-8B-Instruct"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
_PROFILE = """\
apiVersion: fleetctl/v1
name: {fleet}
model: {{id: {model}, quantization: bf16}}
engine: emulator
emulator: {{startup: 200ms, speed: 4}}
provider: local
workload: {{peak_rps: 1, prompt_tokens: {{p50: 100, p99: 400}}, output_tokens: {{p50: 20, p99: 200}}}}
lanes:
  chat: {{slo: {{ttft: {{p99: 5s}}}}, max_wait: 30s, replicas: 1}}
workflows:
  idle: 1s
  kinds:
    agent: {{steps: 3, slo: {{p99: 60s}}, lane: chat}}
    research: {{steps: 2, fan_out: 4, slo: {{p99: 50s}}, lane: chat}}
capacity: {{gpus: [L40S], max_nodes: 4}}
gateway: {{port: {port}}}
"""


@pytest.fixture(scope="module")
def port(home: Home) -> Iterator[int]:
    port = free_port()
    profile = home.root / "flows.yaml"
    profile.write_text(_PROFILE.format(fleet=FLEET, model=MODEL, port=port))
    planned = home.fleetctl("plan", str(profile), "-o", "wide")
    assert "workflow research, elapsed P99 <= 50s: 2 steps of 4 calls at once, so each call E2E P99.75" in planned
    home.fleetctl("up", str(profile), "--yes", timeout_s=240.0)
    yield port
    home.fleetctl("down", FLEET, "--yes", timeout_s=120.0)


def client_of(port: int) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", max_retries=0, timeout=60.0)


async def call(client: openai.AsyncOpenAI, headers: dict[str, str], *, tokens: int = 5) -> None:
    pieces = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Go on"}],
        max_tokens=tokens,
        stream=True,
        extra_headers=headers,
        extra_body={"ignore_eos": True},
    )
    assert [piece async for piece in pieces]


def ended(home: Home, kind: str) -> WorkflowWindow:
    """Wait until a workflow of a kind is counted."""

    def counted() -> WorkflowWindow | None:
        seen = home.status(FLEET).workflows
        window = next(each for each in seen.kinds if each.kind == kind).window(3600.0) if seen is not None else None
        return window if window is not None and window.ended else None

    window = until(counted, f"a workflow of kind {kind} is counted")
    assert window is not None
    return window


async def test_a_fan_out_with_one_long_call_is_drawn_with_that_branch_marked(home: Home, port: int) -> None:
    named = {"x-fleetctl-workflow": "search-1", "x-fleetctl-workflow-kind": "research"}
    async with client_of(port) as client:
        await call(client, named)
        # The shorter ones last for a second: the first is not over before a busy machine has sent the last.
        await asyncio.gather(*(call(client, named, tokens=500 if number == 2 else 200) for number in range(4)))
        await call(client, named)
    (found,) = home.query("why", "search-1", "-f", FLEET)
    assert (found["kind"], found["calls_begun"], found["depth"], found["fan_out"]) == ("research", 6, 3, 4)
    first, *branches, last = found["calls"]
    longest = max(branches, key=lambda each: each["total_s"])
    assert longest["output_tokens"] == 500
    assert [each["number"] for each in found["calls"] if each["is_on_path"]] == [0, longest["number"], 5]
    assert last["before"] == longest["number"]
    assert {each["before"] for each in branches} == {first["number"]}
    assert found["replica_s"] + found["queue_s"] + found["client_s"] == pytest.approx(found["elapsed_s"])
    drawn = home.fleetctl("why", "search-1", "-f", FLEET)
    assert f"* {'  '}{longest['number']} " in drawn
    assert max(map(len, drawn.splitlines())) <= 100
    assert len(home.fleetctl("requests", FLEET, "--workflow", "search-1", "-o", "name").split()) == 6
    window = ended(home, "research")
    assert (window.good, window.calls, window.fan_out_mean) == (1, 6, 4.0)
    assert home.query("why", "search-1", "-f", FLEET)[0]["verdict"] == "good"


async def test_steps_that_share_a_trace_are_one_by_their_lane_and_every_face_shows_them(home: Home, port: int) -> None:
    async with client_of(port) as client:
        for step in range(3):
            await call(client, {"traceparent": f"00-{TRACE}-00f067aa0ba902b{step}-01"})
    window = ended(home, "agent")
    assert (window.good, window.calls, window.depth_mean) == (1, 3, 3.0)
    assert f"{TRACE}: good" in home.fleetctl("why", TRACE, "-f", FLEET)
    for command in ("status", "slo"):
        assert "Workflows, last hour" in home.fleetctl(command, FLEET)
