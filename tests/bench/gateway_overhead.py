"""Prints what the gateway costs beside others: python tests/bench/gateway_overhead.py [--rounds 5] [--seconds 3] [--beside CHECKOUT]

CPU time per request (non-stream, 32 connections) and per SSE chunk (64 chunks an answer, one every 10 ms, 100 streams),
and the added time to the first chunk, of the gateway, of HAProxy and nginx where they are installed, and of a TCP splice
in Python, which is the floor for this language. Candidates take turns and medians are printed, so that a noisy machine
disturbs all alike. Everything runs on loopback; proxies have one thread each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import psutil
import uvloop

from fleetctl import codec
from fleetctl.model.gateway import RouteLane, RouteReplica, RoutingTable
from fleetctl.model.profile import LaneMatch
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from fleetctl.paths import FleetPaths

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECTIONS = 32
STREAMS = 100
CHUNKS = 64
CHUNK_GAP_S = 0.010
_PROMPT = b"word " * 380
WHOLE = b'{"model":"m","messages":[{"role":"user","content":"%b"}],"max_tokens":64}' % _PROMPT
STREAM = WHOLE[:-1] + b',"stream":true}'
_REPLY = (
    b'{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"'
    + b"word " * 60
    + b'"},"finish_reason":"stop"}],"usage":{"prompt_tokens":400,"completion_tokens":60}}'
)
_EVENT = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}\n\n'
)
# The same from an engine that was asked to count its tokens.
_COUNTED = _EVENT[:-3] + b',"usage":{"prompt_tokens":412,"total_tokens":475,"completion_tokens":63}}\n\n'
_LAST = _EVENT.replace(b'{"content":" word"}', b"{}").replace(b'"finish_reason":null', b'"finish_reason":"stop"')


def request(body: bytes) -> bytes:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)


# The replica: as cheap as can be, in its own process.


class Replica(asyncio.Protocol):
    """Answers whole requests at once, and streams on a common beat."""

    streaming: ClassVar[set[Replica]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # TCP gives full ones
        self.pending = b""
        self.left = 0

    def data_received(self, data: bytes) -> None:
        self.pending += data
        head, found, rest = self.pending.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]) if found else 0
        if not found or len(rest) < length:
            return
        self.pending = b""
        if b'"stream":true' in rest:
            self.left = CHUNKS
            self.streaming.add(self)
            self.transport.write(STREAM_BEGIN)
        else:
            self.transport.write(WHOLE_ANSWER)

    def heard(self) -> None:
        self.left -= 1
        if self.left > 1:
            self.transport.write(STREAM_EVENT)
        else:
            self.streaming.discard(self)
            self.transport.write(STREAM_END)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.streaming.discard(self)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def replica(port: int) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_server(Replica, "127.0.0.1", port, backlog=4096)
    while True:
        await asyncio.sleep(CHUNK_GAP_S)
        for stream in list(Replica.streaming):
            stream.heard()


WHOLE_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_REPLY) + _REPLY
STREAM_EVENT = _chunk(_EVENT)
COUNTED_EVENT = _chunk(_COUNTED)
STREAM_BEGIN = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + STREAM_EVENT
)
STREAM_END = _chunk(_LAST) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"

# The floor: bytes in, bytes out.


class Splice(asyncio.Protocol):
    """One half of a TCP splice."""

    def __init__(self, upstream_port: int, other: Splice | None = None) -> None:
        self.upstream_port = upstream_port
        self.other = other
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # TCP gives full ones
        if self.other is None:
            self.opening = asyncio.ensure_future(self._open())
        else:
            self.other.other = self

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: Splice(0, self), "127.0.0.1", self.upstream_port)
        for data in self.early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self.other is not None:
            self.other.transport.close()


async def splice(port: int, upstream_port: int) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: Splice(upstream_port), "127.0.0.1", port, backlog=4096
    )
    await server.serve_forever()


# The load.


class Client(asyncio.Protocol):
    """Sends one request after another; notes when answers begin and counts those that ended."""

    def __init__(self, wire: bytes, counts: LoadCounts) -> None:
        self.wire = wire
        self.counts = counts
        self.seen = b""
        self.sent_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # TCP gives full ones
        self._send()

    def _send(self) -> None:
        self.sent_s = time.perf_counter()
        self.counts.sent += 1
        self.transport.write(self.wire)

    def data_received(self, data: bytes) -> None:
        if self.sent_s:
            self.counts.first_s.append(time.perf_counter() - self.sent_s)
            self.sent_s = 0.0
        self.seen = (self.seen + data)[-24:]
        if self.seen.endswith((b'"completion_tokens":60}}', b"0\r\n\r\n")):
            self.counts.answers += 1
            if self.counts.running:
                self._send()
            elif self.counts.answers == self.counts.sent:
                self.counts.ended.set()


@dataclass
class LoadCounts:
    """What one run counted."""

    sent: int = 0
    answers: int = 0
    running: bool = True
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    first_s: list[float] = field(default_factory=list)


@dataclass
class Candidate:
    """A proxy under measurement."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    request_us: list[float] = field(default_factory=list)
    chunk_us: list[float] = field(default_factory=list)
    first_us: list[float] = field(default_factory=list)
    rps: list[float] = field(default_factory=list)

    def cpu_s(self) -> float:
        root = psutil.Process(self.process.pid)
        return sum(sum(p.cpu_times()[:2]) for p in (root, *root.children(recursive=True)))


