"""Which workflow a request belongs to, by its headers, and what becomes of its call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.workflows.path import trace_of
from fleetctl.core.workflows.tracker import CallIdentity, WorkflowTracker
from fleetctl.gateway.request_ids import TRACEPARENT, is_lawful, trace_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.gateway.requests import Request
    from fleetctl.model.workflow_figures import WorkflowSnapshot
    from fleetctl.model.workflow_trace import WorkflowTrace
    from fleetctl.model.workflows import WorkflowsSpec

WORKFLOW, KIND, PARENT = b"x-fleetctl-workflow", b"x-fleetctl-workflow-kind", b"x-fleetctl-parent"
# As an id is the client's choice, many workflows may have one; whoever asks wants the last.
_FOUND_MAX = 8


class RequestWorkflows:
    """The workflows of a gateway whose profile has any."""

    def __init__(self, spec: WorkflowsSpec, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.tracker = WorkflowTracker(spec, now_s=clock())

    def begin(self, request: ActiveRequest, received: Request) -> None:
        """Note a request that is about to be submitted, if it says what it belongs to."""
        named = self._identity(received.headers)
        if named is None:
            return
        found = self.tracker.begin(
            request,
            named,
            client=request.client,
            client_name=request.client_name,
            call_id=request.id,
            lane=request.lane.route.name,
            fingerprint=hash(received.body),
        )
        if found is not None:
            request.workflow, request.workflow_call = found

    def _identity(self, headers: dict[bytes, bytes]) -> CallIdentity | None:
        """Return what a request says of its workflow. None: nothing that is lawful."""
        kind, parent = headers.get(KIND, b"").decode("latin-1"), headers.get(PARENT, b"")
        named = headers.get(WORKFLOW)
        if named is not None:
            if is_lawful(named):
                return CallIdentity(workflow_id=named.decode(), kind=kind, parent=parent)
            self.tracker.note_unlawful_id()
        traced = trace_id(headers.get(TRACEPARENT))
        if not traced.strip("0"):  # no trace id, or the one that the standard calls invalid
            return None
        return CallIdentity(workflow_id=traced, is_by_trace=True, kind=kind, parent=parent)

    def find(self, workflow_id: str, now: datetime) -> tuple[WorkflowTrace, ...]:
        """Return the last workflows of an id; `now` is the clock's own time by the calendar."""
        now_s = self._clock()
        return tuple(trace_of(each, now_s=now_s, now=now) for each in self.tracker.find(workflow_id)[-_FOUND_MAX:])


def end_call(workflows: RequestWorkflows | None, request: ActiveRequest) -> None:
    """Note that a request is over which is a call of a workflow; it keeps its call, and nothing of the rest."""
    workflow, call, used = request.workflow, request.workflow_call, request.prompt_tokens_used
    request.workflow = None
    if workflows is None or workflow is None or call is None:  # another table has no workflows
        return
    workflows.tracker.end(
        workflow,
        call,
        request,
        prompt_tokens=request.prompt.prompt_tokens if used is None else used,
        output_tokens=max(0, request.stopwatch.token_count + request.output_tokens_uncounted),
    )


def by_table(
    at_work: RequestWorkflows | None, spec: WorkflowsSpec | None, clock: Callable[[], float]
) -> RequestWorkflows | None:
    """Return the workflows to go by under another table. None: its profile has none."""
    if spec is None:
        return None
    if at_work is None:
        return RequestWorkflows(spec, clock)
    at_work.tracker.apply(spec, clock())
    return at_work


def figures_of(workflows: RequestWorkflows | None, now_s: float) -> WorkflowSnapshot | None:
    """Return the figures of every kind. None: the profile has no workflows."""
    return workflows.tracker.snapshot(now_s) if workflows is not None else None
