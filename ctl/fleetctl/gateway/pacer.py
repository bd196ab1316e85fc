"""Holds a stream's events back for a moment, so that they leave in fewer and evener chunks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleetctl.core.pacing import ChunkPace
from fleetctl.gateway import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.core.slo.paced import PacedStopwatch
    from fleetctl.gateway.client import ClientConnection
    from fleetctl.model.profile import CoalesceSpec

# An engine that sends this much faster than its chunks leave is not held back: all goes at once.
_HELD_BYTES_MAX = 256 * 1024
# The loop's timers count milliseconds and may be that early.
_EARLY_S = 0.001


class StreamPacer:
    """One stream's pieces on their way to its client, in order and whole.

    The first chunk leaves as it comes, and so does all that is held when the stream ends, or something without content comes.
    One timer at most waits for a stream, and one that finds nothing to do is not replaced before there is.
    """

    __slots__ = (
        "_client", "_clock", "_held", "_held_bytes", "_is_begun", "_is_closed", "_pace", "_since_s", "_stopwatch", "_timer", "_timer_s",
    )  # fmt: skip

    def __init__(
        self, rule: CoalesceSpec, client: ClientConnection, stopwatch: PacedStopwatch, clock: Callable[[], float]
    ) -> None:
        self._client, self._stopwatch, self._clock = client, stopwatch, clock
        self._pace = ChunkPace(tokens=rule.tokens, within_s=rule.within_s)
        self._held: list[bytes] = []  # an event each
        self._held_bytes = 0
        self._since_s = 0.0  # the first of them
        self._is_begun = self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0  # when that is due

    def write_piece(self, data: bytes) -> None:
        """Take events; write those that are due."""
        stopwatch = self._stopwatch
        count, stopwatch.came = stopwatch.came, 0
        if not count:
            self.flush()
            self._client.write_piece(data)
            return
        now_s = self._clock()
        self._pace.came(now_s, count)
        if not self._held:
            self._since_s = now_s
        self._held += [data] if count == 1 else wire.events(data) if self._is_begun else _first_events(data, count)
        self._held_bytes += len(data)
        if not self._is_begun:
            self._is_begun = True
            self._write(self._pace.tokens, now_s)
        elif self._held_bytes > _HELD_BYTES_MAX:
            self._write(len(self._held), now_s)
        self._write_due(now_s)

    def end_pieces(self) -> None:
        """Write what is held, and the end."""
        self.flush()
        self._client.end_pieces()

    def flush(self) -> None:
        """Write what is held."""
        if self._held:
            self._write(len(self._held), self._clock())

    def close(self) -> None:
        """Forget what is held: the response is over, or nobody reads it any more."""
        self._is_closed = True
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write_due(self, now_s: float) -> None:
        """Write the next chunk if it is due, and see to it that the one after it is written in time."""
        pace = self._pace
        while self._held:
            due_s = pace.due_s(len(self._held), self._since_s)
            if now_s < due_s - _EARLY_S:
                self._wake_at(due_s, now_s)
                return
            self._write(pace.tokens, now_s)

    def _write(self, count: int, now_s: float) -> None:
        """Write the first `count` of what is held as one chunk."""
        held = self._held
        chunk = held[0] if len(held) == 1 else b"".join(held[:count])
        del held[:count]
        self._held_bytes -= len(chunk)
        self._pace.left(now_s)
        self._stopwatch.left(now_s)
        self._client.write_piece(chunk)

    def _wake_at(self, due_s: float, now_s: float) -> None:
        if self._timer is not None:
            if self._timer_s <= due_s + _EARLY_S:
                return  # it looks again
            self._timer.cancel()
        self._timer_s = due_s
        self._timer = asyncio.get_running_loop().call_later(due_s - now_s, self._woken)

    def _woken(self) -> None:
        self._timer = None
        if not self._is_closed:
            self._write_due(self._clock())


def _first_events(data: bytes, count: int) -> list[bytes]:
    """Return events one by one, as many as have content: those that open the answer go with the first that has."""
    events = wire.events(data)
    extra = len(events) - count
    if extra > 0:
        events[: extra + 1] = [b"".join(events[: extra + 1])]
    return events
