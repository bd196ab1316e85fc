"""Bounds how often people and runbooks take something away from one fleet: a loop that has gone wrong is stopped."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.errors import DisruptionLimitError
from fleetctl.model.audit import AuditResult
from fleetctl.operations.audit import audit_log

if TYPE_CHECKING:
    from fleetctl.model.audit import AuditRecord
    from fleetctl.operations.site import Site

WINDOW_S = 60.0
COMMANDS_MAX = 10
_DISRUPTIVE = frozenset({"drain", "interrupt"})


def refuse_too_many(site: Site, fleet: str, *, force: bool) -> None:
    """Raise DisruptionLimitError where a fleet was drained or interrupted often enough lately, unless that is forced."""
    if force:
        return
    since = site.clock.now() - timedelta(seconds=WINDOW_S)
    found = audit_log(site, fleet=fleet, since=since)
    done = [e for e in found if e.action in _DISRUPTIVE and (e.result is AuditResult.OK or _was_done(e))]
    if len(done) >= COMMANDS_MAX:
        raise DisruptionLimitError(
            f"{fleet} was drained or interrupted {len(done)} times within {WINDOW_S:.0f}s, last by {done[-1].actor.name or 'somebody'}",
            hint="wait a minute, or pass --force",
        )


def _was_done(entry: AuditRecord) -> bool:
    """Whether one that ended badly took something away all the same, such as a drain that was still on its way."""
    return entry.result is AuditResult.FAILED and bool(entry.changes)
