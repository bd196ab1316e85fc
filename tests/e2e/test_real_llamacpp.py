"""A fleet on llama.cpp's own server: read, drained, killed, hung, ended, and no token of its streams is lost or doubled.

It is the server out of PyPI's xllamacpp, and again with a `llama-server` where one is on the PATH: no registry of packages
has that one ready made.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import shutil
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity
from tests.e2e.fleet import Home, in_rotation, lane_of, live_replicas, replica_of
from tests.engines import tiny_gguf
from tests.engines.environment import engine_env
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psutil

    from fleetctl.model.status import FleetStatus

pytestmark = [pytest.mark.e2e, pytest.mark.minutes, pytest.mark.engines, pytest.mark.timeout(600)]

FLEET = "gguf"
REPLICAS = 2
START_S = 240.0  # under two seconds each when nothing else runs
BACK_S = 120.0
TOKENS = 4000  # four at once, with prompts within a slot; a build for any CPU takes minutes for 15,000
STREAMS = 4
PROMPT = "the quick brown fox"

PROFILE = """\
apiVersion: fleetctl/v1
name: {fleet}
model: {{id: tiny, path: {model}}}
engine: llamacpp
provider: local
workload: {{peak_rps: 2, prompt_tokens: {{p50: 60, p99: 900}}, output_tokens: {{p50: 16, p99: 64}}}}
lanes:
  all:
    slo: {{ttft: {{p99: 10s}}, itl: {{p99: 5s}}}}
    max_wait: 60s
    replicas: {replicas}
    launch: {{max_num_seqs: 4, max_model_len: 16384, extra_args: [--threads, "1"]}}
capacity: {{gpus: [L40S]}}
gateway: {{port: {port}, stall_timeout: 4s}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFleet:
    """The fleet under test."""

    home: Home
    port: int

    def http(self) -> httpx.AsyncClient:
        """Return a client that waits as long as it takes."""
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=180.0, trust_env=False)

    async def until(self, what: str, holds: Callable[[FleetStatus], bool], *, timeout_s: float = BACK_S) -> FleetStatus:
        """Return the first status for which `holds`."""
        deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
        while True:
            seen = await asyncio.to_thread(self.home.status, FLEET)
            if holds(seen):
                return seen
            assert SYSTEM_CLOCK.monotonic_s() < deadline_s, f"not {what} in {timeout_s} s: {seen}\n{self.home.logs()}"
            await SYSTEM_CLOCK.sleep(0.5)

    def process_of(self, replica_id: str) -> psutil.Process:
        """Return a replica's one process."""
        (process,) = (each for each in self.home.processes() if replica_of(each) == replica_id)
        return process


PROGRAMS = ("xllamacpp", *filter(None, (shutil.which("llama-server"),)))


@pytest.fixture(scope="module", params=PROGRAMS)
def fleet(request: pytest.FixtureRequest) -> Iterator[GgufFleet]:
    """Bring the fleet up; whatever is left at the end is killed."""
    faulthandler.cancel_dump_traceback_later()
    program = str(engine_env() / "bin" / "python") if request.param == "xllamacpp" else request.param
    # A socket's path holds 108 bytes; pytest's own temporary directories are too deep for that.
    root = Path(tempfile.mkdtemp(prefix="fg-"))
    home = Home(root=root, env={"FLEETCTL_LLAMACPP": program})
    port = free_port()
    model = tiny_gguf.write(root / "tiny.gguf")
    (root / "gguf.yaml").write_text(PROFILE.format(fleet=FLEET, model=model, port=port, replicas=REPLICAS))
    try:
        home.fleetctl("up", str(root / "gguf.yaml"), "--yes", "--timeout", f"{START_S:.0f}s", timeout_s=START_S + 60)
        yield GgufFleet(home=home, port=port)
    finally:
        home.kill_everything()
        shutil.rmtree(root, ignore_errors=True)


