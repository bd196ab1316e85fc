"""Plays workflows: when each call is due, which follows on whose end, and what became of each workflow.

The simulation and the load client both play a trace's workflows by it, in their own clocks' seconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fleetctl.core.slo.judge import RUN_CONFIDENCE
from fleetctl.core.slo.promises import judge_elapsed
from fleetctl.core.slo.sketch import QuantileSketch
from fleetctl.load.calls import PlayedWorkflows
from fleetctl.load.trace import Arrival
from fleetctl.model.slo import Quantiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleetctl.load.calls import TraceCall
    from fleetctl.model.verdict import PromiseFinding
    from fleetctl.model.workflows import ElapsedTarget, WorkflowKind

# A client's libraries try a refused call two to five times; after so many its workflow fails.
CALL_TRIES_MAX: Final = 5
_KINDS_MAX = 64  # they come from a trace
UNNAMED_KIND: Final = "-"


@dataclass(slots=True)
class _OpenWorkflow:
    """One workflow from its first call's arrival until nothing of it is under way or to come."""

    kind: str
    count: int
    started_s: float
    last_due_s: float
    rows: dict[int, Arrival] = field(default_factory=dict)  # that came so far
    left: dict[int, int] = field(default_factory=dict)  # call -> how many of those it waits for have not ended
    followers: dict[int, list[int]] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)  # call -> whose end was the last it waited for
    queued_s: dict[int, float] = field(default_factory=dict)  # by call, along the critical path to its end
    backoff_s: dict[int, float] = field(default_factory=dict)  # the same
    tries: dict[int, int] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)  # calls that were answered in full, in that order
    under_way: int = 0  # sent, or due
    has_failed: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing more is heard of it."""
        return (
            not self.under_way and len(self.rows) == self.count and (self.has_failed or len(self.ended) == self.count)
        )

    def follow(self, number: int, parent: int) -> None:
        """Note whose end a call follows on: its critical path is that one's, and itself."""
        self.parents[number] = parent
        self.queued_s[number] = self.queued_s.get(parent, 0.0)
        self.backoff_s[number] = self.backoff_s.get(parent, 0.0)


class WorkflowPlayer:
    """Holds the workflows that are under way; what is over is summed up by kind."""

    def __init__(self, kinds: Iterable[WorkflowKind] = ()) -> None:
        self._known = {kind.name: kind for kind in kinds}
        self._open: dict[str, _OpenWorkflow] = {}
        self._kinds: dict[str, _KindCounts] = {}

    @property
    def open(self) -> int:
        """How many workflows have neither completed nor failed."""
        return sum(not each.has_failed for each in self._open.values())

    def over_by_s(self, call_s: float) -> float:
        """Return when every workflow that is open now is over, if no try of a call takes longer than `call_s`; 0: none is."""
        return max((_longest_s(each, call_s) for each in self._open.values() if not each.has_failed), default=0.0)

    def arrived(self, row: Arrival, now_s: float) -> float | None:
        """Take over a call as its trace has it; return when it is to be sent.

        None: it waits for others to end, or its workflow has failed already.
        """
        call = _call(row)
        found = self._open.get(call.workflow)
        if found is None:
            found = self._open[call.workflow] = _OpenWorkflow(call.kind, call.count, now_s, now_s)
            self._kind(call.kind).offered += 1
        found.rows[call.number] = row
        for before in call.after:
            found.followers.setdefault(before, []).append(call.number)
        # Those that it waits for may have ended already, where calls are fast and a workflow has many.
        ended = [before for before in found.ended if before in call.after]
        found.left[call.number] = len(call.after) - len(ended)
        if found.left[call.number] or found.has_failed:
            self._forget_if_over(call.workflow, found)
            return None
        if ended:
            found.follow(call.number, ended[-1])
        return self._due(found, call, now_s + call.think_s)

    def is_wanted(self, row: Arrival) -> bool:
        """Whether a call that has fallen due is still to be sent; where its workflow has failed meanwhile it is not."""
        call = _call(row)
        found = self._open.get(call.workflow)
        if found is None or not found.has_failed:
            return found is not None
        self._stopped(call, found)
        return False

    def parent(self, row: Arrival) -> TraceCall | None:
        """Return the call that a call follows on: whose end was the last it waited for."""
        call = _call(row)
        found = self._open.get(call.workflow)
        number = found.parents.get(call.number) if found is not None else None
        return _call(found.rows[number]) if found is not None and number is not None else None

    def completed(self, row: Arrival, now_s: float, *, queued_s: float | None = None) -> list[tuple[float, Arrival]]:
        """Note that a call was answered in full; return who follows on it, and when each is to be sent.

        `queued_s` is what it waited in the gateway; None: the client cannot know.
        """
        call = _call(row)
        found = self._open[call.workflow]
        found.under_way -= 1
        number = call.number
        found.ended.append(number)
        found.queued_s[number] = found.queued_s.get(number, 0.0) + (queued_s or 0.0)
        due = []
        if not found.has_failed:
            for following in found.followers.get(number, ()):
                found.left[following] -= 1
                if not found.left[following]:
                    found.follow(following, number)
                    after = found.rows[following]
                    due.append((self._due(found, _call(after), now_s + _call(after).think_s), after))
        if len(found.ended) == found.count and not found.has_failed:
            self._kind(found.kind).add(found, now_s, number, knows_queue=queued_s is not None)
        self._forget_if_over(call.workflow, found)
        return due

    def refused(self, row: Arrival, now_s: float, retry_after_s: float) -> float | None:
        """Note that a call was turned away; return when it is sent again. None: never, and its workflow has failed."""
        call = _call(row)
        found = self._open[call.workflow]
        tries = found.tries.get(call.number, 1)
        if tries >= CALL_TRIES_MAX or found.has_failed:
            self.failed(row, "refused")
            return None
        found.tries[call.number] = tries + 1
        found.backoff_s[call.number] = found.backoff_s.get(call.number, 0.0) + retry_after_s
        self._kind(found.kind).retries += 1
        found.last_due_s = max(found.last_due_s, now_s + retry_after_s)
        return now_s + retry_after_s

    def failed(self, row: Arrival, why: str) -> None:
        """Note that a call failed, and its workflow with it: none of the calls that have not been sent follows."""
        call = _call(row)
        found = self._open[call.workflow]
        if not found.has_failed:
            found.has_failed = True
            self._kind(found.kind).failed[why] += 1
        self._stopped(call, found)

    def figures(self, now_s: float, *, confidence: float = RUN_CONFIDENCE) -> tuple[PlayedWorkflows, ...]:
        """Return what became of every kind of workflows until now, in the order they first came.

        `confidence` (0-1) is how sure a miss of a promise has to be.
        """
        ages_s: dict[str, list[float]] = {name: [] for name in self._kinds}
        for each in self._open.values():
            if not each.has_failed:
                ages_s[self._name(each.kind)].append(now_s - each.started_s)
        return tuple(counts.figures(name, ages_s[name], confidence) for name, counts in self._kinds.items())

    def _due(self, found: _OpenWorkflow, call: TraceCall, at_s: float) -> float:
        if not found.ended:
            found.started_s = min(found.started_s, at_s) if found.under_way else at_s
        found.under_way += 1
        found.last_due_s = max(found.last_due_s, at_s)
        self._kind(call.kind).calls += 1
        return at_s

    def _stopped(self, call: TraceCall, found: _OpenWorkflow) -> None:
        found.under_way -= 1
        self._forget_if_over(call.workflow, found)

    def _forget_if_over(self, workflow: str, found: _OpenWorkflow) -> None:
        if found.is_over:
            del self._open[workflow]

    def _name(self, kind: str) -> str:
        is_known = kind in self._kinds or len(self._kinds) < _KINDS_MAX
        return kind if kind and is_known else UNNAMED_KIND

    def _kind(self, kind: str) -> _KindCounts:
        name = self._name(kind)
        if name not in self._kinds:
            known = self._known.get(kind)
            self._kinds[name] = _KindCounts(known.targets if known is not None else ())
        return self._kinds[name]


