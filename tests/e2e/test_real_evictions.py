"""A real vLLM with a tiny KV cache: its counters and cached tokens are read, and what its cache loses has a name."""

from __future__ import annotations

import asyncio
import faulthandler
from typing import TYPE_CHECKING, Any

import openai
import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.evictions.kv_record import READ_EVERY_S
from fleetctl.model.slo import Validity
from tests.e2e.fleet import Home, lane_of, live_replicas
from tests.engines.environment import engine_env, offline, option_cache
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.minutes, pytest.mark.engines, pytest.mark.timeout(1500)]

FLEET = "tiny-cache"
START_S = 900.0
# 40 blocks of 32 tokens. On its own side the gateway is told of no bound: whatever is sent to the lane is sent on.
PROFILE = """\
apiVersion: fleetctl/v1
name: {fleet}
model: {{id: tiny, path: {model}}}
engine: vllm
provider: local
workload:
  peak_rps: 1
  prompt_tokens: {{p50: 60, p99: 600}}
  output_tokens: {{p50: 16, p99: 64}}
slo: {{objective: 99%, window: 7d}}
lanes:
  all:
    slo: {{ttft: {{p99: 60s}}}}
    max_wait: 60s
    replicas: 1
    launch:
      max_num_seqs: 8
      max_model_len: 1024
      max_num_batched_tokens: 1024
      extra_args: [--enforce-eager, --kv-cache-memory-bytes, 64M, --block-size, "32", --num-gpu-blocks-override, "40"]
      env: {env}
capacity: {{gpus: [L40S]}}
gateway: {{port: {port}, api_keys: [{{key: env:TINY_OURS, name: ours}}, {{key: env:TINY_FLOOD, name: flood}}]}}
"""
KEYS = {name: f"sk-{name}-0123456789abcdef0123456789abcdef" for name in ("ours", "flood")}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, int]]:
    """Bring the fleet up; whatever is left at the end is killed."""
    faulthandler.cancel_dump_traceback_later()
    environment = engine_env()
    root = tmp_path_factory.mktemp("evictions")
    names = {f"TINY_{name.upper()}": key for name, key in KEYS.items()}
    home = Home(root=root, env={"FLEETCTL_VLLM": str(environment / "bin" / "vllm"), **option_cache(), **names})
    port = free_port()
    profile = root / "tiny.yaml"
    env = "{" + ", ".join(f'{key}: "{value}"' for key, value in offline().items()) + "}"
    profile.write_text(PROFILE.format(fleet=FLEET, model=environment / "models" / "tiny", port=port, env=env))
    try:
        home.fleetctl("up", str(profile), "--yes", "--timeout", f"{START_S:.0f}s", timeout_s=START_S + 60)
        yield home, port
    finally:
        home.kill_everything()


def client(port: int, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEYS[key], max_retries=0, timeout=300.0)


async def say(port: int, key: str, messages: Any, **more: Any) -> Any:
    """Return the usage of one answer."""
    async with client(port, key) as wire:
        answer = await wire.chat.completions.create(
            model="tiny", messages=messages, extra_headers={"x-fleetctl-conversation": "ticket-7"} if key == "ours" else {},
            **more,
        )  # fmt: skip
    return answer.usage


def wait_for(what: str, found: Callable[[], Any], *, timeout_s: float = 60.0) -> Any:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
    while not (value := found()):
        assert SYSTEM_CLOCK.monotonic_s() < deadline_s, what
        SYSTEM_CLOCK.sleep_blocking(0.5)
    return value


def read_by_the_controller(home: Home) -> bool:
    replicas = home.query("status", FLEET)["replicas"]
    return bool(replicas) and all(each["engine"] and each["engine"]["validity"] == "ok" for each in replicas)


def events(home: Home, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = home.query("events", FLEET, "--kind", "eviction", "-n", "1000")
    return [each for each in found if each["inputs"].get("kind") == kind]


async def test_a_turn_whose_prefix_a_flood_took_is_named_by_what_the_engine_says(fleet: tuple[Home, int]) -> None:
    home, port = fleet
    # How much a cache holds is known from the engine's own page, which is read every few seconds.
    wait_for("the engine's figures", lambda: read_by_the_controller(home))
    SYSTEM_CLOCK.sleep_blocking(2 * READ_EVERY_S)
    # The tiny tokenizer makes a token of each of these characters.
    messages = [{"role": "user", "content": "w7 x3 q9 " * 70}]
    first = await say(port, "ours", messages, max_tokens=4)
    messages += [{"role": "assistant", "content": "yes"}, {"role": "user", "content": "and then?"}]
    kept = await say(port, "ours", messages, max_tokens=4)
    assert kept.prompt_tokens_details.cached_tokens > first.prompt_tokens / 2, "the real engine says what it found"
    for number in range(4):
        await say(port, "flood", [{"role": "user", "content": f"{number}k z5 v8 " * 70}], max_tokens=4)
    messages += [{"role": "assistant", "content": "no"}, {"role": "user", "content": "and why?"}]
    lost = await say(port, "ours", messages, max_tokens=4)
    assert lost.prompt_tokens_details.cached_tokens < first.prompt_tokens / 2
    [found] = wait_for("no event", lambda: events(home, "prefix"))
    assert found["inputs"]["conversation"] == "ticket-7"
    assert found["inputs"]["turn"] == 3
    assert found["inputs"]["cached_tokens"] == lost.prompt_tokens_details.cached_tokens
    assert found["inputs"]["cause"] == "kv-pressure"
    assert "'s 4 prompts in all" in found["inputs"]["filled_by"]
    assert found["reason"].startswith("turn 3 of ticket-7: ")
    assert "its prefix was lost: turn 3 of ticket-7" in home.fleetctl(
        "why", f"request/{found['inputs']['request']}", "--fleet", FLEET
    )


async def test_streams_that_a_tiny_cache_preempts_are_the_engines_own_count(fleet: tuple[Home, int]) -> None:
    home, port = fleet
    long = {"max_tokens": 400, "temperature": 1.0, "extra_body": {"ignore_eos": True}}
    await asyncio.gather(
        *(say(port, "flood", [{"role": "user", "content": f"{number} " * 20}], **long) for number in range(8))
    )

    def counted() -> float:
        engines = [replica.engine for replica in live_replicas(home.status(FLEET))]
        return sum(engine.preemptions for engine in engines if engine.validity is Validity.OK)

    wait_for("the real counter stands still", counted)
    [first, *_] = wait_for("no event", lambda: events(home, "preemption"))
    assert first["code"] == "preempted"
    assert first["reason"].partition(" ")[0] == live_replicas(home.status(FLEET))[0].record.id
    traffic = lane_of(home.status(FLEET), "all").traffic
    assert traffic is not None
    preempted = traffic.window(3600.0).preempted
    assert preempted > 0
    # The first figure may be one of while they still ran.
    wait_for("the gateway counts more than the engine", lambda: counted() >= preempted)
    page = home.fleetctl("diagnose", FLEET)
    assert "kv-evictions" in page
