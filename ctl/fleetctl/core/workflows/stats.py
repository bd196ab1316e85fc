"""What is counted of the workflows of one kind over a time, and how each counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.sketch import QuantileSketch
from fleetctl.core.workflows.workflow import ANSWERED
from fleetctl.model.workflow_figures import ElapsedCount, WorkflowVerdict, WorkflowWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.workflows.workflow import Workflow
    from fleetctl.model.workflows import ElapsedTarget

# Of which the elapsed time says how long a user waited for all that was wanted.
_WHOLE = frozenset((WorkflowVerdict.GOOD, WorkflowVerdict.LATE))


def verdict(workflow: Workflow) -> WorkflowVerdict:
    """Return how a workflow counts that is over, the gravest first."""
    if workflow.is_overgrown:
        return WorkflowVerdict.OVERGROWN
    if workflow.is_failed:
        return WorkflowVerdict.FAILED
    limit_s = workflow.kind.limit_s if workflow.kind is not None else None
    if limit_s is not None and workflow.elapsed_s > limit_s:
        return WorkflowVerdict.LATE  # giving up must not look like success
    return WorkflowVerdict.CANCELLED if _is_given_up(workflow) else WorkflowVerdict.GOOD


def _is_given_up(workflow: Workflow) -> bool:
    """Whether the client left at the end; of two calls with one body it may have wanted but one answer."""
    last = workflow.last_ended
    if not workflow.answered or last is None:
        return True
    if last.ending is not Ending.CANCELLED:
        return False
    return not any(call.fingerprint == last.fingerprint and call.ending in ANSWERED for call in workflow.calls)


class WorkflowStats:
    """Counts; merges; becomes a WorkflowWindow."""

    __slots__ = (
        "calls", "client_s", "counts", "depth", "elapsed", "ended", "fan_out", "queue_s", "unanswered_calls",
    )  # fmt: skip

    def __init__(self) -> None:
        self.ended = 0
        self.counts: dict[WorkflowVerdict, int] = {}
        self.calls = 0
        self.unanswered_calls = 0
        self.depth = 0
        self.fan_out = 0
        self.queue_s = 0.0
        self.client_s = 0.0
        self.elapsed = QuantileSketch()

    def add(self, workflow: Workflow, found: WorkflowVerdict) -> None:
        """Count one that is over."""
        self.ended += 1
        self.counts[found] = self.counts.get(found, 0) + 1
        self.calls += workflow.calls_begun
        self.unanswered_calls += workflow.unanswered_calls
        self.depth += workflow.depth
        self.fan_out += workflow.fan_out
        if found in _WHOLE:
            self.elapsed.add(workflow.elapsed_s)
            self.queue_s += workflow.path_queue_s
            self.client_s += workflow.path_client_s

    def merge(self, other: WorkflowStats) -> None:
        """Add everything `other` counted."""
        self._add(other, 1)
        self.elapsed.merge(other.elapsed)

    def remove(self, gone: Sequence[WorkflowStats], rest: Sequence[WorkflowStats]) -> None:
        """Take out what `gone` had added; `rest` is all else that was merged into this one."""
        for each in gone:
            self._add(each, -1)
        # Sums of seconds are made anew: what is taken out of one again leaves a rest that grows.
        self.queue_s = sum(each.queue_s for each in rest)
        self.client_s = sum(each.client_s for each in rest)
        self.elapsed.remove((each.elapsed for each in gone), (each.elapsed for each in rest))

    def _add(self, other: WorkflowStats, sign: int) -> None:
        self.ended += sign * other.ended
        self.calls += sign * other.calls
        self.unanswered_calls += sign * other.unanswered_calls
        self.depth += sign * other.depth
        self.fan_out += sign * other.fan_out
        self.queue_s += sign * other.queue_s
        self.client_s += sign * other.client_s
        for found, count in other.counts.items():
            self.counts[found] = self.counts.get(found, 0) + sign * count

    def window(self, seconds: float, targets: Sequence[ElapsedTarget]) -> WorkflowWindow:
        """Return these counts as the figures of a window of this length."""
        counts, elapsed = self.counts, self.elapsed
        measured_s = elapsed.quantiles(target.percentile for target in targets) if elapsed.count else []
        return WorkflowWindow(
            seconds=seconds,
            ended=self.ended,
            good=counts.get(WorkflowVerdict.GOOD, 0),
            late=counts.get(WorkflowVerdict.LATE, 0),
            failed=counts.get(WorkflowVerdict.FAILED, 0),
            cancelled=counts.get(WorkflowVerdict.CANCELLED, 0),
            calls=self.calls,
            unanswered_calls=self.unanswered_calls,
            depth_mean=self.depth / self.ended if self.ended else 0.0,
            fan_out_mean=self.fan_out / self.ended if self.ended else 0.0,
            elapsed_s=elapsed.sum_s,
            queue_s=self.queue_s,
            client_s=self.client_s,
            elapsed=elapsed.summary(),
            targets=tuple(
                ElapsedCount(
                    target=target,
                    samples=elapsed.count,
                    over=elapsed.count - elapsed.count_at_most(target.limit_s),
                    measured_s=value,
                )
                for target, value in zip(targets, measured_s or [0.0] * len(targets), strict=True)
            ),
        )
