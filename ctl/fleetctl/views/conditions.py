"""The tones of conditions, states and verdicts: the only place where one of them gets a colour."""

from __future__ import annotations

from fleetctl.core.conditions import Condition, ConditionType
from fleetctl.model.replica import ReplicaState
from fleetctl.views.table import Cell, Tone, cell

CONDITION_TONES = {
    ConditionType.READY: Tone.GOOD,
    ConditionType.STARTING: Tone.WARN,
    ConditionType.STOPPING: Tone.WARN,
    ConditionType.DEGRADED: Tone.WARN,
    ConditionType.STALE: Tone.BAD,
    ConditionType.BREACH: Tone.BAD,
    ConditionType.DOWN: Tone.DIM,
}

STATE_TONES = {
    ReplicaState.PENDING: Tone.WARN,
    ReplicaState.BOOTING: Tone.WARN,
    ReplicaState.WARMING: Tone.WARN,
    ReplicaState.READY: Tone.GOOD,
    ReplicaState.DRAINING: Tone.WARN,
    ReplicaState.STOPPING: Tone.WARN,
    ReplicaState.GONE: Tone.DIM,
    ReplicaState.FAILED: Tone.BAD,
}


def condition_cell(condition: Condition) -> Cell:
    """Return the condition's type in its tone."""
    return cell(condition.type.value, CONDITION_TONES[condition.type])


def condition_line(condition: Condition) -> Cell:
    """Return "DEGRADED  the gateway does not answer"."""
    message = f"  {condition.message}" if condition.message else ""
    return Cell(spans=(*condition_cell(condition).spans, (message, Tone.PLAIN)))


def verdict_cell(kept: bool | None) -> Cell:  # the verdict is the value shown
    """Return whether a promise was kept, "-" where there was none or nothing to measure."""
    if kept is None:
        return cell("-", Tone.DIM)
    return cell("kept", Tone.GOOD) if kept else cell("MISSED", Tone.BAD)
