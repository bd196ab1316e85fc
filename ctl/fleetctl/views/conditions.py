"""The tones of conditions, states and verdicts: the only place where one of them gets a colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.conditions import Condition, ConditionType
from fleetctl.model.replica import ReplicaState
from fleetctl.model.verdict import Compliance
from fleetctl.views.canvas import PLAIN
from fleetctl.views.table import NOTHING, Cell, Tone, cell

if TYPE_CHECKING:
    from fleetctl.model.verdict import SloVerdict
    from fleetctl.views.canvas import Glyphs

CONDITION_TONES = {
    ConditionType.READY: Tone.GOOD,
    ConditionType.STARTING: Tone.WARN,
    ConditionType.STOPPING: Tone.WARN,
    ConditionType.DEGRADED: Tone.WARN,
    ConditionType.ALERT: Tone.WARN,
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


def verdict_cell(verdict: SloVerdict, marks: Glyphs = PLAIN) -> Cell:
    """Return whether the SLO was kept, marked where that rests on few samples; "-" where there was nothing to judge."""
    is_sure = all(finding.is_sure for finding in verdict.findings if finding.samples)
    return compliance_cell(verdict.compliance, is_sure=is_sure, marks=marks)


def compliance_cell(compliance: Compliance, *, is_sure: bool, marks: Glyphs) -> Cell:
    """Return the same of a verdict that is made of whatever promises; `is_sure`: what was kept does not rest on few samples."""
    match compliance:
        case Compliance.NONE:
            return cell(NOTHING, Tone.DIM)
        case Compliance.MISSED:
            return cell("MISSED", Tone.BAD)
        case Compliance.UNDECIDED:
            return cell("undecided", Tone.WARN)
        case Compliance.KEPT:
            return cell("kept" if is_sure else f"{marks.few}kept", Tone.GOOD)
