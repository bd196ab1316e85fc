"""What the gateway counts of workflows that are over, kind by kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fleetctl.model.slo import Quantiles
from fleetctl.model.workflows import ElapsedTarget


class WorkflowVerdict(StrEnum):
    """How a workflow that is over counts."""

    GOOD = "good"  # every call was answered, or repeated with success, and in all it took no longer than promised
    LATE = "late"  # answered, but it took longer
    FAILED = "failed"  # a call was never answered, and no repeat of it either
    CANCELLED = "cancelled"  # its client went before it was late, or asked for nothing that could be answered
    OVERGROWN = "overgrown"  # more calls than any action of a user: an id that a proxy uses for everything


@dataclass(frozen=True, slots=True, kw_only=True)
class ElapsedCount:
    """A target beside what a window holds of elapsed times."""

    target: ElapsedTarget
    samples: int = 0
    over: int = 0  # that took longer
    measured_s: float = 0.0  # at the target's percentile; 0 without samples

    @property
    def is_kept(self) -> bool:
        """Whether no more of them took longer than the target lets."""
        return self.over <= (1.0 - self.target.percentile) * self.samples + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowWindow:
    """Workflows of one kind that ended in the last `seconds`; 0: since the gateway started."""

    seconds: float
    ended: int = 0  # of every verdict but overgrown
    good: int = 0
    late: int = 0
    failed: int = 0
    cancelled: int = 0
    calls: int = 0  # that they made
    unanswered_calls: int = 0  # refused, failed or broken off; repeats may have made up for them
    depth_mean: float = 0.0  # calls of the longest chain
    fan_out_mean: float = 0.0  # the most calls that ran at once
    elapsed_s: float = 0.0  # of those answered, summed up: first call's submission to last call's end
    queue_s: float = 0.0  # of that, in our queues on the critical path
    client_s: float = 0.0  # and between the calls of it, where the client worked
    elapsed: Quantiles = field(default_factory=Quantiles)  # of those answered
    targets: tuple[ElapsedCount, ...] = ()

    @property
    def judged(self) -> int:
        """Return the workflows that count: those that ended well or did not."""
        return self.good + self.late + self.failed

    @property
    def calls_mean(self) -> float:
        """Return the calls of one; 0 without any."""
        return self.calls / self.ended if self.ended else 0.0

    @property
    def queue_share(self) -> float:
        """Return the share (0-1) of the elapsed time that was spent in our queues; 0 without any."""
        return self.queue_s / self.elapsed_s if self.elapsed_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowKindSnapshot:
    """One kind now."""

    kind: str  # empty: of no kind that the profile knows
    running: int  # workflows that are not over
    windows: tuple[WorkflowWindow, ...]  # 5 m, 1 h, and since the start

    @property
    def label(self) -> str:
        """Return what it is called where it needs a name; no kind of a profile can be called as the rest is."""
        return self.kind or "(other)"

    def window(self, seconds: float) -> WorkflowWindow:
        """Return the window of this length, or an empty one."""
        return next((each for each in self.windows if each.seconds == seconds), WorkflowWindow(seconds=seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSnapshot:
    """Every kind now, and what is in none of their figures, since the gateway started."""

    kinds: tuple[WorkflowKindSnapshot, ...] = ()
    singles: int = 0  # single calls with a trace id: nothing shared it, and nobody called them a workflow
    overgrown: int = 0  # workflows ended as they had too many calls
    ended_early: int = 0  # ended before they were idle for long, as there were too many
    untracked_calls: int = 0  # calls that found no place among the workflows held
    unlawful_ids: int = 0  # calls whose x-fleetctl-workflow no header may hold
    unknown_parents: int = 0  # calls whose x-fleetctl-parent names none of their workflow
