"""What a gateway that runs by a profile does with a few dozen requests, without sockets and in virtual time."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleetctl.controller.keys import KeyHashes
from fleetctl.controller.table import build_table
from fleetctl.gateway.client import ClientConnection
from fleetctl.gateway.frontend import Frontend
from fleetctl.gateway.limits import GatewayLimits
from fleetctl.model.catalogue import Precision
from fleetctl.model.decision import LaneMemory, Memory
from fleetctl.model.gateway import ReplicaSignals, SignalFeed
from fleetctl.model.ladder import LadderStep
from fleetctl.model.replica import ReplicaCapacity, ReplicaState
from fleetctl.plugins import load_engine
from fleetctl.testing import samples
from fleetctl.testing.clocks import LoopClock
from fleetctl.testing.virtual_time import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.desired import Desired
    from fleetctl.model.gateway import RoutingTable

_CHAT = "/v1/chat/completions"
_WHOLE = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}'
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_WHOLE), _WHOLE)
_EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n'
_EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n"
_BEGIN = _EVENTS % (len(_EVENT), _EVENT)
_AGAIN = 300 * _EVENT.replace(b"Hi", b" and so on")
_LOOP = _EVENTS % (len(_AGAIN), _AGAIN)
_WATCHED_S, _SWEEP_S = 160, 0.5  # longer than any deadline of the sample's


class Pipe(asyncio.Transport):
    """A transport that hands on what is written to it."""

    def __init__(self, on_write: Callable[[bytes], None]) -> None:
        super().__init__()
        self._on_write = on_write

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._on_write(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def write_eof(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class RunningGateway:
    """A gateway, two replicas of the lane `short` that answer with `reply`, and everything anybody saw."""

    def __init__(self, table: RoutingTable, reply: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.create_connection = self._connect  # type: ignore[method-assign,assignment]  # no sockets
        self._reply = reply
        self.seen: list[object] = []
        self.frontend = Frontend("demo", LoopClock(samples.EPOCH), random.Random(1), GatewayLimits())
        self.frontend.apply(table)

    async def _connect(self, make: Callable[[], Any], host: str, port: int) -> tuple[None, Any]:
        made = make()

        received = bytearray()

        def on_write(data: bytes) -> None:
            received.extend(data)
            head, _, body = received.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            if length is None or len(body) < int(length[1]):
                return
            self.seen.append(("replica", port, _shape_of(bytes(body))))
            received.clear()
            if self._reply:
                self._loop.call_soon(made.data_received, self._reply)

        made.connection_made(Pipe(on_write))
        return None, made

    def send(self, name: object, path: str = _CHAT, body: dict[str, Any] | None = None, method: str = "POST") -> None:
        """Send a request on a connection of its own."""
        client = ClientConnection(self.frontend)
        client.connection_made(Pipe(lambda data: self.seen.append((name, self._loop.time(), data))))
        content = json.dumps(body).encode() if body is not None else b""
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: x\r\nx-fleetctl-lane: short\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        client.data_received(head.encode() + content)

    async def watch(self, seconds: float) -> None:
        """Let time pass, swept as the gateway's process sweeps."""
        for _ in range(round(seconds / _SWEEP_S)):
            await asyncio.sleep(_SWEEP_S)  # noqa: TID251  # virtual
            self.frontend.sweep()


def _shape_of(body: bytes) -> object:
    """Return what the ladder may have cut from a request."""
    found = json.loads(body)
    return found.get("max_tokens"), found.get("stop"), len(found["messages"]), found["model"]


def _turns(count: int, words: int) -> dict[str, Any]:
    text = "tell me more " * words
    return {"model": "meta-llama/Llama-3.1-8B-Instruct", "messages": [{"role": "user", "content": text}] * count}


def _table(desired: Desired, step: LadderStep) -> RoutingTable:
    capacity = ReplicaCapacity(precision=Precision.FP8, max_model_len=32_768, max_num_seqs=1, continues_streams=True)
    records = [
        samples.replica(name, state=ReplicaState.READY, host="127.0.0.1", port=port, ready_at=samples.EPOCH)
        for name, port in (("r1", 1001), ("r2", 1002))
    ]
    return build_table(
        desired, [replace(record, capacity=capacity) for record in records],
        Memory(lanes={"short": LaneMemory(step=step)}), engine_of=load_engine,
        key_hashes=KeyHashes("demo", lambda name: os.environ.get(name, "")).of(desired.profile.gateway.api_keys), version=1,
    )  # fmt: skip


async def _silence(table: RoutingTable) -> list[object]:
    """Replicas that never answer: who is refused at once, who waits how long."""
    gateway = RunningGateway(table, b"")
    for number in range(12):
        gateway.send(number, body=_turns(1, 2))
    await gateway.watch(_WATCHED_S)
    return sorted(gateway.seen, key=repr)  # whose deadlines pass in one sweep end in no order of their own


async def _stall(table: RoutingTable) -> list[object]:
    """A stream that stops after its first token."""
    gateway = RunningGateway(table, _BEGIN)
    gateway.send("stream", body=_turns(1, 2) | {"stream": True})
    await gateway.watch(_WATCHED_S)
    return [gateway.seen, gateway.frontend.dispatcher.routes.lanes["short"].accounts.totals()]


async def _repetition(table: RoutingTable) -> list[object]:
    """A stream that says the same for three hundred tokens."""
    gateway = RunningGateway(table, _LOOP)
    gateway.send("stream", body=_turns(1, 2) | {"stream": True})
    await gateway.watch(1.0)
    return gateway.seen


async def _answers(table: RoutingTable) -> list[object]:
    """Replicas that answer: what is sent to them of long and short prompts, and which of the two is sent it."""
    gateway = RunningGateway(table, _ANSWER)
    signals = (("r1", 9, 0.97), ("r2", 0, 0.01))
    gateway.frontend.dispatcher.take_signals(
        SignalFeed(
            replicas=tuple(
                ReplicaSignals(id=name, age_s=0.0, running=1, waiting=waiting, kv_usage=kv)
                for name, waiting, kv in signals
            )
        )
    )
    gateway.send("models", "/v1/models", method="GET")
    gateway.send("large", body=_turns(1, 200_000))
    for number in range(12):
        gateway.send(number, body=_turns(1, number))
        await gateway.watch(1.0)
    for number in range(4):
        gateway.send(f"turns {number}", body=_turns(10, 100 * 2**number) | {"max_tokens": 5000})
        await gateway.watch(1.0)
    return gateway.seen


def behaviour(desired: Desired) -> object:
    """Return all that clients and replicas of a running gateway see, normal and while its ladder caps context."""
    calm, capped = (_table(desired, step) for step in (LadderStep.NORMAL, LadderStep.CAP_CONTEXT))
    cases = (_silence(calm), _stall(calm), _repetition(calm), _answers(calm), _answers(capped))
    return [run_virtual(case) for case in cases]
