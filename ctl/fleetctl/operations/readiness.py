"""Whether what an `up` wrote down is in force, and what is still missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.conditions import serves_nobody
from fleetctl.errors import EngineStartError, RolloutFailedError, UnavailableError
from fleetctl.model.profile import Mode, OnFailure
from fleetctl.model.replica import ReplicaState
from fleetctl.model.rollout import LanePhase, Revision, RolloutPhase, RolloutStatus
from fleetctl.operations.gateway_reach import gateway_answers, gateway_url
from fleetctl.ports.records import Collection, revision_key
from fleetctl.units import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.replica import Replica
    from fleetctl.model.status import FleetStatus, LaneStatus
    from fleetctl.operations.site import Site

_AT_WORK = (LanePhase.CANARY, LanePhase.ROLLING)
# `up` waits for no further start after so many; the fleet itself goes on trying, ever less often.
_FAILED_STARTS_MAX = 3
# A provider that fails for moments is waited for; a policy or a record that lets no decision be made does not mend itself.
_FAILING_S = 30.0


def is_ready(seen: FleetStatus) -> bool:
    """Say whether every lane has the replicas it wants and the gateway serves them."""
    alive = seen.controller_alive and seen.gateway_alive
    return alive and all(lane.ready >= lane.wanted and not serves_nobody(lane) for lane in seen.lanes)


def missing(site: Site, seen: FleetStatus, *, generation: int, revision: int | None = None) -> str:
    """Return what keeps this generation of a fleet's record from being in force; empty: it is, and serves.

    Given a revision, no other will do, whatever has become of that. The port is asked last, and by a connection: an address is only claimed where somebody answers.
    """
    if not seen.controller_alive:
        return "the controller does not answer"
    if seen.generation < generation:
        return f"the controller works by generation {seen.generation}, this is {generation}"
    # In shadow mode nothing is rolled out: nobody need wait for the end of that.
    if seen.mode is not Mode.SHADOW and (rolling := _rolling(seen, revision)):
        return rolling
    if short := [lane for lane in seen.lanes if lane.ready < lane.wanted]:
        return _ready(short)
    return _missing_at_gateway(seen, generation=generation) or _closed_port(site, seen.fleet)


def _rolling(seen: FleetStatus, revision: int | None) -> str:
    """Return how far a rollout is that is not over, or is to another revision than the one that is waited for.

    A first revision has no rollout to show, and one that came before the first was complete has none either: replicas
    enough are ready all the while, and may be of the one before.
    """
    rollout = seen.rollout
    if rollout is not None and rollout.phase is not RolloutPhase.COMPLETE:
        return f"the rollout of revision {rollout.revision} is {rollout.phase_text}: {rollout_text(rollout)}"
    if not seen.is_revision_complete:
        return f"revision {seen.revision} is not complete: {_ready(seen.lanes)}"
    if revision is not None and seen.revision not in {None, revision}:
        return f"revision {seen.revision} is in force, this is {revision}"
    return ""


def _ready(lanes: Iterable[LaneStatus]) -> str:
    return f"replicas ready: {', '.join(f'{lane.name} {lane.ready} of {lane.wanted}' for lane in lanes)}"


def rollout_text(rollout: RolloutStatus) -> str:
    """Return a rollout's lanes in a line."""
    lanes = (
        f"{lane.lane} {lane.phase}"
        + (f" {lane.updated_ready} new, {lane.outdated} old" if lane.phase in _AT_WORK else "")
        + (f" ({lane.note})" if lane.note and lane.phase is LanePhase.ROLLING else "")
        for lane in rollout.lanes
    )
    return ", ".join(lanes)


def refuse_failed_rollout(seen: FleetStatus, *, revision: int) -> None:
    """Raise RolloutFailedError where a revision has failed, whatever has come of it since."""
    rollout = seen.rollout
    if rollout is None:
        return
    if rollout.undoes == revision:
        back = f"revision {rollout.stable} takes its place again as revision {rollout.revision}"
        raise _rolled_back(seen.fleet, revision, rollout.reason, back=back)
    if rollout.revision == revision and rollout.phase is RolloutPhase.FAILED and rollout.on_failure is OnFailure.PAUSE:
        raise RolloutFailedError(
            f"revision {revision} failed, and everything stays as it is now: {rollout.reason}",
            hint="go back with `fleetctl rollout undo`, or try again with `fleetctl rollout resume`",
        )


def refuse_superseded(site: Site, seen: FleetStatus, *, revision: int) -> None:
    """Raise RolloutFailedError where a newer revision is in force than the one that is waited for, as is on record.

    One that was put back because this one failed is told of by the rollout itself; by its record where that is past it.
    """
    desired, fleet = site.store.fleet(seen.fleet), seen.fleet
    if desired is None or desired.revision <= revision:
        return
    for number in range(revision + 1, desired.revision + 1):
        found = site.store.find_record(Collection.ROLLOUTS, revision_key(number), fleet=fleet)
        newer = found.value_as(Revision) if found is not None else None
        if newer is None:
            continue
        if newer.failed is None:
            raise RolloutFailedError(
                f"revision {revision} is no longer wanted: revision {number} took its place, by {newer.by or 'somebody'} ({newer.why or 'up'})",
                hint=f"see: fleetctl rollout history {fleet}; fleetctl rollout status {fleet}",
            )
        if newer.failed == revision and seen.generation >= desired.generation:
            raise _rolled_back(fleet, revision, newer.failure, back=f"revision {number} took its place")


