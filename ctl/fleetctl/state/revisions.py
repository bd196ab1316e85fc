"""A fleet's revisions in the store: each beside the record that it is in force by, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.rollout import Revision
from fleetctl.ports.records import Collection, StoredRecord, revision_key
from fleetctl.state import records, rows

if TYPE_CHECKING:
    import sqlite3
    from datetime import datetime

    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile


def following(before: Desired | None, profile: Profile, plan: Plan, *, now: datetime, keeps_overrides: bool) -> Desired:
    """Return a fleet's record with this profile and plan in force: a new revision, unless they were so before.

    An `up` lets go of what is set by hand on lanes; what takes another revision's place by itself does not.
    """
    kept = before.overrides if before is not None and keeps_overrides else rows.overrides_after_up(before)
    is_same = before is not None and (before.profile, before.plan) == (profile, plan)
    revision = 0 if before is None else before.revision
    return Desired(
        fleet=profile.name,
        phase=DesiredPhase.UP,
        generation=before.generation + 1 if before else 1,
        profile=profile,
        plan=plan,
        overrides=kept,
        created_at=before.created_at if before else now,
        changed_at=now,
        revision=revision if is_same and revision else revision + 1,
    )


def keep(
    db: sqlite3.Connection, before: Desired | None, desired: Desired, *, by: str, why: str, undoes: int | None
) -> None:
    """Store the revision that comes into force; and the one before, where that came before revisions were kept."""
    if before is not None and before.revision == 0:
        _write(db, before, Revision(number=0, profile=before.profile, plan=before.plan, at=before.changed_at))
    if before is None or before.revision != desired.revision:
        _write(
            db,
            desired,
            Revision(
                number=desired.revision,
                profile=desired.profile,
                plan=desired.plan,
                at=desired.changed_at,
                by=by,
                why=why,
                undoes=undoes,
            ),
        )


def _write(db: sqlite3.Connection, of: Desired, revision: Revision) -> None:
    key = revision_key(revision.number)
    records.write(db, StoredRecord.of(Collection.ROLLOUTS, key, revision, at=revision.at, fleet=of.fleet))