class _KindCounts:
    """The sums of one kind."""

    def __init__(self, targets: tuple[ElapsedTarget, ...]) -> None:
        self.targets = targets  # lowest percentile first
        self.limit_s = targets[-1].limit_s if targets else None
        self.late = [0 for _ in targets]  # of those completed, that took longer
        self.offered = self.completed = self.good = self.calls = self.retries = 0
        self.failed: Counter[str] = Counter()
        self.elapsed = QuantileSketch()
        self.queued_s = self.backoff_s = 0.0
        self.knows_queue = False

    def add(self, found: _OpenWorkflow, now_s: float, last: int, *, knows_queue: bool) -> None:
        """Count a workflow whose last call has ended now."""
        elapsed_s = now_s - found.started_s
        self.completed += 1
        self.elapsed.add(max(0.0, elapsed_s))
        self.good += self.limit_s is not None and elapsed_s <= self.limit_s
        self.late = [
            count + (elapsed_s > target.limit_s) for count, target in zip(self.late, self.targets, strict=True)
        ]
        self.queued_s += found.queued_s.get(last, 0.0)
        self.backoff_s += found.backoff_s.get(last, 0.0)
        self.knows_queue = knows_queue

    def figures(self, kind: str, ages_s: Sequence[float], confidence: float) -> PlayedWorkflows:
        """Return them as they are shown; `ages_s` is how long those run that are under way."""
        undecided = sum(self.limit_s is None or age_s <= self.limit_s for age_s in ages_s)
        decided, whole_s = self.offered - undecided, self.elapsed.sum_s
        is_judged = self.limit_s is not None
        return PlayedWorkflows(
            kind=kind,
            offered=self.offered,
            completed=self.completed,
            failed=dict(sorted(self.failed.items())),
            undecided=undecided,
            good=self.good if is_judged else None,
            good_share=self.good / decided if is_judged and decided else None,
            limit_s=self.limit_s,
            calls=self.calls,
            retries=self.retries,
            elapsed=self.elapsed.summary() if self.completed else Quantiles(),
            queued_share=self.queued_s / whole_s if self.knows_queue and whole_s else None,
            backoff_share=self.backoff_s / whole_s if whole_s else None,
            promises=tuple(
                self._promise(target, late, ages_s, confidence)
                for target, late in zip(self.targets, self.late, strict=True)
            ),
        )

    def _promise(self, target: ElapsedTarget, late: int, ages_s: Sequence[float], confidence: float) -> PromiseFinding:
        over = sum(age_s > target.limit_s for age_s in ages_s)
        failed = sum(self.failed.values())
        return judge_elapsed(
            target,
            measured_s=self.elapsed.quantile(target.percentile) if self.elapsed.count else None,
            samples=self.completed + failed + over,
            missed=late + failed + over,
            undecided=len(ages_s) - over,
            confidence=confidence,
        )


def _call(row: Arrival) -> TraceCall:
    if row.call is None:
        raise AssertionError("only calls of a workflow are played here")
    return row.call


def _longest_s(found: _OpenWorkflow, call_s: float) -> float:
    left = found.count - len(found.ended)
    thinks_s = sum(_call(row).think_s for row in found.rows.values())
    return found.last_due_s + thinks_s + left * CALL_TRIES_MAX * call_s
