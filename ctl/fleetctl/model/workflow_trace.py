"""What the gateway knows of one workflow, running or over: its calls, and which of them made its time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowCallTrace:
    """One call of a workflow. Times are seconds."""

    number: int  # from 0, in the order in which they began
    request_id: str
    before: int | None  # the number of the call it depends on; None: none had ended when it began
    is_named: bool = False  # its client named that call; else it is the last one that had ended by then
    is_on_path: bool = False  # of the critical path
    depth: int  # calls of its chain
    lane: str
    replica: str = ""  # the last one it was sent to; empty: none
    at_s: float  # since the workflow began
    client_s: float = 0.0  # between the end of the call before it, or the workflow's beginning, and its own
    queue_s: float  # submission to dispatch, so far
    ttft_s: float | None = None  # None: no token came, or the answer came whole
    total_s: float  # so far
    prompt_tokens: int = 0  # 0 while it runs
    output_tokens: int = 0
    ending: str = ""  # "complete", "refused", ...; empty: it runs
    is_repaired: bool = False  # it was not answered, and a repeat of it was


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowTrace:
    """One workflow. Its elapsed time is its critical path's: in replicas, in our queues, and with its client."""

    id: str
    kind: str = ""  # empty: of none that the profile knows
    client: str  # as in a request's trace
    at: datetime  # when its first call was accepted
    verdict: str = ""  # as WorkflowVerdict; empty: it is not over
    elapsed_s: float  # to its last call's end; so far, while one runs
    limit_s: float | None = None  # that a good one takes at most; None: nothing is promised
    calls_begun: int
    calls_running: int = 0
    calls_unanswered: int = 0  # refused, failed or broken off
    depth: int
    fan_out: int
    replica_s: float  # of the critical path: in replicas
    queue_s: float  # in our queues
    client_s: float  # between its calls
    calls: tuple[WorkflowCallTrace, ...]  # those that are kept, in the order in which they began

    @property
    def is_late(self) -> bool:
        """Whether it has taken longer than promised."""
        return self.limit_s is not None and self.elapsed_s > self.limit_s
