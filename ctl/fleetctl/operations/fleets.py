"""What the faces ask of fleets. Every function but `watch` may block; in an event loop call them from a thread."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from fleetctl.core.conditions import no_controller, silent_controller
from fleetctl.errors import NotFoundError, UnavailableError
from fleetctl.model.action import EntryKind
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.journal import JournalEntry
from fleetctl.model.plan import LanePlan
from fleetctl.model.reason import ReasonCode
from fleetctl.model.status import FleetStatus, LaneStatus, ReplicaStatus
from fleetctl.model.subject import FLEET, GATEWAY, Subject, SubjectKind, subjects_named
from fleetctl.operations.commands import holds_nodes, kept_elsewhere, why_silent
from fleetctl.operations.gateway_reach import gateway_reach, head_status
from fleetctl.operations.lookup import fleet_names, known_fleet
from fleetctl.operations.subjects import subject_meant
from fleetctl.ports.host import STATUS_S
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from fleetctl.operations.site import Site

_RETRY_S = 0.5  # between two looks for a controller that is being revived
_POLL_S = 0.5  # between two looks for new entries of a journal
_EVICTIONS_LOOKED_AT = 500  # entries of the lanes
_JOURNAL_MAX = 100_000  # as many as a store keeps


def list_fleets(site: Site) -> tuple[FleetStatus, ...]:
    """Return every fleet's status, by name."""
    return tuple(status(site, name) for name in fleet_names(site))


def status(site: Site, fleet: str, *, deadline_s: float = STATUS_S) -> FleetStatus:
    """Return the controller's live status, else the stored one, marked STALE. Raises NotFoundError."""
    try:
        return _as_reached(site, site.host.status(fleet, deadline_s=deadline_s))
    except UnavailableError:
        from fleetctl.operations.stored_status import stored_status  # all that decides, which a live status needs not

        return _as_reached(site, stored_status(site, known_fleet(site, fleet)))


def _as_reached(site: Site, seen: FleetStatus) -> FleetStatus:
    """Return it with what its host knows better: its head, and the gateway's address, as a pod's controller knows the pod's alone."""
    seen = replace(seen, head=head_status(site, seen.fleet))
    reach = gateway_reach(site, seen.fleet)
    return seen if reach is None else replace(seen, gateway_url=reach.gateway_url())


def controller_absence(site: Site, fleet: str) -> str:
    """Return that a fleet which should have a controller has none: since when, and what to type; else empty."""
    desired = known_fleet(site, fleet)
    processes, lease = site.host.processes(fleet), site.store.lease(fleet)
    if processes.has_controller or kept_elsewhere(site, fleet) is not None:
        return ""
    if desired.phase is DesiredPhase.DOWN and not holds_nodes(site, fleet):
        return ""
    seen_at = lease.last_seen_at if lease is not None else None
    if trouble := why_silent(site, fleet):
        return silent_controller(trouble, at=site.clock.now(), seen_at=seen_at)
    return no_controller(fleet, desired.phase, at=site.clock.now(), seen_at=seen_at, has_gateway=processes.has_gateway)


