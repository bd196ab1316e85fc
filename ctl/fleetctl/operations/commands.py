"""How a person's command takes effect: written to the store, journalled, and the controller woken to act on it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from fleetctl.errors import UnavailableError
from fleetctl.model.action import EntryKind
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.journal import JournalEntry
from fleetctl.model.reason import ReasonCode
from fleetctl.paths import state_dir
from fleetctl.ports.host import COMMAND_LOCK
from fleetctl.ports.silence import SilenceReader

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fleetctl.model.subject import Subject
    from fleetctl.operations.site import Site
    from fleetctl.ports.lease import Lease, LeaseHolder

# An operation holds its lock while it writes and while it makes sure of a controller: seconds, not minutes.
_LOCK_WAIT_S = 60.0


def exclusive(site: Site, fleet: str) -> AbstractContextManager[None]:
    """Hold the lock that one command on a fleet has while it reads, decides and writes. Raises LockHeldError."""
    return site.host.exclusive(fleet, operation=COMMAND_LOCK, wait_s=_LOCK_WAIT_S, on_wait=site.tell)


def journal_command(site: Site, fleet: str, *, subject: Subject, action: str, reason: str) -> JournalEntry:
    """Journal what a person did."""
    entry = JournalEntry(
        seq=0,
        at=site.clock.now(),
        fleet=fleet,
        kind=EntryKind.OPERATOR,
        subject=subject,
        action=action,
        code=ReasonCode.OPERATOR,
        reason=reason,
    )
    return site.store.append((entry,))[0]


def ensure_controller(site: Site, fleet: str, *, within_s: float | None = None) -> None:
    """Return once the fleet's controller answers, or has done what was left to do. Raises UnavailableError.

    One that another machine keeps is left to it: it reads what was written with its next tick.
    """
    if kept_elsewhere(site, fleet) is not None:
        return
    try:
        site.host.ensure_controller(fleet, is_wanted=lambda: _should_be_up(site, fleet), within_s=within_s)
    except UnavailableError:
        # Another machine's was quicker: the one that was started here has found its lease, and ended.
        elsewhere = kept_elsewhere(site, fleet)
        if elsewhere is None:
            raise
        site.tell(f"{fleet} is kept by the controller on {elsewhere.holder.host}, which began just before this one")


def kept_elsewhere(site: Site, fleet: str) -> Lease | None:
    """Return the lease of another machine's controller that gave a sign of life lately, as far as our clocks agree."""
    if not site.store.is_shared or site.host.processes(fleet).has_controller:
        return None
    lease = site.store.lease(fleet)
    if lease is None or is_here(lease.holder):
        return None
    return lease if lease.is_living(site.clock.now()) else None


def why_silent(site: Site, fleet: str) -> str:
    """Return what keeps a fleet's controller from answering, where its host sees that from outside; empty: not known."""
    return site.host.why_silent(fleet) if isinstance(site.host, SilenceReader) else ""


def is_here(holder: LeaseHolder) -> bool:
    """Whether a lease's holder had its locks where this user has them, on this machine: then they tell whether it lives."""
    return (holder.host, holder.home) == (socket.gethostname(), str(state_dir()))


def wake_controller(site: Site, fleet: str) -> None:
    """Have a controller act at once on what was just written. Raises UnavailableError."""
    ensure_controller(site, fleet)
    site.host.wake(fleet)


def holds_nodes(site: Site, fleet: str) -> bool:
    """Say whether a fleet has a node or a shared resource on record, or a create whose outcome is not known."""
    is_any_live = any(r.state.is_live for r in site.store.replicas(fleet))
    return is_any_live or bool(site.store.open_intents(fleet) or site.store.shared_intents(fleet))


def _should_be_up(site: Site, fleet: str) -> bool:
    desired = site.store.fleet(fleet)
    return desired is not None and desired.phase is DesiredPhase.UP
