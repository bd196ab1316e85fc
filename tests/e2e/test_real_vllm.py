"""The whole house on real engines: two lanes of real vLLM on CPU, through `fleetctl up`, the gateway and `down`."""

from __future__ import annotations

import asyncio
import collections
import faulthandler
import socket
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

from fleetctl import codec
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.journal import JournalEntry
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity
from fleetctl.testing.samples import EPOCH
from tests.e2e.fleet import (
    Home,
    has_ended,
    in_rotation,
    lane_of,
    live_replicas,
    name_of,
    replica_of,
    session_of,
)
from tests.engines.environment import engine_env, offline, option_cache
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    import psutil

    from fleetctl.model.status import FleetStatus

pytestmark = [pytest.mark.e2e, pytest.mark.minutes, pytest.mark.engines, pytest.mark.timeout(1500)]

FLEET = "real"
START_S = 900.0  # three engines at once on two shared cores; 75 s when nothing else runs
SHORT = "the quick brown fox"
LONG = "the quick brown fox jumps over the lazy dog " * 40  # some 450 estimated tokens: over the lane's boundary
REQUESTS = 200
LONG_STREAM_TOKENS = 7000  # some ten seconds, three at once on one core

LOOPING_TOKENS = 2000

PROFILE = """\
apiVersion: fleetctl/v1
name: {fleet}
model: {{id: tiny, path: {model}}}
engine: vllm
provider: local
workload:
  peak_rps: 4
  prompt_tokens: {{p50: 60, p99: 900}}
  output_tokens: {{p50: 16, p99: 64}}
slo: {{objective: 99%, window: 7d}}
lanes:
  short:
    match: {{uncached_prompt_tokens: "< 256"}}
    slo: {{ttft: {{p99: 10s}}, itl: {{p99: 5s}}}}
    max_wait: 60s
    replicas: 2
    launch: &launch
      max_num_seqs: 8
      max_model_len: 8192
      max_num_batched_tokens: 4096
      extra_args: [--enforce-eager, --kv-cache-memory-bytes, 64M]
      env: {env}
  long:
    slo: {{ttft: {{p99: 10s}}, itl: {{p99: 5s}}}}
    max_wait: 60s
    replicas: 1
    generation: {{loop: stop}}
    launch: *launch
capacity: {{gpus: [L40S]}}
gateway: {{port: {port}, stall_timeout: 15s}}
"""
HUNG_OUT_S_MAX = (
    30.0  # engines load beside it here; the bar of 10 s is for a machine of its own (tests/bench/hung_engine.py)
)
HUNG_ENDED_S_MAX = 60.0  # out of rotation, given its time to recover, killed and seen to be gone, on a shared machine


@dataclass(frozen=True, slots=True, kw_only=True)
class RealFleet:
    """The fleet under test."""

    home: Home
    port: int

    def client(self) -> openai.AsyncOpenAI:
        """Return the official client; what fails is not tried again, so that nothing is hidden."""
        return openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{self.port}/v1", api_key="unused", max_retries=0, timeout=180.0
        )

    def status(self) -> FleetStatus:
        """Return what `status -o json` says."""
        return self.home.status(FLEET)

    def wait_for(self, what: str, holds: Callable[[FleetStatus], bool], *, timeout_s: float) -> FleetStatus:
        """Return the first status for which `holds`; fail after `timeout_s`, showing the last one."""
        deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
        while True:
            seen = self.status()
            if holds(seen):
                return seen
            assert SYSTEM_CLOCK.monotonic_s() < deadline_s, f"not {what} in {timeout_s} s: {seen}\n{self.home.logs()}"
            SYSTEM_CLOCK.sleep_blocking(0.5)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFleet]:
    """Bring the fleet up; whatever is left at the end is killed, and named if `down` should have taken it."""
    faulthandler.cancel_dump_traceback_later()
    environment = engine_env()
    root = tmp_path_factory.mktemp("real")
    home = Home(root=root, env={"FLEETCTL_VLLM": str(environment / "bin" / "vllm"), **option_cache()})
    port = free_port()
    profile = root / "real.yaml"
    env = "{" + ", ".join(f'{key}: "{value}"' for key, value in offline().items()) + "}"
    profile.write_text(PROFILE.format(fleet=FLEET, model=environment / "models" / "tiny", port=port, env=env))
    try:
        out = home.fleetctl("up", str(profile), "--yes", "--timeout", f"{START_S:.0f}s", timeout_s=START_S + 60)
        assert out.strip() == f"http://127.0.0.1:{port}/v1"
        yield RealFleet(home=home, port=port)
    finally:
        home.kill_everything()


