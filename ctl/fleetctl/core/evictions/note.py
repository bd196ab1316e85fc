"""An eviction as it is noted: instants in the seconds of the process that saw it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.evictions.conversations import Conversation
from fleetctl.core.evictions.kv_record import KvPeriod
from fleetctl.model.eviction import Eviction, EvictionCause, EvictionKind

if TYPE_CHECKING:
    from datetime import datetime


class LostTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of a conversation that found less cached than the one before had left."""

    conversation: str
    turn: int
    request_id: str
    replica_before: str
    cached_tokens_before: int
    cached_tokens: int
    ttft_s_before: float | None
    ttft_s: float | None


class EvictionNote(msgspec.Struct, frozen=True, kw_only=True):
    """One eviction."""

    seq: int
    at_s: float
    kind: EvictionKind
    cause: EvictionCause
    lane: str
    replica: str
    kv: KvPeriod
    lost: LostTurn | None = None  # of a prefix
    preempted: int = 0  # streams, of a preemption

    def dated(self, now_s: float, now: datetime) -> Eviction:
        """Return it by the calendar; `now_s` is the same instant as `now`."""
        kv, lost = self.kv, self.lost

        def at(at_s: float) -> datetime:
            return now - timedelta(seconds=now_s - at_s)

        found = Eviction(
            seq=self.seq,
            at=at(self.at_s),
            kind=self.kind,
            cause=self.cause,
            lane=self.lane,
            replica=self.replica,
            preempted=self.preempted,
            kv_usage=kv.usage,
            kv_since=at(kv.since_s) if kv.usage is not None else None,
            kv_until=at(kv.until_s) if kv.usage is not None else None,
            fillers=kv.fillers,
        )
        return found if lost is None else msgspec.structs.replace(found, **msgspec.structs.asdict(lost))


class TurnNote(msgspec.Struct, frozen=True, gc=False):
    """What is remembered of a request for whoever asks what became of its conversation's cache."""

    left: Conversation  # as its turn left it
    before: Conversation | None  # as the turn before did; None: it is the first
    expected: int | None  # tokens that it could have found cached; None: all whole blocks of the prompt before
    eviction: EvictionNote | None = None  # None: it found them, or nobody can tell
    preempted_beside: int = 0  # streams, by its replica while it was there

    @property
    def cached_tokens_before(self) -> int:
        """How many tokens it could have found cached."""
        if self.expected is not None:
            return self.expected
        return self.before.block_tokens if self.before is not None else 0
