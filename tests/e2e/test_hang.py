"""Engines that hang while their fleet is in use: out of rotation in seconds, replaced, and no stream is lost.

In both forms, a process that stands still and an engine that does behind living routes; with one replica and with three.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import aiohttp
import psutil
import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.replica import ReplicaState
from tests.bench.stream_survival import Stream, wrong_with
from tests.e2e.fleet import in_rotation, lane_of, replica_of
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.status import FleetStatus, LaneStatus
    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FLEET = "hang"
LANES = {"lone": 1, "three": 3}
OUT_S_MAX = 25.0
REPLACED_S_MAX = 120.0  # a substitute boots in 2 s, and the hung one is killed after some 15 s; other tests run beside
TOKENS = 1200
_PROFILE = """\
apiVersion: fleetctl/v1
name: {fleet}
model: {{id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}}
engine: emulator
emulator: {{startup: 1s, speed: 2}}
provider: local
workload: {{peak_rps: 1, prompt_tokens: {{p50: 100, p99: 400}}, output_tokens: {{p50: 129, p99: 601}}}}
slo: {{objective: 99%, window: 7d}}
lanes:
  lone:
    match: {{uncached_prompt_tokens: "< 512"}}
    slo: {{ttft: {{p99: 2s}}, itl: {{p99: 50ms}}}}
    max_wait: 30s
    replicas: 1
    launch: {{max_model_len: 8192}}
  three:
    slo: {{ttft: {{p99: 2s}}, itl: {{p99: 80ms}}}}
    max_wait: 30s
    replicas: 3
    launch: {{max_model_len: 8192}}
capacity: {{gpus: [L40S], max_cost_per_hour: $60, max_nodes: 24}}
gateway: {{port: {port}}}
"""


@pytest.fixture(scope="module")
def port(home: Home) -> Iterator[int]:
    port = free_port()
    profile = home.root / "hang.yaml"
    profile.write_text(_PROFILE.format(fleet=FLEET, port=port))
    home.fleetctl("up", str(profile), "--yes", timeout_s=240.0)
    yield port
    home.run("down", FLEET, "--yes")


@pytest.mark.parametrize("form", ["process", "engine"])
async def test_a_hung_replica_is_out_within_seconds_and_replaced_and_its_streams_go_on(
    home: Home, port: int, form: str
) -> None:
    timeout = aiohttp.ClientTimeout(total=None, sock_read=120.0)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        faults = await asyncio.gather(*(strike(home, http, port, lane, form) for lane in LANES))
    assert faults == [""] * len(LANES)


async def strike(home: Home, http: aiohttp.ClientSession, port: int, lane: str, form: str) -> str:
    """Hang one of the lane's replicas under streams, and see it replaced. Return what is wrong with their answers."""
    streams = [OpenStream(lane, seed) for seed in range(4)]
    reading = [asyncio.create_task(stream.read(http, port)) for stream in streams]
    async with asyncio.timeout(30.0):
        await asyncio.gather(*(stream.begun.wait() for stream in streams))
    victim = streams[0].replica
    processes = [process for process in home.processes() if replica_of(process) == victim]
    row = in_rotation(home)[victim]
    if form == "engine":
        url = f"http://{row['host']}:{row['port']}/emulator/faults"
        async with http.post(url, json={"fault": "hang-mid-stream:1"}) as response:
            response.raise_for_status()
    else:
        for process in processes:
            os.kill(process.pid, signal.SIGSTOP)
    begun_s = SYSTEM_CLOCK.monotonic_s()
    while victim in in_rotation(home):
        assert SYSTEM_CLOCK.monotonic_s() - begun_s < OUT_S_MAX, f"{lane}: still in rotation"
        await SYSTEM_CLOCK.sleep(0.05)
    seen = lane_of(await asyncio.to_thread(home.status, FLEET), lane)
    assert seen.lost_since is not None or seen.ready == LANES[lane], seen
    while not is_whole(await asyncio.to_thread(home.status, FLEET), lane, victim):
        assert SYSTEM_CLOCK.monotonic_s() - begun_s < REPLACED_S_MAX, f"{lane}: not whole again"
        await SYSTEM_CLOCK.sleep(0.5)
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    return next((fault for fault in await asyncio.gather(*reading) if fault), "")


def is_whole(status: FleetStatus, lane: str, victim: str) -> bool:
    """Whether the lane has all its replicas and the hung one is gone."""
    seen: LaneStatus = lane_of(status, lane)
    ended = all(r.record.state is ReplicaState.FAILED for r in status.replicas if r.record.id == victim)
    return seen.ready == LANES[lane] and ended


class OpenStream:
    """A stream whose whole text is known."""

    def __init__(self, lane: str, seed: int) -> None:
        self.begun = asyncio.Event()
        self.replica = ""
        self._stream = Stream(lane=lane, tokens=TOKENS, seed=seed, is_chat=True, usage={"include_usage": True})

    async def read(self, http: aiohttp.ClientSession, port: int) -> str:
        """Read it to its end; return what is wrong with it."""
        stream = self._stream
        body = {
            "model": "meta-llama/Llama-3.1-8B-Instruct", "seed": stream.seed, "stream": True, "ignore_eos": True,
            "max_tokens": TOKENS, "min_tokens": TOKENS, "stream_options": stream.usage,
            "messages": [{"role": "user", "content": "Tell me about lanes."}],
        }  # fmt: skip
        url, headers = f"http://127.0.0.1:{port}/v1/chat/completions", {"x-fleetctl-lane": stream.lane}
        async with http.post(url, json=body, headers=headers) as response:
            self.replica = response.headers.get("x-fleetctl-replica", "")
            self.begun.set()
            if response.status != 200:
                return f"{response.status}: {await response.text()}"
            events = [line[5:].strip() async for line in response.content if line.startswith(b"data:")]
        return wrong_with(stream, events)