@pytest.fixture(autouse=True)
def _patience(fleet: RealFleet, request: pytest.FixtureRequest) -> Iterator[None]:
    """Engines take minutes: no stacks of tests that only wait, but every log beside one that failed."""
    faulthandler.cancel_dump_traceback_later()
    failed_before = request.session.testsfailed
    yield
    if request.session.testsfailed > failed_before:
        living = "\n".join(f"{process.pid} {name_of(process)}" for process in fleet.home.processes())
        sys.stderr.write(f"{fleet.home.logs()}\n--- living\n{living}\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedRequest:
    """One completion."""

    lane: str
    replica: str
    finish_reason: str
    output_tokens: int


async def complete(client: openai.AsyncOpenAI, prompt: str, *, stream: bool, **more: Any) -> CompletedRequest:
    """Send one chat completion; whatever goes wrong raises."""
    body: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": prompt}], **more}
    if stream:
        return await complete_streaming(client, body)
    raw = await client.chat.completions.with_raw_response.create(**body)
    completion = raw.parse()
    assert completion.usage is not None
    return CompletedRequest(
        lane=raw.headers["x-fleetctl-lane"],
        replica=raw.headers["x-fleetctl-replica"],
        finish_reason=completion.choices[0].finish_reason,
        output_tokens=completion.usage.completion_tokens,
    )


async def complete_streaming(client: openai.AsyncOpenAI, body: dict[str, Any]) -> CompletedRequest:
    """Read a stream to its end."""
    body = body | {"stream": True, "stream_options": {"include_usage": True}}
    finish_reason, output_tokens = "", 0
    async with client.chat.completions.with_streaming_response.create(**body) as raw:
        replica = raw.headers["x-fleetctl-replica"]
        async for chunk in await raw.parse():
            if chunk.usage is not None:
                output_tokens = chunk.usage.completion_tokens
            if chunk.choices and chunk.choices[0].finish_reason:
                finish_reason = chunk.choices[0].finish_reason
        return CompletedRequest(
            lane=raw.headers["x-fleetctl-lane"],
            replica=replica,
            finish_reason=finish_reason,
            output_tokens=output_tokens,
        )


async def test_two_hundred_completions_of_the_official_client_are_answered_and_counted(fleet: RealFleet) -> None:
    before = fleet.status()
    assert [(lane.name, lane.ready) for lane in before.lanes] == [("short", 2), ("long", 1)]
    slots = asyncio.Semaphore(8)
    async with fleet.client() as client:

        async def one(index: int) -> CompletedRequest:
            async with slots:
                prompt = LONG if index % 4 == 3 else f"{SHORT} {index}"
                return await complete(client, prompt, stream=index % 2 == 0 or index % 8 == 3, max_tokens=16)

        answers = await asyncio.gather(*(one(index) for index in range(REQUESTS)))

    assert len(answers) == REQUESTS
    assert {answer.finish_reason for answer in answers} <= {"stop", "length"}
    assert all(answer.output_tokens > 0 for answer in answers)
    assert collections.Counter(answer.lane for answer in answers) == {"short": 150, "long": 50}
    assert {answer.replica for answer in answers} == {r.record.id for r in live_replicas(before)}
    counted = sum(answer.output_tokens for answer in answers)

    def all_counted(status: FleetStatus) -> bool:
        engines = [replica.engine for replica in live_replicas(status)]
        grown = sum(engine.output_tokens for engine in engines) - sum(
            replica.engine.output_tokens for replica in live_replicas(before)
        )
        return all(engine.validity is Validity.OK for engine in engines) and grown >= counted

    after = fleet.wait_for("counted by the engines' own metrics", all_counted, timeout_s=60)
    for replica in live_replicas(after):
        assert replica.engine.prompt_tokens > 0, replica
    for name, sent in (("short", 150), ("long", 50)):
        traffic = lane_of(after, name).traffic
        assert traffic is not None
        assert traffic.window(300.0).finished >= sent
        assert traffic.window(300.0).ttft.count > 0
    assert "short" in fleet.home.fleetctl("lanes", FLEET)


async def test_a_model_that_loops_is_seen_and_ended_where_its_lane_says_so(fleet: RealFleet) -> None:
    """At temperature 0 a tiny model repeats itself sooner or later."""
    answers = {}
    async with fleet.client() as client:
        for lane in ("short", "long"):
            answers[lane] = await complete(
                client, SHORT, stream=True, max_tokens=LOOPING_TOKENS, temperature=0.0, extra_body={"ignore_eos": True},
                extra_headers={"x-fleetctl-lane": lane, "x-request-id": f"loops-in-{lane}"},
            )  # fmt: skip
    observed, stopped = answers["short"], answers["long"]
    assert (observed.output_tokens, observed.finish_reason) == (LOOPING_TOKENS, "length")
    assert stopped.finish_reason == "length"
    assert stopped.output_tokens < LOOPING_TOKENS / 2
    words = {lane: fleet.home.fleetctl("why", f"request/loops-in-{lane}", "--fleet", FLEET) for lane in answers}
    assert all("its answer looped from about token" in each for each in words.values()), words
    assert "as it repeated itself" in words["long"]
    assert "as it repeated itself" not in words["short"]
    for lane in answers:
        # The window is of the gateway's last push, a second ago at most.
        fleet.wait_for("counted", partial(has_looped, lane), timeout_s=30)


def has_looped(lane: str, seen: FleetStatus) -> bool:
    traffic = lane_of(seen, lane).traffic
    return traffic is not None and traffic.window(3600.0).looped == 1


async def test_a_replica_is_drained_under_its_streams_without_a_failed_request(fleet: RealFleet) -> None:
    streams = [LongStream(), LongStream(), LongStream(), LongStream(), LongStream(), LongStream()]
    victim = ""
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{fleet.port}", timeout=300.0, trust_env=False) as wire,
        fleet.client() as client,
        asyncio.TaskGroup() as tasks,
    ):

        async def keep_reading(stream: LongStream) -> None:
            """Read it, and others after it until the victim has left rotation: a command may take longer than one lasts."""
            await stream.read(wire)
            while not victim or (victim in in_rotation(fleet.home) and drain.poll() is None):
                streams.append(another := LongStream())
                await another.read(wire)

        reading = [tasks.create_task(keep_reading(stream)) for stream in streams]
        async with asyncio.timeout(120):
            await asyncio.gather(*(stream.begun.wait() for stream in streams))
        victim = streams[0].replica
        drain = fleet.home.start("drain", victim, "--fleet", FLEET, "--yes", "--timeout", "10m")
        try:
            # Others keep coming meanwhile, and none may notice.
            meanwhile: list[CompletedRequest] = []
            while drain.poll() is None:
                meanwhile.append(await complete(client, SHORT, stream=len(meanwhile) % 2 == 0, max_tokens=8))
            await asyncio.gather(*reading)
        finally:
            out, err = await asyncio.to_thread(drain.communicate, timeout=600)

    assert drain.returncode == 0, (out, err)
    left_rotation = drained_at(fleet, victim)
    ended = [stream.ended_at for stream in streams if stream.replica == victim]
    assert max(ended) > left_rotation, "its streams had ended before it left rotation: nothing was shown"
    # Perhaps all to one of them: two engines on two cores are not equally fast.
    assert {stream.replica for stream in streams} <= {"r1", "r2"}
    for stream in streams:
        assert stream.is_whole, stream.text[-500:]
    assert len(meanwhile) > 10
    assert {answer.lane for answer in meanwhile} == {"short"}
    assert victim not in {answer.replica for answer in meanwhile[-5:]}

    states = {replica.record.id: replica.record.state for replica in fleet.status().replicas}
    assert states.get(victim, ReplicaState.GONE) is ReplicaState.GONE
    fleet.wait_for("replaced", lambda status: lane_of(status, "short").ready == 2, timeout_s=START_S)


