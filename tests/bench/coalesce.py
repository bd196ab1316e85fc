"""Prints what coalescing does to streams: python -m tests.bench.coalesce [--streams 40] [--tokens 256] [--seed 1]

An emulated engine (Llama-3.1-8B on an L40S, slowed to some 32 tokens a second a stream) sends its tokens once as they are
made and once in bursts, a second's tokens at once. The same requests go through the gateway's process in a lane that passes on what comes and
in lanes that coalesce, one after the other; a client on the same machine measures with the stopwatch that `fleetctl load` has, and
compares every answer's text with the one of the lane that does not coalesce.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from fleetctl import codec
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.stopwatch import RequestStopwatch
from fleetctl.model.gateway import RouteLane, RouteReplica, RoutingTable
from fleetctl.model.profile import CoalesceSpec, LaneMatch
from fleetctl.model.slo import LaneSlo
from fleetctl.paths import FleetPaths
from tests.emulator.engine_process import NAME, EngineProcess

LANES: dict[str, CoalesceSpec | None] = {
    "as they come": None,
    "4 within 60ms": CoalesceSpec(tokens=4, within_s=0.06),
    "4 within 125ms": CoalesceSpec(tokens=4, within_s=0.125),
}
_SPEED = "0.7"
_SPREAD_S = 2.0  # the streams of a lane begin within this


@dataclass
class Measured:
    """One lane's streams."""

    accounts: LaneAccounts
    texts: dict[int, str] = field(default_factory=dict)
    whole: int = 0
    cpu_s: float = 0.0


def lane_name(name: str) -> str:
    return name.replace(" ", "-")


def table(port: int) -> RoutingTable:
    """Return a lane each, with the same engine."""
    lanes = tuple(
        RouteLane(name=lane_name(name), match=LaneMatch(), slo=LaneSlo(targets=()), max_wait_s=30.0, coalesce=rule)
        for name, rule in LANES.items()
    )
    replicas = tuple(
        RouteReplica(
            id=f"{lane.name}-1", lane=lane.name, host="127.0.0.1", port=port, in_rotation=True, concurrency_max=256,
            prefill_tokens_per_s=20_000.0, continues=True,
        )
        for lane in lanes
    )  # fmt: skip
    return RoutingTable(fleet="bench", version=1, model=NAME, lanes=lanes, replicas=replicas)


def start_gateway(port: int, engine_port: int, where: Path) -> subprocess.Popen[bytes]:
    os.environ.update({"XDG_STATE_HOME": str(where / "state"), "XDG_RUNTIME_DIR": str(where)})
    paths = FleetPaths(fleet="bench")
    paths.make()
    paths.routing_table.write_bytes(codec.encode(table(engine_port)))
    command = [sys.executable, "-m", "fleetctl.gateway", "bench", "--port", str(port)]
    return subprocess.Popen(command, start_new_session=True)


async def stream(http: aiohttp.ClientSession, url: str, lane: str, number: int, tokens: int, found: Measured) -> None:
    body = {
        "model": NAME, "stream": True, "max_tokens": tokens, "ignore_eos": True, "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": f"Say it {number} times."}],
    }  # fmt: skip
    watch = RequestStopwatch(found.accounts, SYSTEM_CLOCK.monotonic_s())
    counted, pieces, rest = 0, [], b""
    async with http.post(f"{url}/v1/chat/completions", json=body, headers={"x-fleetctl-lane": lane}) as response:
        async for data in response.content.iter_any():
            lines = (rest + data).split(b"\n")
            rest, now_s = lines.pop(), SYSTEM_CLOCK.monotonic_s()
            words = []
            for line in lines:
                if line == b"data: [DONE]":
                    found.whole += 1
                elif line.startswith(b"data:"):
                    event: dict[str, Any] = json.loads(line[5:])
                    counted = (event.get("usage") or {}).get("completion_tokens", counted)
                    words += [c["delta"].get("content") or "" for c in event["choices"]]
            new = [word for word in words if word]
            pieces += new
            if new:
                watch.tokens(now_s, len(new))
    found.texts[number] = "".join(pieces)
    ended_s = SYSTEM_CLOCK.monotonic_s()
    uncounted = counted - watch.token_count
    watch.stop(ended_s, Ending.COMPLETE, is_stream=True, prompt_tokens=0, output_tokens_uncounted=uncounted)


