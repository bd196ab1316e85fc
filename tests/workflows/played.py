"""Plays calls of workflows to a tracker, in the order in which they begin and end."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from fleetctl.core.slo.accounts import LaneAccounts
from fleetctl.core.slo.endings import Ending
from fleetctl.core.slo.stopwatch import RequestStopwatch
from fleetctl.core.workflows.tracker import CallIdentity, WorkflowLimits, WorkflowTracker
from fleetctl.model.slo import LaneSlo
from fleetctl.model.workflows import ElapsedTarget, WorkflowKind, WorkflowsSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.workflows.workflow import Workflow

ACCOUNTS = LaneAccounts(LaneSlo(targets=()), now_s=0.0)
AGENT = WorkflowKind(
    name="agent",
    steps=7,
    targets=(ElapsedTarget(percentile=0.5, limit_s=10.0), ElapsedTarget(percentile=0.99, limit_s=30.0)),
    lane="short",
)
SPEC = WorkflowsSpec(idle_s=60.0, kinds=(AGENT, WorkflowKind(name="free")))
_ids = count()


@dataclass(frozen=True, slots=True)
class Attempt:
    replica_id: str = "short-1"


@dataclass(slots=True, eq=False)
class Call:
    """A call as it happens, and the request that the tracker knows it by."""

    start_s: float
    end_s: float
    wait_s: float | None = 0.0
    ending: Ending = Ending.COMPLETE
    id: bytes = field(default_factory=lambda: b"c%d" % next(_ids))
    parent: bytes = b""
    body: int = field(default_factory=lambda: next(_ids))
    workflow: str = "w"
    client: int = 1
    kind: str = ""
    lane: str = "short"
    is_by_trace: bool = False
    stopwatch: RequestStopwatch = field(init=False)
    attempt: Attempt | None = None

    def __post_init__(self) -> None:
        self.stopwatch = RequestStopwatch(ACCOUNTS, self.start_s)


def tracker_of(spec: WorkflowsSpec = SPEC, limits: WorkflowLimits | None = None) -> WorkflowTracker:
    return WorkflowTracker(spec, now_s=0.0, limits=limits)


def play(tracker: WorkflowTracker, calls: Iterable[Call]) -> None:
    """Begin and end the calls by time; where two things happen at once, ends come first."""
    calls = list(calls)
    begun = {}
    order = [(call.start_s, 1, number) for number, call in enumerate(calls)]
    order += [(call.end_s, 0 if call.end_s > call.start_s else 2, number) for number, call in enumerate(calls)]
    for at_s, what, number in sorted(order):
        call = calls[number]
        if what == 1:
            tracker.sweep(at_s)
            named = CallIdentity(
                workflow_id=call.workflow, is_by_trace=call.is_by_trace, kind=call.kind, parent=call.parent
            )
            begun[number] = tracker.begin(
                call, named, client=call.client, call_id=call.id, lane=call.lane, fingerprint=call.body
            )
            if call.wait_s is not None:
                call.attempt = Attempt()
        elif (found := begun[number]) is not None:
            call.stopwatch.wait_s, call.stopwatch.ended_s, call.stopwatch.ending = call.wait_s, at_s, call.ending
            tracker.end(*found, call, prompt_tokens=100, output_tokens=20)


def played(calls: Iterable[Call], limits: WorkflowLimits | None = None) -> Workflow:
    """Return the one workflow that the calls are, once it is over."""
    tracker = tracker_of(limits=limits)
    play(tracker, calls)
    tracker.sweep(1e9)
    (found,) = tracker.find("w")
    return found
