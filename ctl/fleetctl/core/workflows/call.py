"""One call of a workflow, and what its workflow was like when it began."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from fleetctl.core.slo.endings import Ending

if TYPE_CHECKING:
    from fleetctl.core.slo.stopwatch import RequestStopwatch


class AttemptRecord(Protocol):
    """What is known of a request's last replica."""

    @property
    def replica_id(self) -> str:
        """Return the replica's id."""
        ...


class CallRequest(Protocol):
    """What a workflow knows of the request that a call of it is: a part of the dispatcher's own record."""

    @property
    def stopwatch(self) -> RequestStopwatch:
        """Return its times."""
        ...

    @property
    def attempt(self) -> AttemptRecord | None:
        """Return what it met at the replica it was sent to last. None: it never was sent to one."""
        ...


# There may be a hundred of them to a workflow, and it alone holds them; no cycle passes through one.
class WorkflowCall(msgspec.Struct, eq=False, gc=False):
    """One call; times in the clock's seconds.

    A call depends on the one `before` it: the parent that its client names, else the last one that had ended when it
    began. The chain of a call is itself, the one before it, and so on to a root; what a chain comes to is summed up as
    it grows, so it is exact however few of the calls are kept.
    """

    workflow_id: str
    number: int  # from 0, in the order in which they began
    id: bytes  # the request's
    lane: str
    started_s: float
    before: int | None  # the number of the call it depends on; None: it is a root
    is_named: bool  # the client named that call
    depth: int  # calls of its chain
    chain_queue_s: float  # of its chain without itself: the time in our queues
    chain_calls_s: float  # and that in calls, the queues included
    fingerprint: int  # of the request's body: equal for a repeat
    ended_s: float | None = None  # None: it runs
    ending: Ending | None = None  # None: it runs
    queue_s: float = (
        0.0  # once it has ended: submission to dispatch, or to the end of one that was dispatched to nobody
    )
    ttft_s: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    replica: str = ""
    is_repaired: bool = False  # it was not answered, and a repeat of it was
