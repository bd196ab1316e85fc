"""What conversations lose to a key that floods long prompts: python -m tests.bench.evictions [--seeds 3] [--seconds 330]

Two emulated engines with a small KV cache (Llama-3.1-8B bf16 on an L40S) serve conversations of eight turns, each 500
tokens longer than the one before, with some four seconds between turns; a third with a large one is the lane they may
spill to. From a sixth of the run on one key floods prompts of 6,000 tokens. The same is done without and with the
control (`control.evictions.act`), both at once, so that whatever else the machine does disturbs both, and once a seed. Printed
of the last third, in which the guard stands where it came to, of each run and of all together: evictions per 1,000 requests by the engines' and the gateway's counters, TTFT P99 of the
conversations' later turns, and their goodput: turns answered with the first token inside the lane's 2 s, of those begun.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from fleetctl.clock import SYSTEM_CLOCK
from tests.bench.fleet_drill import FLEET, Drill, _free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

TURNS, TURN_CHARACTERS = 8, 2000
CONVERSATIONS, THINK_S = 16, 4.0
FLOOD_CHARACTERS, FLOOD_RPS = 24_000, 0.8
TTFT_LIMIT_S = 2.0
PROFILE = """
apiVersion: fleetctl/v1
name: drill
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}}
engine: emulator
emulator: {{flavour: vllm, startup: 1s}}
provider: local
workload: {{peak_rps: 4, prompt_tokens: {{p50: 1500, p99: 6000}}, output_tokens: {{p50: 120, p99: 300}}}}
lanes:
  chat:
    match: {{uncached_prompt_tokens: "< 12000"}}
    slo: {{ttft: {{p99: 2s}}}}
    max_wait: 5s
    replicas: 2
    spot: none
    spill_to: [roomy]
    launch: {{max_num_seqs: 24, max_model_len: 16384, gpu_memory_utilization: {small}}}
  roomy:
    slo: {{ttft: {{p99: 5s}}}}
    max_wait: 5s
    replicas: 1
    spot: none
    launch: {{max_num_seqs: 24, max_model_len: 16384, gpu_memory_utilization: 0.9}}
capacity: {{gpus: [L40S], max_nodes: 3}}
control: {{evictions: {{act: {act}}}}}
gateway: {{port: {port}, api_keys: [{{key: env:EVICT_CHAT, name: chat}}, {{key: env:EVICT_FLOOD, name: flood}}]}}
"""
KEYS = {name: f"sk-{name}-0123456789abcdef0123456789abcdef" for name in ("chat", "flood")}


@dataclass
class Turn:
    """One turn of a conversation, as its client saw it."""

    number: int
    at_s: float
    ttft_s: float | None = None
    cached: int | None = None
    prompt: int = 0


@dataclass
class Run:
    """One fleet under this traffic."""

    turns: list[Turn] = field(default_factory=list)
    floods: int = 0
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    levels: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)


async def say(wire: httpx.AsyncClient, key: str, messages: list[dict[str, str]], tokens: int, turn: Turn | None) -> str:
    """Send one request as a stream; return its text, "" where it failed."""
    body = {
        "model": "meta-llama/Llama-3.1-8B-Instruct", "messages": messages, "max_tokens": tokens, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    begun_s, text = SYSTEM_CLOCK.monotonic_s(), ""
    headers = {"authorization": f"Bearer {KEYS[key]}", "x-fleetctl-lane": "chat"}
    try:
        async with wire.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
            if answer.status_code != 200:
                await answer.aread()
                return ""
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                for choice in event.get("choices", ()):
                    piece = choice.get("delta", {}).get("content") or ""
                    if piece and turn is not None and turn.ttft_s is None:
                        turn.ttft_s = SYSTEM_CLOCK.monotonic_s() - begun_s
                    text += piece
                if turn is not None and event.get("usage"):
                    turn.prompt = event["usage"]["prompt_tokens"]
                    turn.cached = (event["usage"].get("prompt_tokens_details") or {}).get("cached_tokens")
    except httpx.HTTPError:
        return ""
    return text


async def talk(wire: httpx.AsyncClient, run: Run, dice: random.Random, until_s: float, begun_s: float) -> None:
    """Hold one conversation after the other."""
    while SYSTEM_CLOCK.monotonic_s() < until_s:
        await SYSTEM_CLOCK.sleep(dice.expovariate(1.0 / THINK_S))
        messages: list[dict[str, str]] = []
        for number in range(1, TURNS + 1):
            words = f"{dice.getrandbits(64):016x} "
            messages.append({"role": "user", "content": words * (TURN_CHARACTERS // len(words))})
            turn = Turn(number, SYSTEM_CLOCK.monotonic_s() - begun_s)
            run.turns.append(turn)
            text = await say(wire, "chat", messages, 80, turn)
            if not text or SYSTEM_CLOCK.monotonic_s() >= until_s:
                break
            messages.append({"role": "assistant", "content": text})
            await SYSTEM_CLOCK.sleep(dice.expovariate(1.0 / THINK_S))


async def flood(wire: httpx.AsyncClient, run: Run, dice: random.Random, from_s: float, until_s: float) -> None:
    """Send long prompts of one key, whatever becomes of them."""
    await SYSTEM_CLOCK.sleep(max(0.0, from_s - SYSTEM_CLOCK.monotonic_s()))
    async with asyncio.TaskGroup() as sent:
        while SYSTEM_CLOCK.monotonic_s() < until_s:
            words = f"{dice.getrandbits(64):016x} "
            content = words * (FLOOD_CHARACTERS // len(words))
            run.floods += 1
            sent.create_task(say(wire, "flood", [{"role": "user", "content": content}], 300, None))
            await SYSTEM_CLOCK.sleep(dice.expovariate(FLOOD_RPS))


async def counters(wire: httpx.AsyncClient) -> dict[str, float]:
    """Return the gateway's counters of lane `chat`: preempted, prefixes lost by kv-pressure, and finished requests."""
    page = (await wire.get("/metrics", headers={"authorization": f"Bearer {KEYS['chat']}"})).text
    found = {"preempted": 0.0, "prefixes": 0.0, "others": 0.0, "requests": 0.0}
    for name, labels, value in re.findall(r"^fleetctl_gateway_(\w+)\{([^}]*)\} (\S+)$", page, re.MULTILINE):
        if 'lane="chat"' not in labels:
            continue
        if name == "preemptions_total":
            found["preempted"] += float(value)
        elif name == "prefixes_lost_total":
            found["prefixes" if 'cause="kv-pressure"' in labels else "others"] += float(value)
        elif name == "requests_total":
            found["requests"] += float(value)
    return found