async def drive(port: int, wire: bytes, connections: int, seconds: float) -> tuple[LoadCounts, list[Client]]:
    loop = asyncio.get_running_loop()
    counts = LoadCounts()
    clients = []
    for _ in range(connections):
        _, client = await loop.create_connection(lambda: Client(wire, counts), "127.0.0.1", port)
        clients.append(client)
    await asyncio.sleep(seconds)
    counts.running = False
    await asyncio.wait_for(counts.ended.wait(), 60)
    return counts, clients


async def measure(candidate: Candidate, seconds: float) -> None:
    before, began = candidate.cpu_s(), time.perf_counter()
    counts, clients = await drive(candidate.port, request(WHOLE), CONNECTIONS, seconds)
    used, took = candidate.cpu_s() - before, time.perf_counter() - began
    candidate.request_us.append(used / counts.answers * 1e6)
    candidate.rps.append(counts.answers / took)
    close(clients)
    before = candidate.cpu_s()
    counts, clients = await drive(candidate.port, request(STREAM), STREAMS, seconds)
    used = candidate.cpu_s() - before
    candidate.chunk_us.append(used / (counts.answers * CHUNKS) * 1e6)
    candidate.first_us.append(statistics.median(counts.first_s) * 1e6)
    close(clients)
    await asyncio.sleep(0.1)


async def until_listening(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


def close(clients: list[Client]) -> None:
    for client in clients:
        client.transport.abort()


# The candidates.


def routing_table(upstream_port: int = 1) -> RoutingTable:
    """Return one lane with two replicas at the same address."""
    slo = LaneSlo(
        targets=(
            LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=0.3),
            LatencyTarget(metric=Metric.ITL, percentile=0.99, limit_s=0.05),
        )
    )
    lane = RouteLane(name="chat", match=LaneMatch(), slo=slo, max_wait_s=1.0, queue_max=256)
    replicas = tuple(
        RouteReplica(
            id=f"chat-{i}", lane="chat", host="127.0.0.1", port=upstream_port, in_rotation=True, concurrency_max=256,
            prefill_tokens_per_s=20_000.0, continues=True,
        )
        for i in range(2)
    )  # fmt: skip
    return RoutingTable(fleet="bench", version=1, model="m", lanes=(lane,), replicas=replicas)


def start_gateway(port: int, upstream_port: int, where: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "XDG_STATE_HOME": str(where / "state"), "XDG_RUNTIME_DIR": str(where)}
    os.environ.update(env)
    paths = FleetPaths(fleet="bench")
    paths.make()
    table = routing_table(upstream_port)
    paths.routing_table.parent.mkdir(parents=True, exist_ok=True)
    paths.routing_table.write_bytes(codec.encode(table))
    command = [sys.executable, "-m", "fleetctl.gateway", "bench", "--port", str(port)]
    return subprocess.Popen(command, env=env, start_new_session=True)


def start_haproxy(port: int, upstream_port: int, where: Path) -> subprocess.Popen[bytes]:
    config = where / "haproxy.cfg"
    config.write_text(
        "global\n  nbthread 1\n  maxconn 4096\ndefaults\n  mode http\n  option http-no-delay\n  timeout client 60s\n"
        "  timeout server 60s\n  timeout connect 5s\n  http-reuse always\n"
        f"frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\n"
        f"backend b\n  server r 127.0.0.1:{upstream_port}\n"
    )
    return subprocess.Popen(
        [shutil.which("haproxy") or "haproxy", "-db", "-q", "-f", str(config)], start_new_session=True
    )


