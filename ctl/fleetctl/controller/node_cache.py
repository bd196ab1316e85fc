"""What the provider has said of the fleet's nodes: listings, events and answers by token, merged by their age."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.model.node import Node, NodeListing, NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable

_READINGS_KEPT = 2  # as many as a decision believes
# An ended node is shown for as long as its replica's record is kept.
_ENDED_KEPT = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sighting:
    node: Node
    at: datetime  # what it says was so then
    notice_by_event: bool = False  # its notice is known from an event, which listings may not repeat

    def ends(self, node: Node) -> bool:
        """Whether this saw the end of what a later word shows, and so is the last one."""
        is_later = node.state is not NodeState.GONE and node.created_at > self.node.created_at
        return self.node.state is NodeState.GONE and not is_later

    def keeps_notice(self, *, is_event: bool) -> bool:
        """Whether its notice still holds once an event, or an answer, shows the node without one."""
        notice = self.node.notice
        return notice is not None and (notice.takes_node or is_event is not self.notice_by_event)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """One complete listing."""

    as_of: datetime
    tokens: frozenset[str]


class NodeCache:
    """Holds the latest word on each node by its token. A presence is believed at once, an absence is only counted.

    `lag_s`: a change may be missing from a listing for this long, so a listing says nothing of what is younger.
    """

    def __init__(self, *, lag_s: float, stop_again_s: float) -> None:
        self._lag = timedelta(seconds=lag_s)
        self._stop_again = timedelta(seconds=stop_again_s)
        self._seen: dict[str, _Sighting] = {}
        self._readings: tuple[_Reading, ...] = ()  # newest first
        self._denied: dict[str, tuple[datetime, ...]] = {}  # token -> asked by token and not there, newest first
        self._stopped: dict[str, datetime] = {}  # node id -> the provider took the order to end it

    @property
    def listed_as_of(self) -> datetime | None:
        """Of the latest complete listing; None before the first."""
        return self._readings[0].as_of if self._readings else None

    def put_listing(self, listing: NodeListing) -> bool:
        """Take a listing in, in parts or whole; return whether it brought news."""
        if self.listed_as_of is not None and listing.as_of < self.listed_as_of:
            # Listings are asked for one after the other: the clock was set back, and ages say nothing any more.
            self._seen, self._readings, self._denied, self._stopped = {}, (), {}, {}
        changed = [self.put_node(node, at=listing.as_of) for node in listing.nodes]
        if not listing.is_complete:
            return any(changed)
        reading = _Reading(as_of=listing.as_of, tokens=frozenset(node.token for node in listing.nodes))
        vanished = bool(self._readings) and not self._readings[0].tokens <= reading.tokens
        self._readings = (reading, *self._readings)[:_READINGS_KEPT]
        self._forget(listing.as_of)
        return vanished or any(changed)

    def put_node(self, node: Node, *, at: datetime, is_event: bool = False) -> bool:
        """Take in what was so of one node at an instant; return whether it is news.

        The end of a node is final, but not of its token: an order that was on its way while its node was made and ended,
        by another controller that asked again, makes a second one. A mere hint ends when whoever gave it, events or answers, shows the node without; a certain notice stays.
        """
        known = self._seen.get(node.token)
        if known is not None and (at < known.at or known.ends(node)):
            return False
        by_event = is_event
        if known is not None and node.notice is None and known.keeps_notice(is_event=is_event):
            # Listings of some providers do not show notices.
            node, by_event = replace(node, notice=known.node.notice), known.notice_by_event
        self._seen[node.token] = _Sighting(node=node, at=at, notice_by_event=by_event)
        self._denied.pop(node.token, None)
        return known is None or node != known.node

    def put_absent(self, token: str, *, at: datetime) -> None:
        """Note that the provider, asked for this token, knew no node."""
        self._denied[token] = (at, *self._denied.get(token, ()))[:_READINGS_KEPT]

    def put_stopped(self, node_id: str, *, at: datetime) -> None:
        """Note that the provider took the order to end a node."""
        self._stopped[node_id] = at

    def node(self, token: str, *, now: datetime) -> Node | None:
        """Return a node as last seen; None: never seen, or missing since from a listing that would show it."""
        sighting = self._seen.get(token)
        if sighting is None or (sighting.node.state is not NodeState.GONE and self._is_denied(token, sighting.at)):
            return None
        return self._as_stopped(sighting.node, now)

    def nodes(self, *, now: datetime) -> tuple[Node, ...]:
        """Return every node that is there as far as is known, ended ones included."""
        return tuple(node for token in self._seen if (node := self.node(token, now=now)) is not None)

    def absent_readings(self, token: str, *, since: datetime) -> int:
        """Return how many readings made after `since`, listings and answers by token, did not show it; 2 at most."""
        if self.is_seen_after(token, since):
            return 0
        listings = sum(token not in r.tokens and r.as_of - self._lag > since for r in self._readings)
        answers = sum(at > since for at in self._denied.get(token, ()))
        return min(_READINGS_KEPT, listings + answers)

    def is_seen_after(self, token: str, instant: datetime) -> bool:
        """Whether the node was shown alive as of then or later, and nothing has denied it since."""
        sighting = self._seen.get(token)
        return sighting is not None and sighting.at >= instant and not self._is_denied(token, sighting.at)

    def may_be_hidden(self, token: str, *, since: datetime) -> bool:
        """Whether no reading made so far could show what has happened to this token since then."""
        could = any(r.as_of - self._lag > since for r in self._readings)
        return not could and not any(at > since for at in self._denied.get(token, ()))

    def _is_denied(self, token: str, since: datetime) -> bool:
        """Whether a reading after `since` did not show it."""
        # Asked of every node several times a tick; nearly all are shown by every reading.
        for reading in self._readings:
            if token not in reading.tokens and reading.as_of - self._lag > since:
                return True
        return token in self._denied and any(at > since for at in self._denied[token])

    def _as_stopped(self, node: Node, now: datetime) -> Node:
        """Return the node as stopping for a while after its stop was taken: listings may not show that yet."""
        stopped = self._stopped.get(node.id)
        if stopped is None or node.state is NodeState.GONE or now - stopped > max(self._stop_again, self._lag):
            return node
        return replace(node, state=NodeState.STOPPING)

    def _forget(self, as_of: datetime) -> None:
        """Drop what no record can still ask for."""
        old = as_of - _ENDED_KEPT
        self._seen = {t: s for t, s in self._seen.items() if s.at > old or t in self._listed()}
        self._denied = {t: at for t, at in self._denied.items() if at[0] > old}
        self._stopped = {i: at for i, at in self._stopped.items() if at > old}

    def _listed(self) -> Iterable[str]:
        return self._readings[0].tokens