async def measure(url: str, name: str, gateway: psutil.Process, arguments: argparse.Namespace) -> Measured:
    found = Measured(LaneAccounts(LaneSlo(targets=()), now_s=SYSTEM_CLOCK.monotonic_s()))
    rng = random.Random(arguments.seed)
    before_s = sum(gateway.cpu_times()[:2])
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=300)) as http, asyncio.TaskGroup() as group:
        for number in range(arguments.streams):
            await SYSTEM_CLOCK.sleep(rng.uniform(0.0, 2.0 * _SPREAD_S / arguments.streams))
            group.create_task(stream(http, url, lane_name(name), number, arguments.tokens, found))
    found.cpu_s = sum(gateway.cpu_times()[:2]) - before_s
    return found


def row(name: str, found: Measured, plain: Measured) -> str:
    now_s = SYSTEM_CLOCK.monotonic_s()
    found.accounts.fold(now_s)
    stats = found.accounts.windows.lifetime()
    streams, ttft, e2e = stats.streams.figures(stats.stream_gaps().summary()), stats.ttft.summary(), stats.e2e.summary()
    gap = streams.gap
    same = sum(found.texts[number] == text for number, text in plain.texts.items())
    gaps = " / ".join(f"{1e3 * each:.0f}" for each in (gap.p50_s, gap.p95_s, gap.p99_s, gap.max_s))
    cells = (
        name, f"{found.whole} of {len(found.texts)}", f"{same} of {len(plain.texts)}", f"{streams.tokens:,}", f"{streams.chunks:,}",
        f"{streams.tokens_per_chunk or 0:.1f}", gaps, f"{streams.stalled_answers} of {streams.answers}", str(streams.stalls),
        f"{1e3 * ttft.p50_s:.0f} / {1e3 * ttft.p99_s:.0f}", f"{e2e.p50_s:.2f}", f"{1e6 * found.cpu_s / max(1, streams.tokens):.1f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


async def run(url: str, gateway: psutil.Process, arguments: argparse.Namespace) -> None:
    async with aiohttp.ClientSession() as http, asyncio.timeout(60):
        while True:
            try:
                async with http.get(f"{url}/health") as response:
                    if response.status == 200:
                        break
            except aiohttp.ClientError:
                pass  # it is starting; the timeout ends this
            await SYSTEM_CLOCK.sleep(0.1)
    print(
        "| lane | whole | same text | tokens | chunks | tokens a chunk | gaps P50 / P95 / P99 / longest, ms | answers with a stall "
        "| stalls | TTFT P50 / P99, ms | e2e P50, s | gateway CPU, us a token |\n|" + "---|" * 12
    )
    plain: Measured | None = None
    for name in LANES:
        found = await measure(url, name, gateway, arguments)
        plain = plain or found
        print(row(name, found, plain), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for title, burst in (("tokens as they are made", "0"), ("a second's tokens at once", "1")):
        with tempfile.TemporaryDirectory() as place:
            where = Path(place)
            engine = EngineProcess(where, "--speed", _SPEED, "--seed", str(arguments.seed), "--stream-burst-s", burst)
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            gateway = start_gateway(port, engine.port, where)
            try:
                print(
                    f"\n{title}: {arguments.streams} streams of {arguments.tokens} tokens a lane, seed {arguments.seed}\n"
                )
                asyncio.run(run(f"http://127.0.0.1:{port}", psutil.Process(gateway.pid), arguments))
            finally:
                gateway.terminate()
                gateway.wait(30)
                engine.close()


if __name__ == "__main__":
    main()
