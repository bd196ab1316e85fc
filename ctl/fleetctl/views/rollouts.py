"""A rollout as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.rollout import LanePhase, RolloutPhase
from fleetctl.views.table import Tone, cell, text_table

if TYPE_CHECKING:
    from fleetctl.model.rollout import RolloutStatus
    from fleetctl.views.table import Table

_TONES = {RolloutPhase.FAILED: Tone.BAD, RolloutPhase.ROLLING_BACK: Tone.BAD, RolloutPhase.PAUSED: Tone.WARN}
_LANE_TONES = {LanePhase.COMPLETE: Tone.GOOD}
_COLUMNS = "LANE PHASE >NEW >READY >OLD NOTE"


def rollout_line(rollout: RolloutStatus) -> str:
    """Return a rollout in a line: "revision 3 -> 4 canary", and why where it failed or undoes another."""
    text = f"revision {rollout.stable} -> {rollout.revision} {rollout.phase_text}"
    if rollout.undoes is not None:
        return f"{text}; revision {rollout.undoes} failed: {rollout.reason}"
    return f"{text}: {rollout.reason}" if rollout.reason else text


def rollout_tone(rollout: RolloutStatus) -> Tone:
    """Return how a rollout's line is coloured."""
    return _TONES.get(rollout.phase, Tone.PLAIN)


def rollout_table(rollout: RolloutStatus) -> Table:
    """Return a rollout's lanes in the order in which they are rolled: new replicas, those of them ready, old ones."""
    rows = (
        (
            lane.lane,
            cell(lane.phase.value, _LANE_TONES.get(lane.phase, Tone.PLAIN)),
            str(lane.updated),
            str(lane.updated_ready),
            str(lane.outdated),
            lane.note,
        )
        for lane in rollout.lanes
    )
    return text_table(_COLUMNS, rows)