class LongStream:
    """A stream of thousands of tokens, read as bytes.

    The official client takes a third of a millisecond an event; six such streams would starve the other requests of
    this one process, and it is the fleet that is on trial.
    """

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.replica = ""
        self.ended_at = EPOCH
        self._pieces: list[bytes] = []

    async def read(self, client: httpx.AsyncClient) -> None:
        """Read it to its end; whatever goes wrong raises."""
        body = {
            "model": "tiny", "messages": [{"role": "user", "content": SHORT}], "max_tokens": LONG_STREAM_TOKENS,
            "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        headers = {"x-fleetctl-lane": "short"}
        async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            self.replica = answer.headers["x-fleetctl-replica"]
            async for piece in answer.aiter_bytes():
                self._pieces.append(piece)
                self.begun.set()
        self.ended_at = SYSTEM_CLOCK.now()

    @property
    def text(self) -> str:
        """Everything that came."""
        return b"".join(self._pieces).decode()

    @property
    def is_whole(self) -> bool:
        """Whether every token came, and the engine said so itself."""
        text = self.text
        return (
            f'"completion_tokens":{LONG_STREAM_TOKENS}' in text
            and text.count('"finish_reason":"length"') == 1
            and text.endswith("data: [DONE]\n\n")
            and '"error"' not in text
        )


async def test_a_replica_whose_engine_core_stands_still_is_out_in_seconds_and_loses_no_stream(fleet: RealFleet) -> None:
    streams = [LongStream(), LongStream(), LongStream(), LongStream()]
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{fleet.port}", timeout=300.0, trust_env=False) as wire,
        asyncio.TaskGroup() as tasks,
    ):
        reading = [tasks.create_task(stream.read(wire)) for stream in streams]
        async with asyncio.timeout(120):
            await asyncio.gather(*(stream.begun.wait() for stream in streams))
        victim = streams[0].replica
        core = engine_core_of(fleet, victim)
        core.suspend()
        begun_s = SYSTEM_CLOCK.monotonic_s()
        while victim in in_rotation(fleet.home):
            assert SYSTEM_CLOCK.monotonic_s() - begun_s < HUNG_OUT_S_MAX
            await SYSTEM_CLOCK.sleep(0.1)
        await asyncio.gather(*reading)

    for stream in streams:
        assert stream.is_whole, stream.text[-500:]
    seen = await asyncio.to_thread(
        fleet.wait_for,
        "ended",
        lambda status: victim not in {r.record.id for r in live_replicas(status)},
        timeout_s=HUNG_ENDED_S_MAX,
    )
    # Its substitute is on the way; and one more, where loading it has kept the other from answering for so long.
    assert len([r for r in live_replicas(seen) if r.record.lane == "short"]) >= 2
    assert has_ended(core)


