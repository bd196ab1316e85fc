"""A gateway in the test's own process, its replicas, and a client."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field, replace
from typing import Any, Self

import aiohttp

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.core.dispatch.limits import DispatchLimits
from fleetctl.gateway import listeners
from fleetctl.gateway.frontend import Frontend
from fleetctl.gateway.limits import GatewayLimits
from fleetctl.gateway.tls import client_protocol
from fleetctl.model.gateway import LaneWindow, RouteLane, RouteReplica, RoutingTable
from fleetctl.model.profile import LaneMatch
from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from tests.gateway.scripted import Script, Scripted

SLO = LaneSlo(targets=(LatencyTarget(metric=Metric.TTFT, percentile=0.99, limit_s=20.0),))
CHAT = RouteLane(name="chat", match=LaneMatch(), slo=SLO, max_wait_s=5.0, queue_max=64)
LIMITS = GatewayLimits(sweep_interval_s=0.02, dispatch=DispatchLimits(displaced_wait_s=5.0), linger_s=0.5)
HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@dataclass
class Response:
    """A response, read to its end or to where it broke."""

    status: int
    headers: dict[str, str]
    body: bytes
    broke: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """SSE payloads; [DONE] as that string."""
        lines = [line[5:].strip() for line in self.body.split(b"\n") if line.startswith(b"data:")]
        return ["[DONE]" if line == b"[DONE]" else json.loads(line) for line in lines]

    @property
    def text(self) -> str:
        chunks = [c for e in self.events if isinstance(e, dict) for c in e.get("choices", ())]
        return "".join((c.get("delta", {}).get("content") or c.get("text") or "") for c in chunks)

    @property
    def is_whole(self) -> bool:
        return self.events[-1:] == ["[DONE]"]


@dataclass
class GatewayRig:
    """A gateway on free ports with scripted replicas; an async context."""

    lanes: tuple[RouteLane, ...] = (CHAT,)
    limits: GatewayLimits = LIMITS
    replicas: list[Scripted] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)  # of the routing table
    version: int = 0
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self.frontend = Frontend("rig", SYSTEM_CLOCK, random.Random(11), self.limits)
        self.sockets = listeners.bind("127.0.0.1", 0, 2)
        self.port = self.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        self.servers = [await loop.create_server(lambda: client_protocol(self.frontend), sock=s) for s in self.sockets]
        self._tasks.append(loop.create_task(self._sweep()))
        self.http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self.servers:
            server.close()
        self.frontend.cut()
        for replica in self.replicas:
            await replica.stop()
        self.frontend.upstreams.close()
        await SYSTEM_CLOCK.sleep(0.01)

    async def _sweep(self) -> None:
        while True:
            await SYSTEM_CLOCK.sleep(self.limits.sweep_interval_s)
            self.frontend.sweep()

    # Setting it up.

    async def add(self, id_: str, script: Script | None = None, **options: Any) -> Scripted:
        """Start a replica and put it into the table."""
        made = Scripted(id_, **options)
        if script is not None:
            made.script = script
        await made.start()
        self.replicas.append(made)
        self.apply()
        return made

    def apply(self, **options: Any) -> None:
        """Give the gateway a table of the lanes and replicas of this rig."""
        self.version += 1
        self.options |= options
        self.frontend.apply(self.table())

    def table(self) -> RoutingTable:
        rows = tuple(
            RouteReplica(
                id=r.id, lane=r.lane, host="127.0.0.1", port=r.port, in_rotation=r.in_rotation,
                concurrency_max=r.concurrency_max, prefill_tokens_per_s=10_000.0,
                priority_sign=r.priority_sign, continues=r.continues, max_model_len=r.max_model_len,
                caches_prefixes=r.caches_prefixes,
            )
            for r in self.replicas
        )  # fmt: skip
        return RoutingTable(
            fleet="rig", version=self.version, model="m", lanes=self.lanes, replicas=rows, **self.options
        )

    def change_lane(self, name: str, **changes: Any) -> None:
        self.lanes = tuple(replace(lane, **changes) if lane.name == name else lane for lane in self.lanes)
        self.apply()

    # Using it.

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def post(
        self, path: str = "/v1/chat/completions", headers: dict[str, str] | None = None, **body: Any
    ) -> Response:
        """Post a body and read the whole response."""
        payload = (HELLO if "chat" in path else {"model": "m"}) | body
        async with self.http.post(self.url + path, json=payload, headers=headers) as response:
            return await read(response)

    async def get(self, path: str) -> Response:
        async with self.http.get(self.url + path) as response:
            return await read(response)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send_raw(self, data: bytes, *, wait_s: float = 10.0) -> bytes:
        """Send bytes on a new connection and return everything until it is closed."""
        reader, writer = await self.connect()
        writer.write(data)
        try:
            async with asyncio.timeout(wait_s):
                return await reader.read()
        finally:
            writer.transport.abort()

    def window(self, lane: str = "chat") -> LaneWindow:
        """The last minute of a lane."""
        snapshot = self.frontend.snapshot(1)
        return next(x for x in snapshot.lanes if x.name == lane).window(60.0)


async def read(response: aiohttp.ClientResponse) -> Response:
    """Read a response to its end, or to where it broke."""
    headers = {k.lower(): v for k, v in response.headers.items()}
    pieces: list[bytes] = []
    broke = False
    try:
        async for piece in response.content.iter_any():
            pieces.append(piece)  # noqa: PERF401  # what came before a break is wanted too
    except aiohttp.ClientError:
        broke = True
    return Response(response.status, headers, b"".join(pieces), broke)


async def until(condition: Any, *, wait_s: float = 10.0) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(wait_s):
        while not condition():  # scripted replicas have no event for everything
            await SYSTEM_CLOCK.sleep(0.005)


def raw_post(body: bytes, extra: bytes = b"", path: bytes = b"/v1/chat/completions") -> bytes:
    """A raw request."""
    return b"POST %b HTTP/1.1\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n%b" % (path, extra, len(body), body)
