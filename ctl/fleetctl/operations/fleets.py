"""What the faces ask of fleets. Every function may block on files and sockets; call them from a thread in a loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK, Clock
from fleetctl.errors import NotFoundError, UnavailableError
from fleetctl.model.decision import JournalEntry
from fleetctl.model.plan import LanePlan
from fleetctl.model.status import FleetStatus, LaneStatus, ReplicaStatus
from fleetctl.model.subject import FLEET, Subject, subjects_named
from fleetctl.operations import controller_api
from fleetctl.operations.access import fleet_names, known_fleet, opened_store
from fleetctl.operations.remembered import remembered_status
from fleetctl.operations.subjects import subject_meant
from fleetctl.paths import state_db

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleetctl.model.desired import Desired

_SILENT_PAUSE_S = 0.5  # between two looks for a controller that is being revived


def list_fleets() -> tuple[FleetStatus, ...]:
    """Return every fleet's status, by name."""
    return tuple(status(name) for name in fleet_names())


def status(fleet: str, *, deadline_s: float = controller_api.ANSWER_S) -> FleetStatus:
    """Return the controller's live status, else what the store remembers, marked STALE. Raises NotFoundError."""
    try:
        return controller_api.live_status(fleet, deadline_s=deadline_s)
    except UnavailableError:
        with opened_store() as store:
            return remembered_status(store, known_fleet(store, fleet))


def recorded(fleet: str) -> Desired | None:
    """Return what the fleet should be, or None for no such fleet."""
    if fleet not in fleet_names():
        return None
    with opened_store() as store:
        return store.fleet(fleet)


async def watch(fleet: str, *, clock: Clock = SYSTEM_CLOCK) -> AsyncIterator[FleetStatus]:
    """Yield a status a tick: live, or STALE ones while the controller is away; ends when the fleet is forgotten."""
    while True:
        try:
            async for live in controller_api.stream(fleet):
                yield live
        except UnavailableError:
            pass  # shown below: a STALE status says it
        try:
            yield await asyncio.to_thread(status, fleet)
        except NotFoundError:
            return
        await clock.sleep(_SILENT_PAUSE_S)


def events(fleet: str, *, after: int = 0, limit: int = 100, subject: str = "") -> tuple[JournalEntry, ...]:
    """Return the journal's newest entries after `after`, oldest first; those on a name, or on one `kind/name`.

    A fleet that is gone keeps its journal.
    """
    subjects = subjects_named(subject) if subject else ()
    with opened_store() as store:
        return store.journal(fleet, after=after, limit=limit, subjects=subjects)


def is_remembered(fleet: str) -> bool:
    """Say whether a fleet is gone and its journal is still there."""
    return bool(fleet) and state_db().exists() and fleet not in fleet_names() and bool(events(fleet, limit=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a lane, a replica or a fleet is as it is."""

    fleet: str
    subject: Subject
    now: str  # the latest words on it
    lane: LaneStatus | None
    replica: ReplicaStatus | None
    plan: LanePlan | None  # of the subject's lane
    entries: tuple[JournalEntry, ...]  # newest last


def why(fleet: str, subject: str = "", *, limit: int = 20) -> Explanation:
    """Return the decisions on a lane or a replica (its lane's plan beside them), or all of the fleet's.

    Raises NotFoundError, and ConfigError where a name means several things.
    """
    seen = status(fleet)
    about = subject_meant(seen, subject) if subject else FLEET
    named = (about,) if about is not None else subjects_named(subject)
    with opened_store() as store:
        desired = known_fleet(store, fleet)
        entries = store.journal(fleet, limit=limit, subjects=named if subject else ())
    if about is None and not entries:
        known = [lane.name for lane in seen.lanes] + [r.record.id for r in seen.replicas if r.record.state.is_live]
        raise NotFoundError(f"fleet {fleet!r} has no lane or replica {subject!r}", hint=f"known: {', '.join(known)}")
    about = about or entries[-1].subject
    lane = next((lane for lane in seen.lanes if Subject.lane(lane.name) == about), None)
    replica = next((r for r in seen.replicas if Subject.replica(r.record.id) == about), None)
    lane_name = replica.record.lane if replica else (lane.name if lane else "")
    plan = next((p for p in desired.plan.lanes if p.lane == lane_name), None)
    now = replica.record.reason if replica else (lane.reason if lane else "")
    return Explanation(fleet=fleet, subject=about, now=now, lane=lane, replica=replica, plan=plan, entries=entries)
