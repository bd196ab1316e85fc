"""What one client gets: its head, its pieces or its whole, its end; and what was measured of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.slo.breach import Ending, Outcome
from fleetctl.gateway import wire
from fleetctl.gateway.relay import EventRelay, Fault, Usage, read_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleetctl.gateway.client import ClientConnection
    from fleetctl.gateway.lanes import LaneRuntime
    from fleetctl.gateway.limits import DoorLimits

_REASONS = {
    Refusal.QUEUE_FULL: "its queue is full",
    Refusal.PREDICTED_WAIT: "the request would wait longer than it allows",
    Refusal.MAX_WAIT: "the request has waited as long as it allows",
    Refusal.SHED: "it is shedding what would have to wait",
    Refusal.BREAKER: "it is refusing all new requests",
    Refusal.ENGINES_BUSY: "its replicas are busy",
    Refusal.NO_REPLICA: "it has no replica",
}


class Answer:
    """Writes to the client and keeps the stopwatch. Nothing is written before it is certain to be the answer."""

    __slots__ = (
        "_client", "_clock", "_gap_limit_s", "_gaps", "_gaps_over", "_held", "_held_bytes", "_lane", "_last_token_s", "_limits",
        "_prompt_tokens_estimate",
        "degraded", "headers", "is_committed", "relay", "replica_id", "started_s", "status", "stream", "ttft_s",
        "usage", "wait_s",
    )  # fmt: skip

    def __init__(
        self,
        client: ClientConnection,
        lane: LaneRuntime,
        clock: Callable[[], float],
        limits: DoorLimits,
        *,
        stream: bool,
        prompt_tokens_estimate: int,
    ) -> None:
        self._client = client
        self._lane = lane
        self._clock = clock
        self._limits = limits
        self.stream = stream
        self._prompt_tokens_estimate = prompt_tokens_estimate
        self.started_s = clock()
        self.degraded = b""  # what the ladder cut
        self.replica_id = b""
        self.status = 0
        self.headers: list[wire.Header] = []
        self.relay: EventRelay | None = None
        self.is_committed = False
        self.wait_s: float | None = None  # submission -> first dispatch
        self.ttft_s: float | None = None
        self.usage: Usage | None = None  # as the engine reported it, once all is said
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._last_token_s = 0.0
        itl_s = lane.accounts.limits.itl_s
        self._gap_limit_s = itl_s if itl_s is not None else math.inf
        self._gaps = 0
        self._gaps_over = 0

    # Pieces.

    def begin(self, status: int, headers: list[wire.Header], *, keeps_transcript: bool) -> None:
        """Take a replica's head. A stream under way keeps the head it has."""
        self.status = status
        if self.is_committed:
            return
        self.headers = headers
        self._held, self._held_bytes = [], 0
        is_stream = status == 200 and _is_event_stream(headers)
        self.relay = EventRelay(self._limits, keeps_transcript=keeps_transcript) if is_stream else None

    def events(self, relay: EventRelay, data: bytes, now_s: float) -> Fault | None:
        """Pass events on; return the fault that ends this replica's part, if it does."""
        events = relay.feed(data)
        new = relay.new_tokens
        if new:
            if self.ttft_s is None:
                self.ttft_s = now_s - self.started_s
                self._lane.accounts.first_token(now_s, self.ttft_s, new)
                self._gaps += new - 1
            else:
                accounts = self._lane.accounts
                gap_s = now_s - self._last_token_s
                accounts.gaps_s.append(gap_s)
                accounts.events += new
                self._gaps += new
                if gap_s > self._gap_limit_s:
                    self._gaps_over += 1
            self._last_token_s = now_s
        if events:
            if self.is_committed:
                self._client.write_piece(events)
            elif b"data:" in events:
                self._commit(events)
            else:
                self._hold(events)  # A comment is no reason yet to promise a 200.
        return relay.fault

    def hold(self, data: bytes) -> None:
        """Keep a piece of an answer without events; a long one is committed to and passed on."""
        if self.is_committed:
            if self.relay is None:
                self._client.write_piece(data)
        else:
            self._hold(data)

    def _hold(self, data: bytes) -> None:
        self._held_bytes += len(data)
        if self._held_bytes <= self._limits.whole_bytes_max:
            self._held.append(data)
        elif self.status == 200:
            self._commit(data)  # Of an error's body the rest is dropped.

    def held(self) -> bytes:
        """Return what is held back."""
        return b"".join(self._held)

    def _commit(self, events: bytes) -> None:
        self.is_committed = True
        self._client.begin_pieces(self.status, self._passed_headers())
        self._client.write_piece(b"".join((*self._held, events)))
        self._held = []

    # Ways out. Each ends the response; `_account` comes after the last byte.

    def whole(self, status: int, headers: list[wire.Header], body: bytes) -> None:
        """Answer with a body at once, as a replica gave it."""
        self.headers = headers
        self._client.reply(status, self._passed_headers(), body)
        if status < 300:
            self.usage = read_usage(body)
            self._account(Ending.COMPLETE)
        else:
            self._account(Ending.ERROR if status >= 500 else Ending.REJECTED)

    def end_pieces(self, ending: Ending, last: bytes = b"") -> None:
        """End an answer in pieces."""
        if last:
            self._client.write_piece(last)
        self._client.end_pieces()
        self.usage = self.relay.usage if self.relay is not None else None
        self._account(ending)

    def break_pieces(self, error: dict[str, object], ending: Ending) -> None:
        """End an answer in pieces so that no client takes it for whole: an error event and no [DONE], or a cut."""
        if self.relay is not None:
            self._client.write_piece(b"data: " + msgspec.json.encode(error) + b"\n\n")
            self._client.end_pieces()
        else:
            self._client.cut()
        self._account(ending)

    def fail(self, status: int, message: str, ending: Ending) -> None:
        """Answer with an error of ours."""
        body = wire.error_body(message, kind="timeout_error" if status == 504 else "server_error", code=status)
        self._client.reply(status, [wire.JSON, *self._own_headers()], body)
        self._account(ending)

    def refuse(self, refusal: Refusal, *, retry_after_s: int) -> None:
        """Answer with 429 and when to come back, or 503 where nothing is there to serve it."""
        headers = [
            wire.JSON,
            (b"retry-after", b"%d" % retry_after_s),
            (b"x-fleetctl-reason", refusal.value.encode()),
            *self._own_headers(),
        ]
        kind = "server_error" if refusal.status >= 500 else "rate_limit_error"
        message = f"lane {self._lane.route.name}: {_REASONS.get(refusal, refusal.value)}"
        self._client.reply(refusal.status, headers, wire.error_body(message, kind=kind, code=refusal.value))
        if refusal.status == 429:
            self._lane.accounts.shed(self._clock(), refusal)
        else:
            self._account(Ending.ERROR)

    def abandoned(self) -> None:
        """Account for an answer nobody is there to read."""
        self._account(Ending.CANCELLED)

    def _account(self, ending: Ending) -> None:
        usage = self.usage
        now_s = self._clock()
        counted = self.relay.tokens if self.relay is not None else 0
        self._lane.accounts.finished(
            now_s,
            Outcome(
                ending=ending,
                total_s=now_s - self.started_s,
                streamed=self.stream,
                ttft_s=self.ttft_s,
                queue_wait_s=self.wait_s if self.wait_s is not None else now_s - self.started_s,
                gaps=self._gaps,
                gaps_over=self._gaps_over,
            ),
            prompt_tokens=self._prompt_tokens(),
            more_output_tokens=usage.completion_tokens - counted if usage is not None else 0,
        )

    def _prompt_tokens(self) -> int:
        if self.usage is not None:
            return self.usage.prompt_tokens
        return self._prompt_tokens_estimate if self.wait_s is not None else 0  # None: no replica has seen it.

    def _passed_headers(self) -> Sequence[wire.Header]:
        passed = [h for h in self.headers if h[0] not in wire.HOP_BY_HOP and h[0] != b"content-length"]
        return (*passed, *self._own_headers())

    def _own_headers(self) -> list[wire.Header]:
        headers = [(b"x-fleetctl-lane", self._lane.route.name.encode())]
        if self.replica_id:
            headers.append((b"x-fleetctl-replica", self.replica_id))
        if self.degraded:
            headers.append((b"x-fleetctl-degraded", self.degraded))
        return headers


def _is_event_stream(headers: list[wire.Header]) -> bool:
    for name, value in headers:
        if name == b"content-type":
            return b"event-stream" in value
    return False
