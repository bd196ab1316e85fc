"""Finds which thing of a fleet a person means: a name where it is unambiguous, else `kind/name`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError
from fleetctl.model.subject import FLEET, GATEWAY, Subject, SubjectKind, subjects_named

if TYPE_CHECKING:
    from fleetctl.model.status import FleetStatus


def subject_meant(seen: FleetStatus, text: str) -> Subject | None:
    """Return what of the fleet `text` names, a node by its replica; None: nothing of it. Raises ConfigError: several."""
    known = {found for named in subjects_named(text) if (found := _known(seen, named)) is not None}
    if len(known) > 1:
        paths = sorted(subject.path for subject in known)
        raise ConfigError(f"{text!r} means several things of fleet {seen.fleet!r}", hint=f"say {' or '.join(paths)}")
    return known.pop() if known else None


def _known(seen: FleetStatus, subject: Subject) -> Subject | None:
    match subject.kind:
        case SubjectKind.FLEET:
            return FLEET if subject.name in (FLEET.name, seen.fleet) else None
        case SubjectKind.GATEWAY:
            return subject if subject == GATEWAY else None
        case SubjectKind.LANE:
            return subject if any(lane.name == subject.name for lane in seen.lanes) else None
        case SubjectKind.REPLICA:
            return subject if any(r.record.id == subject.name for r in seen.replicas) else None
        case SubjectKind.NODE:
            found = (Subject.replica(r.record.id) for r in seen.replicas if r.record.node_id == subject.name)
            return next(found, None)