async def watch(site: Site, fleet: str) -> AsyncIterator[FleetStatus]:
    """Yield a status a tick: live, or STALE ones while the controller is away; ends when the fleet is forgotten."""
    while True:
        try:
            async for live in site.host.stream(fleet):
                yield await asyncio.to_thread(_as_reached, site, live)
        except UnavailableError:
            pass  # shown below: a STALE status says it
        try:
            yield await asyncio.to_thread(status, site, fleet)
        except NotFoundError:
            return
        await site.clock.sleep(_RETRY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which lines of a journal are wanted; whatever is left empty matches all."""

    subject: str = ""  # a name, or `kind/name`
    kinds: frozenset[EntryKind] = frozenset()
    since: datetime | None = None

    def matches(self, entry: JournalEntry) -> bool:
        """Whether an entry is of a wanted kind and young enough; its subject is the store's to look for."""
        is_young = self.since is None or entry.at >= self.since
        return is_young and (not self.kinds or entry.kind in self.kinds)


def events(site: Site, fleet: str, query: EventQuery | None = None, *, limit: int = 100) -> tuple[JournalEntry, ...]:
    """Return the journal's newest entries that match, oldest first. A fleet that is gone keeps its journal."""
    query = query or EventQuery()
    is_sifted = bool(query.kinds) or query.since is not None
    found = site.store.journal(fleet, limit=_JOURNAL_MAX if is_sifted else limit, subjects=_subjects(query))
    return tuple(entry for entry in found if query.matches(entry))[-limit:]


def follow_events(
    site: Site, fleet: str, query: EventQuery, *, after: int, is_over: Callable[[], bool] = lambda: False
) -> Iterator[JournalEntry]:
    """Yield what is journalled from now on beyond `after` and matches, as it comes, each once.

    It goes on while controllers and gateways come and go, and ends once the fleet is gone and all of its journal was
    yielded, or `is_over` says so.
    """
    # What comes from now on is young enough, whatever a clock that is set says.
    wanted = replace(query, since=None)
    while not is_over():
        is_gone = site.store.fleet(fleet) is None
        # What does not match is passed for good, or every look would read all of it again.
        for entry in site.store.journal(fleet, after=after, limit=_JOURNAL_MAX, subjects=_subjects(query)):
            after = entry.seq
            if wanted.matches(entry):
                yield entry
        if is_gone:
            return
        site.clock.sleep_blocking(_POLL_S)


def _subjects(query: EventQuery) -> tuple[Subject, ...]:
    return subjects_named(query.subject) if query.subject else ()


def has_only_journal(site: Site, fleet: str) -> bool:
    """Say whether a fleet is gone and its journal is still there."""
    return bool(fleet) and site.store.fleet(fleet) is None and bool(site.store.journal(fleet, limit=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a lane, a replica or a fleet is as it is."""

    fleet: str
    subject: Subject
    now: str  # the latest reason
    lane: LaneStatus | None
    replica: ReplicaStatus | None
    plan: LanePlan | None  # of the subject's lane
    entries: tuple[JournalEntry, ...]  # newest last


def why(site: Site, fleet: str, subject: str = "", *, limit: int = 20) -> Explanation:
    """Return the decisions on a lane or a replica (its lane's plan beside them), or all of the fleet's.

    Raises NotFoundError, and ConfigError where a name means several things.
    """
    seen = status(site, fleet)
    desired = known_fleet(site, fleet)
    about = subject_meant(seen, subject) if subject else FLEET
    named = (about,) if about is not None else subjects_named(subject)
    entries = site.store.journal(fleet, limit=limit, subjects=named if subject else ())
    if about is not None and about.kind is SubjectKind.LANE:
        entries = _with_moves(site, seen, about.name, entries, limit=limit)
    if about is not None and about.kind is SubjectKind.REPLICA:
        entries = _with_evictions(site, seen, about.name, entries, limit=limit)
    if about is None and not entries:
        raise _unknown_subject(seen, subject)
    about = about or entries[-1].subject
    lane = next((lane for lane in seen.lanes if Subject.lane(lane.name) == about), None)
    replica = next((r for r in seen.replicas if Subject.replica(r.record.id) == about), None)
    lane_name = replica.record.lane if replica else (lane.name if lane else "")
    plan = next((p for p in desired.plan.lanes if p.lane == lane_name), None)
    now = replica.record.reason if replica else (lane.reason if lane else "")
    return Explanation(fleet=fleet, subject=about, now=now, lane=lane, replica=replica, plan=plan, entries=entries)


def _with_moves(
    site: Site, seen: FleetStatus, lane: str, entries: tuple[JournalEntry, ...], *, limit: int
) -> tuple[JournalEntry, ...]:
    """Return a lane's entries with those of replicas that came from another lane or went to one, newest last."""
    moved = tuple(Subject.replica(r.record.id) for r in seen.replicas if r.record.assigned_at is not None)
    found = site.store.journal(seen.fleet, limit=limit, subjects=moved) if moved else ()
    moves = [
        entry
        for entry in found
        if entry.code is ReasonCode.LANE_REASSIGNED
        and lane in (entry.inputs.get("to_lane"), entry.inputs.get("from_lane"))
    ]
    return tuple(sorted([*entries, *moves], key=lambda entry: entry.seq)[-limit:])


def _with_evictions(
    site: Site, seen: FleetStatus, replica: str, entries: tuple[JournalEntry, ...], *, limit: int
) -> tuple[JournalEntry, ...]:
    """Return a replica's entries with what its KV cache lost, which is journalled of its lane, newest last."""
    lanes = tuple(Subject.lane(lane.name) for lane in seen.lanes)
    found = site.store.journal(seen.fleet, limit=_EVICTIONS_LOOKED_AT, subjects=lanes)
    lost = [e for e in found if e.kind is EntryKind.EVICTION and e.inputs.get("replica") == replica]
    return tuple(sorted([*entries, *lost], key=lambda entry: entry.seq)[-limit:])


def _unknown_subject(seen: FleetStatus, subject: str) -> NotFoundError:
    subjects = [Subject.lane(lane.name) for lane in seen.lanes]
    subjects += [Subject.replica(r.record.id) for r in seen.replicas if r.record.state.is_live]
    subjects += [FLEET, GATEWAY]
    uses = Counter(known.name for known in subjects)
    # A lane may be called gateway: what its name alone does not say is written in full.
    known = [known.name if uses[known.name] == 1 else known.path for known in subjects]
    paths = [GATEWAY.path, FLEET.path, *(f"lane/{lane.name}" for lane in seen.lanes)]
    near = suggest(subject, paths if "/" in subject else known)
    return NotFoundError(
        f"fleet {seen.fleet!r} has no lane or replica {subject!r}{near}",
        hint=f"known: {', '.join(known)}",
    )