def start_nginx(port: int, upstream_port: int, where: Path) -> subprocess.Popen[bytes]:
    config = where / "nginx.conf"
    config.write_text(
        f"daemon off; worker_processes 1; pid {where}/nginx.pid; error_log /dev/null;\n"
        "events { worker_connections 4096; }\n"
        "http { access_log off; keepalive_requests 1000000;\n"
        f"  client_body_temp_path {where}/b; proxy_temp_path {where}/p; fastcgi_temp_path {where}/f;\n"
        f"  uwsgi_temp_path {where}/u; scgi_temp_path {where}/s;\n"
        f"  upstream r {{ server 127.0.0.1:{upstream_port}; keepalive 512; keepalive_requests 1000000; }}\n"
        f"  server {{ listen 127.0.0.1:{port}; client_body_buffer_size 64k; location / {{ proxy_pass http://r;\n"
        '    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } } }\n'
    )
    return subprocess.Popen(
        [
            shutil.which("nginx") or "nginx",
            "-c",
            str(config),
            "-p",
            str(where),
            "-g",
            "user root;" if not os.getuid() else "",
        ],
        start_new_session=True,
    )


def start_other_gateway(checkout: Path, port: int, upstream_port: int, where: Path) -> subprocess.Popen[bytes]:
    """Start another checkout's gateway by that checkout's own copy of this script."""
    code = f"import gateway_overhead as g, pathlib; g.start_gateway({port}, {upstream_port}, pathlib.Path({str(where)!r})).wait()"
    found = [str(checkout / name) for name in ("ctl", "providers", "tests/bench")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(found)}
    return subprocess.Popen([sys.executable, "-c", code], env=env, start_new_session=True)


# Every candidate gets a session of its own: the kernel shares the cores among sessions first (sched_autogroup), so on a busy
# machine one that shares the bench's session waits longer for a core than one that does not.
def candidates(where: Path, upstream_port: int, beside: Path | None) -> list[Candidate]:
    def script(name: str, port: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, "--as", name, str(port), str(upstream_port)]
        return subprocess.Popen(command, start_new_session=True)

    starts: dict[str, Callable[[int], subprocess.Popen[bytes]]] = {
        "gateway": lambda port: start_gateway(port, upstream_port, where),
        "splice": lambda port: script("splice", port),
    }
    if beside is not None:
        other = where / "beside"
        other.mkdir()
        starts["beside"] = lambda port: start_other_gateway(beside, port, upstream_port, other)
    if shutil.which("haproxy"):
        starts["haproxy"] = lambda port: start_haproxy(port, upstream_port, where)
    if shutil.which("nginx"):
        starts["nginx"] = lambda port: start_nginx(port, upstream_port, where)
    return [Candidate(name, start(19_200 + i), 19_200 + i) for i, (name, start) in enumerate(starts.items())]


def report(found: list[Candidate]) -> None:
    base = next((c for c in found if c.name == "haproxy"), found[0])
    print(
        f"{'':10} {'us/request':>10} {'x':>5} {'req/s core':>10} {'us/chunk':>9} {'x':>5} {'first chunk us':>15}   (x: beside {base.name})"
    )
    for c in found:
        request_us, chunk_us = statistics.median(c.request_us), statistics.median(c.chunk_us)
        base_request, base_chunk = statistics.median(base.request_us), statistics.median(base.chunk_us)
        print(
            f"{c.name:10} {request_us:10.1f} {request_us / base_request:5.2f} {1e6 / request_us:10,.0f}"
            f" {chunk_us:9.2f} {chunk_us / base_chunk:5.2f} {statistics.median(c.first_us):15.0f}"
        )


async def take_turns(found: list[Candidate], rounds: int, seconds: float) -> None:
    for candidate in found:
        await until_listening(candidate.port)
    for _ in range(rounds):
        for candidate in found:
            await measure(candidate, seconds)


def bench(rounds: int, seconds: float, beside: Path | None) -> None:
    upstream_port = 19_199
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        engine = subprocess.Popen([sys.executable, __file__, "--as", "replica", str(upstream_port), "0"])
        found = candidates(Path(directory), upstream_port, beside)
        try:
            uvloop.run(take_turns(found, rounds, seconds))
            report(found)
        finally:
            for process in (engine, *(c.process for c in found)):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.terminate()
                process.terminate()
                process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--beside", type=Path, help="another checkout, whose gateway takes its turns too")
    parser.add_argument("--as", dest="role", nargs=3, metavar=("ROLE", "PORT", "UPSTREAM"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role is None:
        bench(arguments.rounds, arguments.seconds, arguments.beside)
        return
    role, port, upstream_port = arguments.role
    uvloop.run(replica(int(port)) if role == "replica" else splice(int(port), int(upstream_port)))


if __name__ == "__main__":
    main()
