"""Ends what people set by hand until an instant: in this very decision, then in the store and the journal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.core.expiry import ended, in_force
from fleetctl.model.action import EntryKind
from fleetctl.model.reason import ReasonCode

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.controller.journal import Journal
    from fleetctl.controller.write_behind import WriteBehindStore
    from fleetctl.model.desired import Desired


def end_overrides(desired: Desired, store: WriteBehindStore, journal: Journal, now: datetime) -> Desired:
    """Return the fleet's record without what has ended; the store and the journal follow, once."""
    over = ended(desired.overrides, now)
    if not over:
        return desired
    held = in_force(desired.overrides, now)
    entries = tuple(
        journal.line(EntryKind.OPERATOR, each.subject, each.action, ReasonCode.OVERRIDE_ENDED, each.reason)
        for each in over
    )
    store.put_overrides(held, expected=desired.overrides, entries=entries)
    return replace(desired, overrides=held)
