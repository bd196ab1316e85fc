"""Takes down fleets that no fleet may be called any more: they came before names were checked, or with a state from elsewhere.

No path is made of such a name, so no controller can be started for one and no lock be taken. Its processes are found by
their tags, and what it may have at its provider is left to `gc`, by a tombstone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.desired import DesiredPhase
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import FLEET
from fleetctl.operations.commands import journal_command
from fleetctl.operations.orphaned_processes import end_orphaned_processes, processes_of
from fleetctl.ports.store import IntentState, Tombstone

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.desired import Desired
    from fleetctl.operations.site import Site

_REASON = "taken down without a controller: no path is made of its name"


def take_down(site: Site, desired: Desired) -> None:
    """End its processes and forget it. Raises UnavailableError naming processes that do not end."""
    fleet, store, now = desired.fleet, site.store, site.clock.now()
    store.set_phase(fleet, DesiredPhase.DOWN, now=now)
    journal_command(site, fleet, subject=FLEET, action="down", reason=_REASON)
    end_orphaned_processes(site, processes_of(site, fleet))
    store.bury(_tombstone(desired, token=f"{store.owner}-{fleet}", now=now))
    for intent in store.open_intents(fleet):
        store.settle_intent(intent.token, IntentState.ABANDONED)
    for record in store.replicas(fleet):
        if record.state.is_live:
            store.put_replica(replace(record, state=ReplicaState.GONE, reason=_REASON, changed_at=now))
    for shared in store.shared_intents(fleet):
        tombstone = replace(_tombstone(desired, token=shared.token, now=now), shared=shared.resource)
        store.end_shared(shared.token, tombstone=tombstone)
    store.remove_fleet(fleet)


def _tombstone(desired: Desired, *, token: str, now: datetime) -> Tombstone:
    return Tombstone(
        token=token,
        provider=desired.profile.provider,
        fleet=desired.fleet,
        replica_id="",
        node_id="",
        offering="",
        ended_at=now,
        reason=_REASON,
    )