def _rolled_back(fleet: str, revision: int, why: str, *, back: str) -> RolloutFailedError:
    return RolloutFailedError(
        f"revision {revision} failed: {why}; {back}",
        hint=f"see why: fleetctl rollout status {fleet}; fleetctl events {fleet}",
    )


def _missing_at_gateway(seen: FleetStatus, *, generation: int) -> str:
    if not seen.gateway_alive:
        return "the gateway does not answer"
    failing = [lane.name for lane in seen.lanes if serves_nobody(lane)]
    if failing:
        return f"none of their replicas answers the gateway: {', '.join(failing)}"
    if seen.gateway_generation < generation:
        return f"the gateway works by the rules of generation {seen.gateway_generation}, this is {generation}"
    return ""


def refuse_final(seen: FleetStatus, *, generation: int) -> None:
    """Raise EngineStartError where an engine cannot start by this generation of the fleet's record, naming the cause."""
    if not seen.controller_alive or seen.generation < generation:
        return
    faults = {lane.name: f"the engine cannot start: {_cause(seen, lane)}" for lane in seen.lanes if lane.cannot_start}
    for lane in seen.lanes:
        if keeps_failing(seen, lane) and not lane.cannot_start:
            count = format_count(lane.failed_starts, "start")
            faults[lane.name] = f"{count} in a row failed and none succeeded, the last: {_cause(seen, lane)}"
    if faults:
        is_retried = not any(lane.cannot_start for lane in seen.lanes)
        goes_on = f"it is tried again meanwhile; to end that: fleetctl down {seen.fleet}; " if is_retried else ""
        raise EngineStartError(
            "\n".join(f"lane {name}: {fault}" for name, fault in faults.items()),
            hint=f"{goes_on}mend it and bring it up again: fleetctl up; all it wrote: fleetctl logs {_last_failed(seen, next(iter(faults)))} --fleet {seen.fleet}",
        )


def refuse_failing(seen: FleetStatus) -> None:
    """Raise UnavailableError where the controller answers, and has long decided nothing: waiting does not mend that."""
    since = seen.controller_failing_since
    if not seen.controller_alive or since is None or (seen.at - since).total_seconds() < _FAILING_S:
        return
    raise UnavailableError(
        f"the controller of {seen.fleet} decides nothing: {seen.reason}; so it has been for {format_duration((seen.at - since).total_seconds())}",
        hint=f"it goes on trying; all it wrote: fleetctl logs controller --fleet {seen.fleet}",
    )


def keeps_failing(seen: FleetStatus, lane: LaneStatus) -> bool:
    """Whether so many starts of a lane's engines have failed in a row that nobody need wait for the next one.

    Starts that the provider refused are not the engine's: capacity comes and goes.
    """
    return lane.failed_starts >= _FAILED_STARTS_MAX and bool(_cause(seen, lane))


def failed_starts(seen: FleetStatus, *, generation: int) -> list[str]:
    """Return a line for each lane whose starts fail by this generation of the fleet's record, and are tried again."""
    if not seen.controller_alive or seen.generation < generation:
        return []
    return [
        f"lane {lane.name}: {format_count(lane.failed_starts, 'start')} in a row failed: {cause}"
        for lane in seen.lanes
        if lane.failed_starts and not lane.cannot_start and (cause := _cause(seen, lane))
    ]


def waiting_starts(seen: FleetStatus, *, generation: int) -> list[str]:
    """Return a line for each reason for which nodes of a lane that lacks replicas do not run yet, in their provider's words."""
    if not seen.controller_alive or seen.generation < generation:
        return []
    found: dict[tuple[str, str], list[str]] = {}
    short = {lane.name for lane in seen.lanes if lane.ready < lane.wanted}
    for replica in seen.replicas:
        if replica.record.state.is_live and replica.record.lane in short and replica.pending_reason:
            found.setdefault((replica.record.lane, replica.pending_reason), []).append(replica.record.id)
    return [
        f"lane {lane}: {', '.join(ids)} {'waits' if len(ids) == 1 else 'wait'}: {why}"
        for (lane, why), ids in found.items()
    ]


def _cause(seen: FleetStatus, lane: LaneStatus) -> str:
    """Return what ended a lane's last start, in the engine's words where it had any; empty: none has failed."""
    if lane.engine_fault is not None:
        return lane.engine_fault.line
    failed = _failed(seen, lane.name)
    return failed[-1].fault if failed else ""


def _failed(seen: FleetStatus, lane: str) -> list[Replica]:
    failed = [r.record for r in seen.replicas if r.record.lane == lane and r.record.state is ReplicaState.FAILED]
    return sorted(failed, key=lambda record: record.created_at)


def _last_failed(seen: FleetStatus, lane: str) -> str:
    """Return the newest replica of a lane that has failed."""
    failed = _failed(seen, lane)
    return failed[-1].id if failed else "controller"


def _closed_port(site: Site, fleet: str) -> str:
    desired = site.store.fleet(fleet)
    if desired is None:
        return "the fleet was taken down meanwhile"
    if gateway_answers(site, desired.profile):
        return ""
    return f"nobody takes connections at {gateway_url(site, desired.profile)}"
