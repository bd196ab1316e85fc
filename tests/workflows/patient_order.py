"""An order as a third party writes one: who has waited in queues for long goes first, be it of a workflow or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.core.workflows.order import QueuedCall

LONG_S = 5.0


def by_time_queued(request: QueuedCall, now_s: float) -> float:
    """Return the share of five seconds that a request's workflow has spent in queues on its way to this call."""
    del now_s
    call = request.workflow_call
    return 0.0 if call is None else call.chain_queue_s / LONG_S
