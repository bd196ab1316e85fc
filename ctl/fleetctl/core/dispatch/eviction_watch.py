"""Follows conversations from turn to turn, and tells when what a replica had cached of one is lost, and to whom.

What is done for every request is done when it ends; all else only where something was lost.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from fleetctl.core.dispatch.sent_request import run_blocks, sent_request
from fleetctl.core.evictions.conversations import NO_KEY, Conversation, Conversations, tokens_in_common
from fleetctl.core.evictions.kv_record import KV_FULL, READ_EVERY_S, KvPeriod, KvRecord, SentRequest
from fleetctl.core.evictions.note import EvictionNote, LostTurn, TurnNote
from fleetctl.model.eviction import EvictionCause, EvictionKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from fleetctl.core.dispatch.endings import Endings
    from fleetctl.core.dispatch.replica import DispatchReplica
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.dispatch.routes import RoutingState
    from fleetctl.model.eviction import Eviction
    from fleetctl.model.gateway import RoutingTable, SignalFeed

# The newest of them: the controller looks once a second.
_KEPT_MAX = 32
_COUNTED_MAX = 4096  # counters: lanes x replicas x causes
# What is lost is worth a word from so many tokens on, where it is half of what was there.
LOST_TOKENS_MIN = 256
LOST_SHARE_MIN = 0.5

Counter = tuple[str, str, EvictionKind, EvictionCause]  # lane, replica, ...


class EvictionWatch:
    """The conversations of one dispatcher, and what they and its streams lost."""

    __slots__ = ("_conversations", "_endings", "_kept", "_routes", "counts", "seq")

    def __init__(self, routes: RoutingState, endings: Endings) -> None:
        self._routes = routes
        self._endings = endings
        self._conversations = Conversations()
        self._kept: deque[EvictionNote] = deque(maxlen=_KEPT_MAX)
        self.seq = 0
        self.counts: dict[Counter, tuple[int, int]] = {}  # -> how many, and of prefixes the tokens; since the start

    @property
    def conversations(self) -> int:
        """How many are remembered."""
        return len(self._conversations)

    def apply(self, table: RoutingTable) -> None:
        """Follow as many conversations as the table says; none: requests are not looked at."""
        self._conversations.resize(table.conversations)
        self._endings.on_end = self._ended if table.conversations else None

    def events(self, now_s: float, now: datetime) -> tuple[Eviction, ...]:
        """Return the newest evictions, the last one last; `now_s` is the same instant as `now`."""
        return tuple(note.dated(now_s, now) for note in self._kept)

    # Engines.

    def take_signals(self, feed: SignalFeed, now_s: float) -> None:
        """Let routing see what engines said of themselves, and count the streams they preempted."""
        for signals in feed.replicas:
            replica = self._routes.replicas.get(signals.id)
            if replica is None:
                continue
            replica.take_signals(signals, now_s)
            if replica.candidate.engine is not None:
                read_s = now_s - max(0.0, signals.age_s)
                kv = replica.kv_record
                kv.capacity_tokens = max(0.0, signals.kv_tokens)
                since_s = kv.last_reading_s()
                count = kv.read(read_s, signals.kv_usage, signals.preemptions, signals.prompt_tokens)
                if count:
                    self._preempted(replica, count, since_s if since_s is not None else read_s, read_s)

    def _preempted(self, replica: DispatchReplica, count: int, since_s: float, read_s: float) -> None:
        """Note streams that were preempted; the counter moves when one runs again, which may take a reading or two."""
        lane = replica.route.lane
        found = self._routes.lanes.get(lane)
        if found is not None:
            found.accounts.preempted(read_s, count)
        kv = replica.kv_record.period(since_s - READ_EVERY_S, read_s, self._present(replica, None, read_s))
        self._note(
            EvictionNote(
                seq=self.seq + 1,
                at_s=read_s,
                kind=EvictionKind.PREEMPTION,
                cause=EvictionCause.KV_PRESSURE,
                lane=lane,
                replica=replica.route.id,
                kv=kv,
                preempted=count,
            )
        )

    def _present(self, replica: DispatchReplica, but: ActiveRequest | None, now_s: float) -> Iterator[SentRequest]:
        for request in self._endings.active:
            if request.replica is replica and request is not but:
                yield sent_request(request, request.dispatched_s, now_s)

    # Conversations.

    def _ended(self, request: ActiveRequest, now_s: float) -> None:
        """Note the end of a request that a replica had, and whose prompt has a whole block at least.

        It is done for every request: in one function, for a call costs as much as what is done here.
        """
        attempt = request.attempt
        if attempt is None:
            return
        used, cached, stopwatch, client = (
            request.prompt_tokens_used, request.cached_tokens_used, request.stopwatch, request.client,
        )  # fmt: skip
        replica = self._routes.replicas.get(attempt.replica_id)
        kv = replica.kv_record if replica is not None else None
        if kv is not None and cached is not None:
            kv.reports_cached = True
        ttft_s = stopwatch.ttft_s
        # Of others nobody can tell whether their prompt was ever computed.
        if ttft_s is not None or used is not None:
            key, hashes, conversations = request.conversation, request.hashes, self._conversations
            before = conversations.repeated(client, hashes) if key is None else None
            if before is None:
                before = conversations.find(client, key or NO_KEY, hashes, run_blocks(request))
            expected = note = None
            if before is not None:
                if key is not None:
                    expected = tokens_in_common(before, key, hashes)
                # Half of all that it could have found is enough.
                if (cached is not None and 2 * cached <= before.prompt_tokens) or (
                    cached is None and kv is not None and kv.reports_cached
                ):
                    note = self._compare(request, replica, before, expected, now_s)
            tokens = request.prompt.prompt_tokens if used is None else used
            left = conversations.keep(
                before, client, key, hashes, request.size.text_bytes, tokens, attempt.replica_id, ttft_s, now_s
            )
            preempted = kv.preempted_since(attempt.at_s) if kv is not None and kv.preempted else 0
            if before is not None or preempted or left.name:
                request.turn_note = TurnNote(left, before, expected, note, preempted)
        if kv is not None:
            own = attempt.own_tokens if used is None else used - (cached or 0)
            made = stopwatch.token_count + request.output_tokens_uncounted
            kv.sent.append(
                SentRequest(attempt.at_s, now_s, client, request.client_name, request.lane.route.name, own, made)
            )

    def _compare(
        self,
        request: ActiveRequest,
        replica: DispatchReplica | None,
        before: Conversation,
        expected: int | None,
        now_s: float,
    ) -> EvictionNote | None:
        """Note that the engine found far less cached than there was. None: it found it, or does not say."""
        if expected is None:
            expected = before.block_tokens
        found_tokens = request.cached_tokens_used
        if found_tokens is None and replica is not None and replica.kv_record.reports_cached:
            found_tokens = 0  # SGLang leaves out what is 0
        if found_tokens is None or request.continuations or expected < LOST_TOKENS_MIN:
            return None
        lost = expected - found_tokens
        if lost < LOST_TOKENS_MIN or lost < LOST_SHARE_MIN * expected:
            return None
        cause, kv = self._cause(request, replica, before)
        lane = request.lane
        if cause is EvictionCause.KV_PRESSURE:
            lane.accounts.prefix_lost(now_s, lost)
        turn = LostTurn(
            conversation=before.label,
            turn=before.turns + 1,
            request_id=request.id.decode("latin-1"),
            replica_before=before.replica_id,
            cached_tokens_before=expected,
            cached_tokens=found_tokens,
            ttft_s_before=before.ttft_s,
            ttft_s=request.stopwatch.ttft_s,
        )
        return self._note(
            EvictionNote(
                seq=self.seq + 1,
                at_s=now_s,
                kind=EvictionKind.PREFIX,
                cause=cause,
                lane=lane.route.name,
                replica=request.attempt.replica_id if request.attempt is not None else "",
                kv=kv,
                lost=turn,
            )
        )

    def _cause(
        self, request: ActiveRequest, replica: DispatchReplica | None, before: Conversation
    ) -> tuple[EvictionCause, KvPeriod]:
        attempt = request.attempt
        if attempt is None or attempt.replica_id != before.replica_id:
            return self._moved(request, before), KvPeriod()
        if replica is None:
            return EvictionCause.REPLACED, KvPeriod()
        record: KvRecord = replica.kv_record
        if record.has_begun_anew(before.ended_s):
            return EvictionCause.RESTARTED, KvPeriod()
        period = record.period(before.ended_s, attempt.at_s, self._present(replica, request, attempt.at_s))
        usage, capacity = period.usage or 0.0, record.capacity_tokens or replica.candidate.kv.capacity_tokens
        # Blocks that nobody uses are given away in the order they were left: whoever takes as much as was free took these.
        is_filled = capacity > 0 and period.filled_tokens >= (1.0 - usage) * capacity
        if usage >= KV_FULL or is_filled:
            return EvictionCause.KV_PRESSURE, period
        return EvictionCause.UNKNOWN, period

    def _moved(self, request: ActiveRequest, before: Conversation) -> EvictionCause:
        attempt = request.attempt
        while attempt is not None:
            if attempt.replica_id == before.replica_id and attempt.failure is not None:
                return EvictionCause.FAILOVER
            attempt = attempt.before
        holder = self._routes.replicas.get(before.replica_id)
        if holder is None:
            return EvictionCause.REPLACED
        if not holder.candidate.in_rotation:
            return EvictionCause.DRAINED if holder.route.healthy else EvictionCause.FAILOVER
        return EvictionCause.FAILOVER if holder.candidate.ejected_until_s else EvictionCause.ROUTED

    def _note(self, note: EvictionNote) -> EvictionNote:
        self.seq = note.seq
        self._kept.append(note)
        counted = note.lane, note.replica, note.kind, note.cause
        count, tokens = self.counts.pop(counted, (0, 0))
        lost = note.lost
        more = lost.cached_tokens_before - lost.cached_tokens if lost is not None else 0
        self.counts[counted] = count + (note.preempted or 1), tokens + more
        while len(self.counts) > _COUNTED_MAX:
            del self.counts[next(iter(self.counts))]
        return note
