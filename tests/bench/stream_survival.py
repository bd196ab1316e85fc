"""Take replicas from under streams of every length, lane and engine flavour: is any answer lost, wrong or miscounted?

    python -m tests.bench.stream_survival --kills 20 --notices 20 --stops 4 --seed 1

Every stream asks for a length of its own (40 to --tokens-max) by a seed of its own, so that its whole text is known: the
emulator's token k is a function of the seed and k. A stream is good with a 200, that text, `length` at its very end, the
usage it asked for, and [DONE]. Replicas are killed (kill -9), given notice of 120, 30 and 0 s, and stopped: every second
one as a process (SIGSTOP), the others as an engine whose routes go on answering. Strikes overlap, in all lanes at once; only
lanes with another sound replica in rotation are struck. Everything lives in a private directory and is taken down at the end. Exits 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from fleetctl_emulator.tokens import AnswerText
from tests.e2e.fleet import Home
from tests.ports import free_port

FLEET = "survival"
LANES = {"short": "vllm", "long": "sglang", "batch": "tgi"}
GAP_S_MAX = 5.0
OUT_S_MAX = 10.0
_PROFILE = """\
apiVersion: fleetctl/v1
name: {fleet}
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}}
engine: emulator
emulator: {{startup: 1s, speed: {speed}}}
provider: local
workload: {{peak_rps: 3, prompt_tokens: {{p50: 100, p99: 400}}, output_tokens: {{p50: 129, p99: 601}}}}
slo: {{objective: 99%, window: 7d}}
lanes:
  short:
    match: {{uncached_prompt_tokens: "< 512"}}
    slo: {{ttft: {{p99: 2s}}, itl: {{p99: 50ms}}}}
    max_wait: 30s
    replicas: {{min: 3, max: 5}}
    launch: {{max_model_len: 16384, extra_args: [--stream-interval, "3"]}}
  long:
    slo: {{ttft: {{p99: 2s}}, itl: {{p99: 80ms}}}}
    max_wait: 30s
    replicas: {{min: 2, max: 4}}
    emulator: {{flavour: sglang}}
    launch: {{max_model_len: 16384}}
  batch:
    match: {{batch: true}}
    slo: {{completion: {{p95: 4h}}}}
    max_wait: 30m
    interruptible: true
    replicas: {{min: 2, max: 3}}
    spot: all
    emulator: {{flavour: tgi}}
    launch: {{max_model_len: 16384}}
