"""A workflow put into the words of the model: its tree, its critical path, and where the time of that went."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.core.client_label import client_label
from fleetctl.core.workflows.workflow import UNANSWERED
from fleetctl.model.workflow_trace import WorkflowCallTrace, WorkflowTrace

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.core.workflows.call import WorkflowCall
    from fleetctl.core.workflows.workflow import Workflow


def critical_call(workflow: Workflow) -> WorkflowCall | None:
    """Return the call that the critical path ends with: the one that ended last; while calls run, that which runs for longest."""
    if workflow.running:
        return min(workflow.running, key=lambda call: (call.started_s, call.number))
    return workflow.last_ended


def critical_path(workflow: Workflow) -> list[WorkflowCall]:
    """Return the calls of the critical path that are kept, the first one first."""
    kept = {call.number: call for call in workflow.calls}
    call, path = critical_call(workflow), []
    while call is not None:
        path.append(call)
        call = kept.get(call.before) if call.before is not None else None
    return path[::-1]


def trace_of(workflow: Workflow, *, now_s: float, now: datetime) -> WorkflowTrace:
    """Return a workflow as it is at `now_s` of the clock that it was timed by, which is `now`."""
    last = critical_call(workflow)
    elapsed_s = (now_s if workflow.running else workflow.last_end_s) - workflow.started_s
    calls_s = queue_s = 0.0
    if last is not None:
        calls_s = last.chain_calls_s + _total_s(last, now_s)
        queue_s = last.chain_queue_s + _queue_s(workflow, last, now_s)
    on_path = {call.number for call in critical_path(workflow)}
    kind, kept = workflow.kind, {call.number: call for call in workflow.calls}
    return WorkflowTrace(
        id=workflow.id,
        kind=kind.name if kind is not None else "",
        client=client_label(workflow.client, workflow.client_name),
        at=now - timedelta(seconds=now_s - workflow.started_s),
        verdict=workflow.verdict.value if workflow.verdict is not None else "",
        elapsed_s=elapsed_s,
        limit_s=kind.limit_s if kind is not None else None,
        calls_begun=workflow.calls_begun,
        calls_running=len(workflow.running),
        calls_unanswered=workflow.unanswered_calls,
        depth=workflow.depth,
        fan_out=workflow.fan_out,
        replica_s=max(0.0, calls_s - queue_s),
        queue_s=queue_s,
        client_s=max(0.0, elapsed_s - calls_s),
        calls=tuple(
            _call(workflow, call, kept.get(call.before) if call.before is not None else None, on_path, now_s)
            for call in workflow.calls
        ),
    )


def _call(
    workflow: Workflow, call: WorkflowCall, before: WorkflowCall | None, on_path: set[int], now_s: float
) -> WorkflowCallTrace:
    request = workflow.running.get(call)
    watch = request.stopwatch if request is not None else None
    attempt = request.attempt if request is not None else None
    since_s = workflow.started_s
    if before is not None:
        since_s = before.ended_s if before.ended_s is not None else call.started_s
    return WorkflowCallTrace(
        number=call.number,
        request_id=call.id.decode("latin-1"),
        before=call.before,
        is_named=call.is_named,
        is_on_path=call.number in on_path,
        depth=call.depth,
        lane=call.lane,
        replica=attempt.replica_id if attempt is not None else call.replica,
        at_s=call.started_s - workflow.started_s,
        client_s=max(0.0, call.started_s - since_s) if before is not None or call.before is None else 0.0,
        queue_s=_queue_s(workflow, call, now_s),
        ttft_s=watch.ttft_s if watch is not None else call.ttft_s,
        total_s=_total_s(call, now_s),
        prompt_tokens=call.prompt_tokens,
        output_tokens=max(0, watch.token_count) if watch is not None else call.output_tokens,
        ending=call.ending.value if call.ending is not None else "",
        is_repaired=call.is_repaired and call.ending in UNANSWERED,
    )


def _total_s(call: WorkflowCall, now_s: float) -> float:
    return (call.ended_s if call.ended_s is not None else now_s) - call.started_s


def _queue_s(workflow: Workflow, call: WorkflowCall, now_s: float) -> float:
    """Return the time a call was in our queues, so far."""
    request = workflow.running.get(call)
    if request is None:
        return call.queue_s
    wait_s = request.stopwatch.wait_s
    return now_s - call.started_s if wait_s is None else wait_s
