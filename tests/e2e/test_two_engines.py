"""One fleet on two real engines, llama.cpp in the short lane and vLLM in the long one, driven by the official client.

Then the same requests are sent to both lanes: status, headers, framing and what OpenAI's clients read of the bodies are
the same.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

from fleetctl.model.slo import Validity
from tests.e2e.fleet import Home, lane_of, live_replicas, session_of
from tests.engines import tiny_gguf
from tests.engines.dialect_requests import DECIDED, REQUESTS, SEVERAL_STREAMED
from tests.engines.environment import engine_env, offline, option_cache
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.minutes, pytest.mark.engines, pytest.mark.timeout(900)]

FLEET = "two"
START_S = 600.0
LANES = ("short", "long")
LONG = "the quick brown fox jumps over the lazy dog " * 40  # some 450 estimated tokens: over the boundary

PROFILE = """\
apiVersion: fleetctl/v1
name: {fleet}
model: {{id: tiny, path: {model}}}
engine: vllm
provider: local
workload: {{peak_rps: 2, prompt_tokens: {{p50: 60, p99: 900}}, output_tokens: {{p50: 16, p99: 64}}}}
lanes:
  short:
    engine: llamacpp
    weights: {{path: {gguf}}}
    match: {{uncached_prompt_tokens: "< 256"}}
    slo: {{ttft: {{p99: 10s}}, itl: {{p99: 5s}}}}
    max_wait: 60s
    replicas: 1
    launch: {{max_num_seqs: 4, max_model_len: 2048, extra_args: [--threads, "1"]}}
  long:
    slo: {{ttft: {{p99: 10s}}, itl: {{p99: 5s}}}}
    max_wait: 60s
    replicas: 1
    launch:
      max_num_seqs: 4
      max_model_len: 2048
      extra_args: [--enforce-eager, --kv-cache-memory-bytes, 64M]
      env: {env}
