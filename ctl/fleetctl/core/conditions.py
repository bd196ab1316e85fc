"""The fixed status words, each with its reason, that every face shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from fleetctl.model.desired import Phase
from fleetctl.model.ladder import LadderStep
from fleetctl.model.slo import LatencyTarget, Metric, Quantiles, Validity

if TYPE_CHECKING:
    from fleetctl.model.status import FleetStatus, LaneStatus

WINDOW_S = 60.0  # the window figures are shown over
_WIDER_WINDOW_S = 300.0  # where a minute holds no request
_HEADLINES = (Metric.TTFT, Metric.COMPLETION, Metric.E2E, Metric.ITL, Metric.QUEUE_WAIT)


class Word(StrEnum):
    """A fleet's or a lane's condition, worst first."""

    STALE = "STALE"  # nobody answers: what is shown was true once
    STOPPING = "STOPPING"  # going down
    DOWN = "DOWN"  # nothing is left
    DEGRADED = "DEGRADED"  # fewer replicas than wanted and none on the way, a ladder step taken, or no gateway
    BREACH = "BREACH"  # measured outside its SLO
    STARTING = "STARTING"  # the missing replicas are on their way
    READY = "READY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A word and the clause that explains it."""

    word: Word
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """A lane's leading promise beside what was measured; `measured_s` None means no samples."""

    target: LatencyTarget
    measured_s: float | None
    validity: Validity

    @property
    def is_missed(self) -> bool:
        """Whether enough samples say the promise is broken."""
        return self.validity is Validity.OK and self.measured_s is not None and self.measured_s > self.target.limit_s


def fleet_condition(status: FleetStatus) -> Condition:
    """Return a fleet's word: its own, or its worst lane's."""
    if status.phase is Phase.DOWN:
        live = sum(lane.live for lane in status.lanes)
        if live or status.gateway_alive:
            return Condition(word=Word.STOPPING, reason=f"{live} replicas still hold a node")
        return Condition(word=Word.DOWN)
    if not status.controller_alive:
        return Condition(word=Word.STALE, reason="the controller does not answer; shown is what it last wrote down")
    lanes = {lane.name: lane_condition(lane) for lane in status.lanes}
    order = list(Word)
    name = min(lanes, key=lambda lane: order.index(lanes[lane].word), default="")
    worst = lanes[name] if name else Condition(word=Word.READY)
    if not status.gateway_alive and worst.word is not Word.STARTING:
        return Condition(word=Word.DEGRADED, reason="the gateway does not answer")
    return Condition(word=worst.word, reason=f"{name}: {worst.reason}" if worst.reason else status.reason)


def lane_condition(lane: LaneStatus) -> Condition:
    """Return a lane's word and why."""
    if lane.validity is Validity.STALE and lane.traffic is None:
        return Condition(word=Word.STALE, reason="no current figures")
    if lane.step > LadderStep.NORMAL:
        return Condition(word=Word.DEGRADED, reason=f"ladder step {step_name(lane.step)}")
    if lane.ready < lane.wanted:
        missing = f"{lane.ready} of {lane.wanted} replicas ready"
        return Condition(
            word=Word.STARTING if lane.ready + lane.pending >= lane.wanted else Word.DEGRADED, reason=missing
        )
    headline = lane_headline(lane)
    if headline is not None and headline.is_missed and headline.measured_s is not None:
        target = headline.target
        return Condition(
            word=Word.BREACH,
            reason=f"{target.metric} P{target.percentile * 100:g} {headline.measured_s:.3g}s > {target.limit_s:.3g}s",
        )
    return Condition(word=Word.READY)


def lane_headline(lane: LaneStatus) -> Headline | None:
    """Return the lane's leading promise and its measure over the last minute (else five); None without a promise."""
    for metric in _HEADLINES:
        target = lane.slo.strictest(metric)
        if target is not None:
            found = lane_quantiles(lane, metric)
            measured_s = found.at_s(target.percentile) if found.count else None
            return Headline(target=target, measured_s=measured_s, validity=found.validity)
    return None


def lane_quantiles(lane: LaneStatus, metric: Metric) -> Quantiles:
    """Return the lane's figures for a metric over the last minute, or five where the minute is empty."""
    if lane.traffic is None:
        return Quantiles()
    for seconds in (WINDOW_S, _WIDER_WINDOW_S):
        window = lane.traffic.window(seconds)
        found = {
            Metric.TTFT: window.ttft,
            Metric.ITL: window.itl,
            Metric.E2E: window.e2e,
            Metric.COMPLETION: window.e2e,
            Metric.QUEUE_WAIT: window.queue_wait,
        }[metric]
        if found.count:
            return found
    return Quantiles()


def step_name(step: LadderStep) -> str:
    """Return a ladder step as people write it."""
    return step.value


def step_of(word: str) -> LadderStep | None:
    """Return the ladder step of that name, or None."""
    return next((step for step in LadderStep if step.value == word), None)