capacity: {{gpus: [L40S], max_cost_per_hour: $60, max_nodes: 24}}
control: {{drain_timeout: 10s}}
gateway: {{port: {port}}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What is struck, and under how many streams."""

    kills: int = 20
    notices: int = 20
    stops: int = 4
    seed: int = 1
    streams: int = 8
    tokens_max: int = 8000
    speed: float = 4.0
    pause_s: float = 4.0  # between two strikes
    at_once: int = 3  # replicas that are struck and not yet out of rotation

    def strikes(self, rng: random.Random) -> list[str]:
        """Return every strike, in an order of the seed's."""
        notices = [f"notice {seconds}s" for seconds in itertools.islice(itertools.cycle((120, 30, 0)), self.notices)]
        stops = [("stop process", "stop engine")[number % 2] for number in range(self.stops)]
        found = ["kill"] * self.kills + notices + stops
        rng.shuffle(found)
        return found


@dataclass(slots=True)
class Stream:
    """One stream and what became of it."""

    lane: str
    tokens: int
    seed: int
    is_chat: bool
    usage: dict[str, bool] | None
    fault: str = ""
    gap_s: float = 0.0
    gap_until: str = ""  # when it ended, on the clock of `fleetctl events`


@dataclass(slots=True)
class Report:
    """The table at the end."""

    streams: list[Stream] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    out_s: dict[str, list[float]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0  # from the first strike to the last

    @property
    def is_good(self) -> bool:
        """Whether every bar is met."""
        slow = any(
            seconds > OUT_S_MAX for seconds in self.out_s.get("stop process", []) + self.out_s.get("stop engine", [])
        )
        return not (self.faults or slow or self.gaps_over or any(stream.fault for stream in self.streams))

    @property
    def gaps_over(self) -> list[Stream]:
        """Streams that stood still for longer than the bar."""
        return [stream for stream in self.streams if stream.gap_s > GAP_S_MAX]

    def lines(self) -> list[str]:
        """Return the table."""
        lines = [f"{'lane':8}{'engine':9}{'streams':>8}{'tokens':>9}{'failed':>8}{'gap max s':>11}{'over 5 s':>10}"]
        for lane, flavour in LANES.items():
            own = [stream for stream in self.streams if stream.lane == lane]
            failed, over = sum(bool(s.fault) for s in own), sum(s.gap_s > GAP_S_MAX for s in own)
            tokens, gap_s = sum(s.tokens for s in own), max((s.gap_s for s in own), default=0.0)
            lines.append(f"{lane:8}{flavour:9}{len(own):8}{tokens:9}{failed:8}{gap_s:11.2f}{over:10}")
        for name, count in sorted(self.struck.items()):
            seconds = sorted(self.out_s.get(name, []))
            out = f"median {seconds[len(seconds) // 2]:.1f} s, max {seconds[-1]:.1f} s" if seconds else "-"
            lines.append(f"{name}: {count}; out of rotation: {out}")
        lines.append(f"{sum(self.struck.values())} strikes in {self.seconds / 60:.1f} min")
        lines += [f"FAILED {s.lane} {s.tokens} tokens, seed {s.seed}: {s.fault}" for s in self.streams if s.fault]
        lines += [
            f"SLOW   {s.lane} {s.tokens} tokens, seed {s.seed}: {s.gap_s:.1f} s until {s.gap_until}"
            for s in self.gaps_over
        ]
        return lines + self.faults


class Survival:
    """One fleet, its streams, and what strikes it."""

    def __init__(self, home: Home, campaign: Campaign) -> None:
        self.home = home
        self.campaign = campaign
        self.rng = random.Random(campaign.seed)
        self.report = Report()
        self.port = free_port()
        self.is_over = False
        self.victims: set[str] = set()

    def up(self) -> None:
        """Bring the fleet up."""
        profile = self.home.root / "survival.yaml"
        profile.write_text(_PROFILE.format(fleet=FLEET, port=self.port, speed=self.campaign.speed))
        self.home.fleetctl("up", str(profile), "--yes", timeout_s=240.0)

    async def run(self) -> Report:
        """Strike until nothing is left to strike with; let the streams come to their end."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=120.0)
        async with aiohttp.ClientSession(timeout=timeout) as http, asyncio.TaskGroup() as group:
            for number in range(self.campaign.streams):
                group.create_task(self._keep_requesting(http, random.Random(f"{self.campaign.seed}/{number}")))
            await asyncio.sleep(self.campaign.pause_s)
            begun = time.monotonic()
            async with asyncio.TaskGroup() as strikes:
                slots = asyncio.Semaphore(self.campaign.at_once)
                for strike in self.campaign.strikes(self.rng):
                    await slots.acquire()
                    struck = strikes.create_task(self._strike(http, strike))
                    struck.add_done_callback(lambda _: slots.release())
                    await asyncio.sleep(self.campaign.pause_s)
            self.report.seconds = time.monotonic() - begun
            self.is_over = True
        return self.report

    # Streams.

    async def _keep_requesting(self, http: aiohttp.ClientSession, rng: random.Random) -> None:
        while not self.is_over:
            usages = (None, {"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True})
            stream = Stream(
                lane=rng.choice(list(LANES)),
                tokens=round(40 * (self.campaign.tokens_max / 40) ** rng.random()),
                seed=rng.randrange(10**6),
                is_chat=rng.random() < 0.7,
                usage=rng.choice(usages),
            )
            self.report.streams.append(stream)
            try:
                stream.fault = await self._follow(http, stream)
            except (aiohttp.ClientError, TimeoutError, json.JSONDecodeError) as exc:
                stream.fault = f"{type(exc).__name__}: {exc}"
            if stream.fault:
                print(f"{time.strftime('%H:%M:%S')} FAILED {stream}", file=sys.stderr)

    async def _follow(self, http: aiohttp.ClientSession, stream: Stream) -> str:
        body: dict[str, Any] = {
            "model": "meta-llama/Llama-3.1-8B-Instruct", "seed": stream.seed, "stream": True, "ignore_eos": True,
            "max_tokens": stream.tokens, "min_tokens": stream.tokens,
        }  # fmt: skip
        if stream.usage:
            body["stream_options"] = stream.usage
        question = "Tell me about lanes. "
        body |= {"messages": [{"role": "user", "content": question}]} if stream.is_chat else {"prompt": question}
        path = "/v1/chat/completions" if stream.is_chat else "/v1/completions"
        headers = {"x-fleetctl-lane": stream.lane}
        events: list[bytes] = []
        last = 0.0
        async with http.post(f"http://127.0.0.1:{self.port}{path}", json=body, headers=headers) as response:
            if response.status != 200:
                return f"status {response.status}: {(await response.text())[:200]}"
            async for line in response.content:
                now = time.monotonic()
                if last and now - last > stream.gap_s:
                    stream.gap_s, stream.gap_until = now - last, f"{time.strftime('%H:%M:%S')}"
                last = now
                if line.startswith(b"data:"):
                    events.append(line[5:].strip())
        return wrong_with(stream, events)

    # Strikes.

    async def _strike(self, http: aiohttp.ClientSession, strike: str) -> None:
        victim = await self._victim(spot=strike.startswith("notice"))
        if victim is None:
            self.report.faults.append(f"{strike}: no lane had two replicas in rotation within a minute")
            return
        replica, port = victim
        begun = time.monotonic()
        if strike.startswith("notice"):
            await asyncio.to_thread(
                self.home.fleetctl, "interrupt", replica, "--notice", strike.split()[1], "--yes", "-f", FLEET
            )
        elif strike == "stop engine":
            async with http.post(
                f"http://127.0.0.1:{port}/emulator/faults", json={"fault": "hang-mid-stream:1"}
            ) as response:
                response.raise_for_status()
        else:
            self._signal(replica, signal.SIGKILL if strike == "kill" else signal.SIGSTOP)
        self.report.struck[strike] += 1
        while replica in self._rows() and time.monotonic() - begun < 30.0:  # noqa: ASYNC110  # a file has no event
            await asyncio.sleep(0.05)
        self.report.out_s.setdefault(strike, []).append(time.monotonic() - begun)
        seconds = time.monotonic() - begun
        print(f"{time.strftime('%H:%M:%S')} {strike} {replica}: out of rotation after {seconds:.1f} s", file=sys.stderr)

    async def _victim(self, *, spot: bool) -> tuple[str, int] | None:
        """Return a replica in rotation whose lane has another, and its port."""
        for _ in range(120):
            rows = self._rows()
            sound = [row for row in rows.values() if row["id"] not in self.victims]
            lanes = Counter(row["lane"] for row in sound)
            found = [row for row in sound if lanes[row["lane"]] > 1]
            if spot and found:
                seen = await asyncio.to_thread(self.home.query, "status", FLEET)
                spots = {r["record"]["id"] for r in seen["replicas"] if r["record"]["market"] == "spot"}
                rows = self._rows()  # others were struck meanwhile
                sound = [row for row in rows.values() if row["id"] not in self.victims]
                lanes = Counter(row["lane"] for row in sound)
                found = [row for row in sound if row["id"] in spots and lanes[row["lane"]] > 1]
            if found:
                row = self.rng.choice(found)
                self.victims.add(row["id"])
                return row["id"], row["port"]
            await asyncio.sleep(0.5)
        return None

    def _rows(self) -> dict[str, Any]:
        """Return the routing table's rows of replicas in rotation."""
        try:
            (path,) = self.home.root.rglob("routing-table.json")
            table = json.loads(path.read_bytes())
        except (ValueError, OSError):
            return {}
        return {row["id"]: row for row in table["replicas"] if row["in_rotation"]}

    def _signal(self, replica: str, number: signal.Signals) -> None:
        for process in self.home.processes():
            try:
                is_victim = process.environ().get("FLEETCTL_REPLICA") == replica
            except (psutil.Error, OSError):
                continue
            if is_victim:
                os.kill(process.pid, number)


def wrong_with(stream: Stream, events: list[bytes]) -> str:
    """Return what is wrong with a stream's events; empty: nothing."""
    if not events or events[-1] != b"[DONE]":
        return f"no [DONE]: {events[-1][:200] if events else b''!r}"
    read = [json.loads(event) for event in events[:-1]]
    choices = [choice for event in read for choice in event.get("choices", ())]
    text = "".join(c.get("text") or (c.get("delta") or {}).get("content") or "" for c in choices)
    wanted = AnswerText(str(stream.seed)).tokens(0, stream.tokens).decode()
    if text != wanted:
        same = next(
            (at for at, (a, b) in enumerate(zip(text, wanted, strict=False)) if a != b), min(len(text), len(wanted))
        )
        return f"wrong text from character {same}: {len(text)} of {len(wanted)} characters"
    finishes = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    if finishes != ["length"]:
        return f"finish reasons {finishes}"
    usages = [event["usage"] for event in read if event.get("usage")]
    if not stream.usage:
        return f"usage nobody asked for: {usages[-1]}" if usages else ""
    if not usages or usages[-1]["completion_tokens"] != stream.tokens:
        return f"usage {usages[-1:]} of {stream.tokens} tokens"
    prompts = {usage["prompt_tokens"] for usage in usages}
    return "" if len(prompts) == 1 else f"prompt tokens {sorted(prompts)}"


def survive(home: Home, campaign: Campaign) -> Report:
    """Run a campaign on a fleet of its own; return its report."""
    survival = Survival(home, campaign)
    survival.up()
    try:
        report = asyncio.run(survival.run())
        if not report.is_good:
            print(home.run("events", FLEET, "--limit", "1000").out, file=sys.stderr)
        return report
    finally:
        home.run("down", FLEET, "--yes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("kills", 20),
        ("notices", 20),
        ("stops", 4),
        ("seed", 1),
        ("streams", 8),
        ("tokens-max", 8000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--speed", type=float, default=4.0, help="how many times faster than modelled the engines are")
    parser.add_argument("--pause", type=float, default=4.0, dest="pause_s", help="seconds between two strikes")
    campaign = Campaign(**vars(parser.parse_args()))
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    home = Home(root=root)
    try:
        report = survive(home, campaign)
    finally:
        home.kill_everything()
        shutil.rmtree(root, ignore_errors=True)
    print("\n".join(report.lines()))
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
