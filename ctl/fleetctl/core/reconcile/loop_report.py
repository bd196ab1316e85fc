"""What the journal says of answers that repeat themselves: that a lane has some, and again after a while if it still has."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.model.loop_report import ReportLoops
from fleetctl.model.reason import ReasonCode
from fleetctl.units import format_count, format_duration

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.decision import LaneMemory
    from fleetctl.model.gateway import LaneSnapshot

# Loops come in storms: a model or a template that loops does so for many. Once in so long says it.
_AGAIN_AFTER = timedelta(minutes=10)
_NEWS_S, _SHOWN_S = 60.0, 300.0


def report_loops(
    lane: str, memory: LaneMemory, traffic: LaneSnapshot | None, now: datetime
) -> tuple[LaneMemory, tuple[ReportLoops, ...]]:
    """Return what is to be journalled of a lane's answers that repeat themselves, and the memory that it was."""
    if traffic is None or not traffic.window(_NEWS_S).looped:
        return memory, ()
    if memory.looped_at is not None and now - memory.looped_at < _AGAIN_AFTER:
        return memory, ()
    window = traffic.window(_SHOWN_S)
    reported = ReportLoops(
        lane=lane,
        code=ReasonCode.ANSWERS_LOOP,
        reason=f"{_found(window.looped)} in {format_duration(_SHOWN_S)}, in which {format_count(window.finished, 'request')} "
        f"finished; which: fleetctl requests --lane {lane}",
        looped=window.looped,
        finished=window.finished,
        window_s=_SHOWN_S,
    )
    return replace(memory, looped_at=now), (reported,)


def _found(looped: int) -> str:
    return "1 answer was found to repeat itself" if looped == 1 else f"{looped} answers were found to repeat themselves"