def engine_core_of(fleet: RealFleet, replica_id: str) -> psutil.Process:
    """Return the process that a vLLM replica generates in; its name is all that tells it from the others."""
    (leader,) = (p for p in fleet.home.processes() if p.pid == session_of(p) and replica_of(p) == replica_id)
    session = session_of(leader)
    (core,) = (p for p in fleet.home.processes() if session_of(p) == session and "EngineCore" in name_of(p))
    return core


def drained_at(fleet: RealFleet, replica_id: str) -> datetime:
    """Return when the controller took the replica out of rotation, by its journal."""
    journal = fleet.home.fleetctl("events", FLEET, "--subject", replica_id, "--output", "json")
    return next(entry.at for entry in codec.decode(list[JournalEntry], journal) if entry.action == "drain")


def test_down_leaves_nothing_behind(fleet: RealFleet) -> None:
    before = fleet.home.processes()
    assert len(before) >= 5  # controller, gateway, three engines of several processes each
    sessions = frozenset(session_of(process) for process in before)
    fleet.home.fleetctl("down", FLEET, "--yes", "--timeout", "5m", timeout_s=330)
    left = [name_of(process) for process in fleet.home.processes(sessions=sessions)]
    assert left == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", fleet.port)) != 0
    assert fleet.home.fleetctl("ls", "-o", "name") == ""
    assert list(fleet.home.root.rglob("*.sock")) == []
