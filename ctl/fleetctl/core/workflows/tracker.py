"""Which requests belong together: workflows as they begin, run and end, in bounded memory.

A workflow is its client's and its id's: two clients never share one, whatever ids they send. What is beyond a bound is
counted and never held. Everything is a few operations a call, however many workflows and calls there are.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.windows import SlidingWindows
from fleetctl.core.workflows.call import WorkflowCall
from fleetctl.core.workflows.stats import WorkflowStats, verdict
from fleetctl.core.workflows.workflow import Workflow
from fleetctl.model.workflow_figures import WorkflowKindSnapshot, WorkflowSnapshot, WorkflowVerdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.core.slo.sketch import QuantileSketch
    from fleetctl.core.workflows.call import CallRequest
    from fleetctl.model.workflows import WorkflowKind, WorkflowsSpec

FIGURES_S = (300.0, 3600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowLimits:
    """What is held at most; a workflow takes a kilobyte, and a call of it 0.3."""

    running_max: int = 16_384  # workflows that are not over, of which one client may have half
    calls_max: int = 10_000  # of one; an id with more is a proxy's that uses it for everything
    calls_kept_max: int = 128  # of one, to be drawn
    calls_kept_in_all: int = 65_536
    ended_max: int = 512  # the last that ended, to be looked at
    missed_max: int = 256  # and those of them that were not good, for longer


@dataclass(frozen=True, slots=True, kw_only=True)
class CallIdentity:
    """How a request says what it belongs to."""

    workflow_id: str
    is_by_trace: bool = False  # a trace id
    kind: str = ""  # empty: it names none
    parent: bytes = b""  # the id of the request that it depends on; empty: it names none


class WorkflowTracker:
    """Every workflow of a gateway, or of a simulated one. `now_s` is any clock that does not go back."""

    def __init__(self, spec: WorkflowsSpec, *, now_s: float, limits: WorkflowLimits | None = None) -> None:
        self._limits = limits or WorkflowLimits()
        self._counts = WorkflowSnapshot()
        self._clients: dict[int, _ClientWorkflows] = {}
        self._running = 0
        self._running_of: dict[str, int] = {}  # by kind
        self._idle: dict[Workflow, None] = {}  # without a running call, the longest idle first
        self._ended: deque[Workflow] = deque()
        self._missed: deque[Workflow] = deque()
        self._seq = self._kept = 0
        self._stats: dict[str, SlidingWindows[WorkflowStats]] = {}
        self.apply(spec, now_s)

    def apply(self, spec: WorkflowsSpec, now_s: float) -> None:
        """Go by another specification; a workflow stays of the kind that it began as."""
        self._spec = spec
        self._kinds = {kind.name: kind for kind in spec.kinds}
        names = ("", *self._kinds)
        self._stats = {name: self._stats.get(name) or SlidingWindows(WorkflowStats, now_s=now_s) for name in names}

    # Calls.

    def begin(  # noqa: PLR0913  # what a call is known by
        self,
        request: CallRequest,
        named: CallIdentity,
        *,
        client: int,
        call_id: bytes,
        lane: str,
        fingerprint: int,
        client_name: str = "",
    ) -> tuple[Workflow, WorkflowCall] | None:
        """Note a call that begins when its stopwatch started. None: there is no place for it, which is counted.

        `client` is an opaque key of whoever sent it, `client_name` what that is called, where it has a name; `fingerprint` is
        equal for requests that ask the same.
        """
        now_s = request.stopwatch.started_s
        workflow = self._workflow(named, client, client_name, lane, now_s)
        if workflow is None or workflow.is_overgrown:
            self._count(untracked_calls=1)
            return None
        before = self._before(workflow, named.parent)
        is_kept = len(workflow.calls) < self._limits.calls_kept_max and self._kept < self._limits.calls_kept_in_all
        depth, queue_s, calls_s = _chain(workflow, before, now_s)
        call = WorkflowCall(
            workflow_id=workflow.id,
            number=workflow.calls_begun,
            id=call_id,
            lane=lane,
            started_s=now_s,
            before=before.number if before is not None else None,
            is_named=before is not None and before.id == named.parent,
            depth=depth,
            chain_queue_s=queue_s,
            chain_calls_s=calls_s,
            fingerprint=fingerprint,
        )
        self._kept += is_kept
        workflow.begin(call, request, is_kept=is_kept)
        self._idle.pop(workflow, None)
        self._clients[client].idle.pop(workflow, None)
        workflow.is_overgrown = workflow.calls_begun >= self._limits.calls_max
        return workflow, call

    def end(
        self, workflow: Workflow, call: WorkflowCall, request: CallRequest, *, prompt_tokens: int, output_tokens: int
    ) -> None:
        """Note that a call is over, as its stopwatch says."""
        watch, attempt = request.stopwatch, request.attempt
        now_s = max(watch.ended_s, workflow.last_end_s)
        call.queue_s = watch.wait_s if watch.wait_s is not None else now_s - call.started_s
        call.ttft_s = watch.ttft_s
        call.prompt_tokens, call.output_tokens = prompt_tokens, output_tokens
        call.replica = attempt.replica_id if attempt is not None else ""
        workflow.end(call, watch.ending or Ending.REFUSED, now_s)
        if workflow.is_idle and workflow.verdict is None:
            self._idle[workflow] = None
            self._clients[workflow.client].idle[workflow] = None

    def _workflow(self, named: CallIdentity, client: int, client_name: str, lane: str, now_s: float) -> Workflow | None:
        """Return the workflow that a call belongs to, perhaps a new one. None: there are too many."""
        own = self._clients.get(client)
        found = own.by_id.get(named.workflow_id) if own is not None else None
        if found is not None:
            if not found.is_idle or now_s - found.last_end_s <= self._spec.idle_s:
                return found
            self._over(found, now_s)
            own = self._clients.get(client)
        if not self._has_place(own, now_s):
            return None
        kind = self._kind(named, lane)
        made = Workflow(named.workflow_id, client, client_name, kind, now_s, is_by_trace=named.is_by_trace)
        own = self._clients.setdefault(client, _ClientWorkflows())  # its last one may just have made place
        own.by_id[made.id] = made
        self._running += 1
        self._running_of[_name(made)] = self._running_of.get(_name(made), 0) + 1
        return made

    def _kind(self, named: CallIdentity, lane: str) -> WorkflowKind | None:
        return self._kinds.get(named.kind) if named.kind else self._spec.kind_of_lane(lane)

    def _has_place(self, own: _ClientWorkflows | None, now_s: float) -> bool:
        """Make place for one more, by ending the one that has been idle for longest: the client's own, where it has many."""
        most = self._limits.running_max
        if own is not None and len(own.by_id) >= max(1, most // 2):
            idle = own.idle
        elif self._running >= most:
            idle = self._idle
        else:
            return True
        oldest = next(iter(idle), None)
        if oldest is None:
            return False
        self._over(oldest, now_s)
        self._count(ended_early=1)
        return True

    def _before(self, workflow: Workflow, parent: bytes) -> WorkflowCall | None:
        """Return the call that a new one depends on: the one its client names, else the last that has ended."""
        last = workflow.last_ended
        if parent:
            kept = (call for call in reversed(workflow.calls) if call.id == parent)
            found = last if last is not None and last.id == parent else next(kept, None)
            if found is not None:
                return found
            self._count(unknown_parents=1)
        return last

    # Ends.

    def sweep(self, now_s: float) -> None:
        """End the workflows that have been idle for long."""
        while self._idle:
            oldest = next(iter(self._idle))
            if now_s - oldest.last_end_s <= self._spec.idle_s:
                return
            self._over(oldest, now_s)

    def _over(self, workflow: Workflow, now_s: float) -> None:
        own = self._clients[workflow.client]
        del own.by_id[workflow.id]
        own.idle.pop(workflow, None)
        self._idle.pop(workflow, None)
        if not own.by_id:
            del self._clients[workflow.client]
        self._running -= 1
        self._running_of[_name(workflow)] -= 1
        workflow.verdict = found = verdict(workflow)
        if workflow.is_by_trace and workflow.calls_begun == 1:
            self._kept -= len(workflow.calls)
            self._count(singles=1)
            return
        if found is WorkflowVerdict.OVERGROWN:
            self._count(overgrown=1)
        else:
            stats = self._stats.get(_name(workflow))
            if stats is not None:  # its kind may have left the profile
                stats.open_cell(now_s).add(workflow, found)
        self._keep(workflow)

    def _keep(self, workflow: Workflow) -> None:
        """Hold one that is over to be looked at: those that were not good for longer."""
        self._seq += 1
        workflow.seq = self._seq
        self._ended.append(workflow)
        if len(self._ended) <= self._limits.ended_max:
            return
        forgotten = self._ended.popleft()
        if forgotten.verdict is not WorkflowVerdict.GOOD:
            self._missed.append(forgotten)
            if len(self._missed) <= self._limits.missed_max:
                return
            forgotten = self._missed.popleft()
        self._kept -= len(forgotten.calls)

    # What is known.

    def find(self, workflow_id: str) -> list[Workflow]:
        """Return the workflows of an id, of whichever client, the last one last; those that run come after those that are over."""
        over = [each for each in (*self._missed, *self._ended) if each.id == workflow_id]
        return [*over, *(own.by_id[workflow_id] for own in self._clients.values() if workflow_id in own.by_id)]

    def running(self) -> Iterator[Workflow]:
        """Yield the workflows that are not over."""
        for own in self._clients.values():
            yield from own.by_id.values()

    def elapsed(self, kind: str) -> QuantileSketch:
        """Return the elapsed times of a kind since the start, not to be changed. Raises KeyError for one there is not."""
        return self._stats[kind].lifetime().elapsed

    def snapshot(self, now_s: float) -> WorkflowSnapshot:
        """Return the figures of every kind."""
        kinds = tuple(self._of_kind(name, now_s) for name in (*self._kinds, ""))
        return replace(self._counts, kinds=kinds)

    def note_unlawful_id(self) -> None:
        """Count a call whose id no header may hold."""
        self._count(unlawful_ids=1)

    def _of_kind(self, name: str, now_s: float) -> WorkflowKindSnapshot:
        stats, kind = self._stats[name], self._kinds.get(name)
        targets = kind.targets if kind is not None else ()
        windows = [sums.window(seconds, targets) for seconds, sums in stats.sums(now_s) if seconds in FIGURES_S]
        return WorkflowKindSnapshot(
            kind=name, running=self._running_of.get(name, 0), windows=(*windows, stats.lifetime().window(0.0, targets))
        )

    def _count(self, **more: int) -> None:
        counts = {name: getattr(self._counts, name) + count for name, count in more.items()}
        self._counts = replace(self._counts, **counts)


class _ClientWorkflows:
    """One client's that are not over."""

    __slots__ = ("by_id", "idle")

    def __init__(self) -> None:
        self.by_id: dict[str, Workflow] = {}
        self.idle: dict[Workflow, None] = {}  # the longest idle first


def _name(workflow: Workflow) -> str:
    return workflow.kind.name if workflow.kind is not None else ""


def _chain(workflow: Workflow, before: WorkflowCall | None, now_s: float) -> tuple[int, float, float]:
    """Return what the chain of a new call comes to without itself: calls with it, seconds in queues, seconds in calls.

    Of a call that still runs, which a client may name, what counts is the time until the new one began.
    """
    if before is None:
        return 1, 0.0, 0.0
    if before.ended_s is not None:
        calls_s, queue_s = before.ended_s - before.started_s, before.queue_s
    else:
        calls_s, request = now_s - before.started_s, workflow.running.get(before)
        wait_s = request.stopwatch.wait_s if request is not None else None
        queue_s = calls_s if wait_s is None else min(wait_s, calls_s)
    return before.depth + 1, before.chain_queue_s + queue_s, before.chain_calls_s + calls_s