async def traffic(port: int, seed: int, seconds: float) -> Run:
    """Send everything; read the counters at two thirds and at the end."""
    run, begun_s = Run(), SYSTEM_CLOCK.monotonic_s()
    until_s = begun_s + seconds
    limits = httpx.Limits(max_connections=400)
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120.0, trust_env=False, limits=limits) as wire,
        asyncio.TaskGroup() as group,
    ):
        for number in range(CONVERSATIONS):
            dice = random.Random(f"evictions/{seed}/{number}")
            group.create_task(talk(wire, run, dice, until_s, begun_s))
        group.create_task(flood(wire, run, random.Random(f"flood/{seed}"), begun_s + seconds / 6, until_s))
        await SYSTEM_CLOCK.sleep(seconds * 2 / 3)
        run.before = await counters(wire)
        await SYSTEM_CLOCK.sleep(max(0.0, until_s - SYSTEM_CLOCK.monotonic_s()))
        run.after = await counters(wire)
    return run


def live(seed: int, seconds: float, *, act: bool, small: float) -> Run:
    """Bring a fleet up, send the traffic, read its journal, take it down."""
    with tempfile.TemporaryDirectory(prefix="evictions-") as home:
        drill, port = Drill(Path(home), ""), _free_port()
        drill.env |= {f"EVICT_{name.upper()}": key for name, key in KEYS.items()}
        profile = Path(home) / "drill.yaml"
        profile.write_text(PROFILE.format(act=str(act).lower(), port=port, small=small))
        try:
            drill.fleetctl("up", str(profile), "--name", FLEET, "--yes")
            run = asyncio.run(traffic(port, seed, seconds))
            events: list[dict[str, Any]] = json.loads(drill.fleetctl("events", FLEET, "-n", "1000", "-o", "json"))
            run.levels = [each["reason"] for each in events if each["action"] == "eviction-guard"]
            run.named = [each["reason"] for each in events if each["action"] == "eviction"]
        finally:
            drill.fleetctl("down", FLEET, "--yes", check=False)
    return run


def rows(runs: list[Run], seconds: float) -> Iterator[str]:
    """Yield the figures of the last thirds of these runs together."""
    turns = [turn for run in runs for turn in run.turns if turn.at_s >= seconds * 2 / 3 and turn.at_s < seconds - 10]
    grown = {key: sum(run.after[key] - run.before[key] for run in runs) for key in runs[0].after}
    requests = max(1.0, grown["requests"])
    later = sorted(turn.ttft_s for turn in turns if turn.number >= 3 and turn.ttft_s is not None)
    good = sum(turn.ttft_s is not None and turn.ttft_s <= TTFT_LIMIT_S for turn in turns)
    evicted = grown["preempted"] + grown["prefixes"]
    p99 = later[min(len(later) - 1, int(0.99 * len(later)))] if later else float("nan")
    p50 = later[len(later) // 2] if later else float("nan")
    yield (
        f"{1000 * evicted / requests:8.1f} ({grown['preempted']:.0f} + {grown['prefixes']:.0f} of {requests:.0f}; "
        f"{grown['others']:.0f} moved)  {p50:6.2f} {p99:6.2f} ({len(later)})  "
        f"{100 * good / max(1, len(turns)):6.1f} % of {len(turns)} = {good / (seconds / 3 - 10) / len(runs):.2f}/s"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=330.0)
    parser.add_argument("--small", type=float, default=0.5, help="share of the memory that the small engines may use")
    options = parser.parse_args()
    seconds = options.seconds
    runs: dict[str, list[Run]] = {"without": [], "with": []}
    print("control  evictions per 1,000 (preempted + prefixes of requests)  TTFT of turns >= 3: P50 P99  goodput")
    for seed in range(options.seeds):
        with ThreadPoolExecutor(len(runs)) as pool:
            begun = {name: pool.submit(live, seed, seconds, act=name == "with", small=options.small) for name in runs}
        for name, future in begun.items():
            runs[name].append(future.result())
            for row in rows(runs[name][-1:], seconds):
                print(f"{name:8} {row}  seed {seed}", flush=True)
    for name, these in runs.items():
        for row in rows(these, seconds):
            print(f"{name:8} {row}  all", flush=True)
    for name, these in runs.items():
        for seed, run in enumerate(these):
            for reason in (*run.levels, *run.named[:2]):
                print(f"    {name}, seed {seed}: {reason}", flush=True)


if __name__ == "__main__":
    main()