@dataclass(slots=True)
class Streamed:
    """A stream, and all that came of it."""

    begun: asyncio.Event
    replica: str = ""
    text: str = ""
    finish: str = ""
    completion_tokens: int = 0
    is_done: bool = False

    async def read(self, http: httpx.AsyncClient) -> None:
        """Read it to its end; an error in it raises."""
        body = {
            "model": "tiny", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": TOKENS, "temperature": 0,
            "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        pieces = []
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.status_code == 200, await answer.aread()
            self.replica = answer.headers["x-fleetctl-replica"]
            async for line in answer.aiter_lines():
                if line == "data: [DONE]":
                    self.is_done = True
                elif line.startswith("data: "):
                    event = json.loads(line[6:])
                    assert "error" not in event, event
                    self.completion_tokens = (event.get("usage") or {}).get("completion_tokens", self.completion_tokens)
                    for choice in event["choices"]:
                        pieces.append(choice["delta"].get("content") or "")
                        self.finish = choice["finish_reason"] or self.finish
                    if sum(map(len, pieces[:64])) > 32:
                        self.begun.set()
        self.text = "".join(pieces)


async def struck(fleet: GgufFleet, strike: Callable[[str], None]) -> list[Streamed]:
    """Strike the replica of the first of some streams while they run; return them once they are whole."""
    streams = [Streamed(asyncio.Event()) for _ in range(STREAMS)]
    async with fleet.http() as http, asyncio.TaskGroup() as tasks:
        for stream in streams:
            tasks.create_task(stream.read(http))
        async with asyncio.timeout(60):
            await asyncio.gather(*(stream.begun.wait() for stream in streams))
        assert not any(stream.is_done for stream in streams)
        strike(streams[0].replica)
    for stream in streams:
        # A token is a character here, so one that is lost or doubled shows.
        assert (len(stream.text), stream.completion_tokens, stream.finish) == (TOKENS, TOKENS, "length")
        assert stream.is_done
    return streams


async def test_its_own_figures_are_read_and_what_it_does_not_say_is_unknown(fleet: GgufFleet) -> None:
    before = await fleet.until("ready", lambda status: lane_of(status, "all").ready == REPLICAS)
    async with fleet.http() as http:
        body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12}
        answers = [(await http.post("/v1/completions", json=body)).json() for _ in range(6)]
    assert {answer["usage"]["completion_tokens"] for answer in answers} == {12}

    def counted(status: FleetStatus) -> bool:
        now, then = (sum(r.engine.output_tokens for r in live_replicas(each)) for each in (status, before))
        return now - then >= 6 * 12

    after = await fleet.until("counted", counted)
    for replica in live_replicas(after):
        assert replica.engine.validity is Validity.OK
        assert replica.engine.kv_usage is None
    shown = fleet.home.fleetctl("status", FLEET, "-o", "wide")
    assert "KV" in shown


async def test_a_killed_replica_is_replaced_and_its_streams_go_on_token_for_token(fleet: GgufFleet) -> None:
    before = await fleet.until("ready", lambda status: lane_of(status, "all").ready == REPLICAS)
    streams = await struck(fleet, lambda victim: os.kill(fleet.process_of(victim).pid, signal.SIGKILL))
    assert {stream.text for stream in streams} >= {streams[0].text}
    ids = {replica.record.id for replica in live_replicas(before)}
    after = await fleet.until(
        "replaced",
        lambda status: lane_of(status, "all").ready == REPLICAS and {r.record.id for r in live_replicas(status)} != ids,
    )
    assert streams[0].replica not in {replica.record.id for replica in live_replicas(after)}


async def test_a_replica_that_stands_still_is_out_and_its_streams_go_on(fleet: GgufFleet) -> None:
    await fleet.until("ready", lambda status: lane_of(status, "all").ready == REPLICAS)
    streams = await struck(fleet, lambda victim: fleet.process_of(victim).suspend())
    victim = streams[0].replica
    after = await fleet.until(
        "replaced",
        lambda status: (
            lane_of(status, "all").ready == REPLICAS and victim not in {r.record.id for r in live_replicas(status)}
        ),
    )
    assert victim not in in_rotation(fleet.home)
    assert [r.record.state for r in after.replicas if r.record.id == victim] in ([], [ReplicaState.FAILED])


async def test_a_drained_replica_finishes_what_it_runs(fleet: GgufFleet) -> None:
    await fleet.until("ready", lambda status: lane_of(status, "all").ready == REPLICAS)
    drains = []

    def drain(victim: str) -> None:
        drains.append(fleet.home.start("drain", victim, "--fleet", FLEET, "--yes", "--timeout", "5m"))

    await struck(fleet, drain)
    out, err = await asyncio.to_thread(drains[0].communicate, timeout=BACK_S)
    assert drains[0].returncode == 0, (out, err)


def test_what_keeps_it_from_starting_is_said_in_its_own_words(fleet: GgufFleet) -> None:
    root = fleet.home.root
    whole = (root / "tiny.gguf").read_bytes()
    (root / "short.gguf").write_bytes(whole[: len(whole) // 2])  # its header is whole, so that a plan is made
    text = PROFILE.format(fleet="broken", model=root / "short.gguf", port=free_port(), replicas=1)
    (root / "broken.yaml").write_text(text)
    ran = fleet.home.run("up", str(root / "broken.yaml"), "--yes", "--timeout", "60s")
    fleet.home.fleetctl("down", "broken", "--yes", timeout_s=BACK_S)
    assert ran.code != 0
    assert "model is corrupted or incomplete" in ran.err, ran.err


def test_down_leaves_nothing_behind(fleet: GgufFleet) -> None:
    fleet.home.fleetctl("down", FLEET, "--yes", "--timeout", "2m", timeout_s=BACK_S + 60)
    assert fleet.home.processes() == []
    assert fleet.home.sockets() == []
