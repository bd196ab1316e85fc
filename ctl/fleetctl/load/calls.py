"""A workflow's calls: what each is, what a gateway is told of it, and what became of them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fleetctl.model.slo import Quantiles
from fleetctl.model.verdict import PromiseFinding

WORKFLOW_HEADER: Final = "x-fleetctl-workflow"
KIND_HEADER: Final = "x-fleetctl-workflow-kind"
PARENT_HEADER: Final = "x-fleetctl-parent"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCall:
    """A request's place among the calls of one workflow."""

    workflow: str
    kind: str
    name: str
    number: int  # among its workflow's calls, from 0
    count: int  # of its workflow's calls
    after: tuple[int, ...]  # numbers of the calls whose end it waits for
    think_s: float  # between the last of these ends, or the workflow's arrival, and this call

    @property
    def request_id(self) -> str:
        """Return what its request is known by."""
        return f"{self.workflow}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedWorkflows:
    """What became of the workflows of one kind, as their client saw it. Each counts once, where it began."""

    kind: str  # "-": they have none
    offered: int  # that began
    completed: int  # whose every call was answered in full
    failed: dict[str, int]  # by what ended them: refused (a call was, five times), or how a call failed
    undecided: int  # had not ended with the run, inside their limit
    good: int | None  # completed within `limit_s`; null: their kind promises nothing
    good_share: float | None  # of what was offered and is decided
    limit_s: float | None
    calls: int  # that were sent; one that was sent again counts once
    retries: int  # of refused calls, after their Retry-After
    elapsed: Quantiles  # of those completed: from the first call's sending to the last one's end
    queued_share: float | None  # of their elapsed time, in the gateway's queues, by the critical path; null: not known
    backoff_share: float | None  # of the same, between a refusal and the next try
    promises: tuple[PromiseFinding, ...] = ()  # of its kind's elapsed time, lowest percentile first


def call_headers(call: TraceCall, parent: TraceCall | None) -> dict[str, str]:
    """Return what a gateway is told of a call."""
    headers = {WORKFLOW_HEADER: call.workflow, "x-request-id": call.request_id}
    headers |= {KIND_HEADER: call.kind} if call.kind else {}
    return headers | ({PARENT_HEADER: parent.request_id} if parent is not None else {})
