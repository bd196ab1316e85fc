"""The gateway's own bookkeeping of workflows, fed by a simulation's requests."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from fleetctl.core.workflows.tracker import CallIdentity, WorkflowTracker

if TYPE_CHECKING:
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.load.calls import TraceCall
    from fleetctl.model.workflows import WorkflowsSpec


class WorkflowTracking:
    """Feeds a tracker with each call as it begins and ends; without workflows in the profile there is none."""

    def __init__(self, spec: WorkflowsSpec | None) -> None:
        self.tracker = WorkflowTracker(spec, now_s=0.0) if spec is not None else None

    def begin(self, request: ActiveRequest, call: TraceCall, parent: TraceCall | None) -> None:
        """Note a call before its request is submitted, as the gateway does."""
        if self.tracker is None:
            return
        identity = CallIdentity(
            workflow_id=call.workflow, kind=call.kind, parent=parent.request_id.encode() if parent is not None else b""
        )
        request_id = call.request_id.encode()
        found = self.tracker.begin(
            request,
            identity,
            client=request.client,
            call_id=request_id,
            lane=request.lane.route.name,
            fingerprint=zlib.crc32(request_id),
        )
        if found is not None:
            request.workflow, request.workflow_call = found

    def end(self, request: ActiveRequest, output_tokens: int) -> None:
        """Note that a request is over."""
        workflow, call = request.workflow, request.workflow_call
        if self.tracker is not None and workflow is not None and call is not None:
            tokens = request.prompt.prompt_tokens
            self.tracker.end(workflow, call, request, prompt_tokens=tokens, output_tokens=output_tokens)
            request.workflow = None

    def sweep(self, now_s: float) -> None:
        """End the workflows that have been idle for long."""
        if self.tracker is not None:
            self.tracker.sweep(now_s)