capacity: {{gpus: [L40S]}}
gateway: {{port: {port}}}
"""

# In a first event: whether it holds text depends on how fast the engine is; where it does not, some say null and some "".
OF_LENGTH = {".choices[].finish_reason: str", ".choices[].delta.content: str"}
# What clients of OpenAI read; engines add keys of their own, and keys that are null.
READ = {
    "id", "object", "created", "model", "choices", "index", "message", "delta", "role", "content", "text", "finish_reason",
    "usage", "prompt_tokens", "completion_tokens", "total_tokens", "error", "code",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoEngines:
    """The fleet under test."""

    home: Home
    port: int

    def client(self) -> openai.AsyncOpenAI:
        """Return the official client; what fails is not tried again, so that nothing is hidden."""
        return openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{self.port}/v1", api_key="unused", max_retries=0, timeout=180.0
        )


@pytest.fixture(scope="module")
def fleet() -> Iterator[TwoEngines]:
    """Bring the fleet up; whatever is left at the end is killed."""
    faulthandler.cancel_dump_traceback_later()
    environment = engine_env()
    # A socket's path holds 108 bytes; pytest's own temporary directories are too deep for that.
    root = Path(tempfile.mkdtemp(prefix="f2-"))
    programs = {
        "FLEETCTL_VLLM": str(environment / "bin" / "vllm"),
        **option_cache(),
        "FLEETCTL_LLAMACPP": str(environment / "bin" / "python"),
    }
    home = Home(root=root, env=programs)
    port = free_port()
    profile = PROFILE.format(
        fleet=FLEET, model=environment / "models" / "tiny", gguf=tiny_gguf.write(root / "tiny.gguf"), port=port,
        env="{" + ", ".join(f'{key}: "{value}"' for key, value in offline().items()) + "}",
    )  # fmt: skip
    (root / "two.yaml").write_text(profile)
    try:
        home.fleetctl("up", str(root / "two.yaml"), "--yes", "--timeout", f"{START_S:.0f}s", timeout_s=START_S + 60)
        yield TwoEngines(home=home, port=port)
    finally:
        home.kill_everything()
        shutil.rmtree(root, ignore_errors=True)


async def test_the_official_client_is_served_by_the_engine_of_its_prompts_lane(fleet: TwoEngines) -> None:
    async with fleet.client() as client:
        for prompt, lane in (("hello", "short"), (LONG, "long")):
            body: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": prompt}], "max_tokens": 8}
            raw = await client.chat.completions.with_raw_response.create(**body)
            answer = raw.parse()
            assert raw.headers["x-fleetctl-lane"] == lane
            assert answer.choices[0].finish_reason in ("length", "stop")
            assert answer.usage is not None
            assert 0 < answer.usage.completion_tokens <= 8
            assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
            pieces, used, finish = [], None, None
            async for chunk in await client.chat.completions.create(
                **body, stream=True, stream_options={"include_usage": True}
            ):
                used = chunk.usage or used
                pieces += [choice.delta.content or "" for choice in chunk.choices]
                finish = next((choice.finish_reason for choice in chunk.choices), None) or finish
            assert finish in ("length", "stop")
            assert used is not None
            assert used.completion_tokens <= 8
            # The GGUF model says a printable character a token; what vLLM's says may be no whole character yet.
            assert lane == "long" or len("".join(pieces)) == used.completion_tokens == 8


async def test_what_stops_an_answer_is_told_alike(fleet: TwoEngines) -> None:
    async with fleet.client() as client:
        for lane in LANES:
            headers = {"x-fleetctl-lane": lane}
            whole = await client.completions.create(
                model="tiny", prompt="the quick brown fox", max_tokens=200, temperature=0, extra_headers=headers
            )
            answered = whole.choices[0].text
            # Neither the first character, nor one that a tokenizer puts together of several tokens.
            mark = next(
                each
                for at, each in enumerate(answered)
                if at and each.isprintable() and each.isascii() and each not in answered[:at]
            )
            ended = await client.completions.create(
                model="tiny",
                prompt="the quick brown fox",
                max_tokens=200,
                temperature=0,
                stop=mark,
                extra_headers=headers,
            )
            assert (ended.choices[0].finish_reason, ended.choices[0].text) == ("stop", answered[: answered.index(mark)])


async def test_refusals_are_the_clients_own_errors(fleet: TwoEngines) -> None:
    async with fleet.client() as client:
        for lane in LANES:
            headers = {"x-fleetctl-lane": lane}
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(
                    model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=5000, extra_headers=headers
                )
            wrong: Any = "hi"
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(model="tiny", messages=wrong, max_tokens=5, extra_headers=headers)


def test_each_engine_is_read_by_its_own_series(fleet: TwoEngines) -> None:
    def are_read() -> bool:
        return all(replica.engine.validity is Validity.OK for replica in live_replicas(fleet.home.status(FLEET)))

    until(are_read, "the engines' series are read, every 5 s")
    seen = fleet.home.status(FLEET)
    assert [(lane.name, lane.ready) for lane in seen.lanes] == [("short", 1), ("long", 1)]
    usage = {replica.record.lane: replica.engine.kv_usage for replica in live_replicas(seen)}
    assert usage["short"] is None
    assert usage["long"] is not None
    assert lane_of(seen, "short").traffic is not None


async def test_a_request_gets_the_same_from_both_engines_but_where_it_is_listed(fleet: TwoEngines) -> None:
    different: dict[str, Any] = {}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{fleet.port}", timeout=60.0, trust_env=False) as http:
        for name, (path, body) in (REQUESTS | SEVERAL_STREAMED | DECIDED).items():
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            answers = await asyncio.gather(
                *(
                    http.post(
                        path, content=content, headers={"content-type": "application/json", "x-fleetctl-lane": lane}
                    )
                    for lane in LANES
                )
            )
            seen = [read_of(answer) for answer in answers]
            if seen[0] != seen[1]:
                different[name] = seen
    assert different == {}


def read_of(answer: httpx.Response) -> dict[str, Any]:
    """Return what a client reads of an answer: values where they are promised, else only what is there."""
    kind = answer.headers["content-type"].split(";")[0]
    own = sorted(
        name for name in answer.headers if name.startswith("x-fleetctl-") or name in ("x-request-id", "retry-after")
    )
    seen: dict[str, Any] = {"status": answer.status_code, "kind": kind, "headers": own}
    if kind != "text/event-stream":
        return seen | {"body": sorted(paths(answer.json()))}
    events = answer.text.split("\n\n")
    assert events.pop() == "", "its last event is not whole"
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"
    read = [json.loads(event[6:]) for event in events[:-1]]
    ends = [choice["finish_reason"] for event in read for choice in event["choices"] if choice["finish_reason"]]
    return seen | {
        "first": sorted(paths(read[0]) - OF_LENGTH), "usage": [index - len(read) for index, event in enumerate(read) if event.get("usage")],
        "ends": ends, "objects": sorted({event["object"] for event in read}),
    }  # fmt: skip


def paths(value: object, at: str = "") -> set[str]:
    """Return where something stands that clients read, and is not null."""
    if isinstance(value, dict):
        return set().union(*(paths(each, f"{at}.{key}") for key, each in value.items() if key in READ))
    if isinstance(value, list):
        return set().union(*(paths(each, f"{at}[]") for each in value))
    return set() if value is None else {f"{at}: {type(value).__name__}"}


def test_down_leaves_nothing_behind(fleet: TwoEngines) -> None:
    sessions = frozenset(session_of(process) for process in fleet.home.processes())
    fleet.home.fleetctl("down", FLEET, "--yes", "--timeout", "5m", timeout_s=330)
    assert fleet.home.processes(sessions=sessions) == []
    assert fleet.home.sockets() == []
