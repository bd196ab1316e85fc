"""The decision journal's lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from fleetctl.model.action import EntryKind
from fleetctl.model.reason import ReasonCode
from fleetctl.model.subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One line of the decision journal: what was done (or would be, in shadow), and on what grounds."""

    seq: int
    at: datetime
    fleet: str
    kind: EntryKind
    subject: Subject
    action: str  # "launch", "drain", "set-step", ...
    code: ReasonCode = ReasonCode.UNKNOWN
    reason: str
    shadow: bool = False
    ok: bool = True  # the action succeeded
    inputs: dict[str, float | str] = field(default_factory=dict)
    epoch: int = 0  # of the lease of the controller that wrote it; 0: a command did
