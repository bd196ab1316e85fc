"""A workflow while it runs: its calls as they begin and end, and what is known of the whole at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleetctl.core.slo.endings import Ending

if TYPE_CHECKING:
    from fleetctl.core.workflows.call import CallRequest, WorkflowCall
    from fleetctl.model.workflow_figures import WorkflowVerdict
    from fleetctl.model.workflows import WorkflowKind

# Calls that were not answered and may be repeated; a workflow with more of them has failed whatever is repeated.
_UNANSWERED_MAX = 64
# How calls end, whatever their lane makes of it. The others are the client's own doing: it went, or asked for what cannot be.
ANSWERED: Final = frozenset((Ending.COMPLETE, Ending.CAPPED))
UNANSWERED: Final = frozenset((Ending.INCOMPLETE, Ending.TIMEOUT, Ending.ERROR, Ending.REFUSED))


class Workflow:
    """One workflow of one client. Whoever orders a queue reads it; the tracker alone changes it.

    A late one is told by `deadline_s`, one that is nearly done by `calls_begun` beside the `calls` of its `kind`.
    """

    __slots__ = (
        "_unrepaired", "_unrepaired_beyond", "answered", "calls", "calls_begun", "calls_ended", "client", "client_name", "depth", "fan_out",
        "id", "is_by_trace", "is_overgrown", "kind", "last_end_s", "last_ended", "running", "seq", "started_s",
        "unanswered_calls", "verdict",
    )  # fmt: skip

    def __init__(  # what it is known by
        self, id_: str, client: int, client_name: str, kind: WorkflowKind | None, started_s: float, *, is_by_trace: bool
    ) -> None:
        self.id = id_
        self.client = client  # the opaque key of whoever sent it: two clients never share a workflow
        self.client_name = client_name  # its key's; "": it has none
        self.kind = kind  # None: of none that the profile knows
        self.is_by_trace = is_by_trace  # its id is a trace id, which nobody may have meant for this
        self.started_s = started_s  # when its first call came
        self.seq = 0  # in which order it ended
        self.verdict: WorkflowVerdict | None = None  # None: it is not over
        self.calls: list[WorkflowCall] = []  # the first of them, as many as are kept
        self.running: dict[WorkflowCall, CallRequest] = {}
        self.calls_begun = self.calls_ended = self.answered = self.unanswered_calls = 0
        self.depth = self.fan_out = 0  # calls of the longest chain; the most that ran at once
        self.last_ended: WorkflowCall | None = None
        self.last_end_s = started_s
        self._unrepaired: dict[int, WorkflowCall] = {}  # not answered so far, by the request's fingerprint
        self._unrepaired_beyond = False
        self.is_overgrown = False  # it has more calls than an action of a user: no more are noted

    @property
    def deadline_s(self) -> float | None:
        """Return when it will be late, on the clock. None: nothing is promised of it."""
        limit_s = self.kind.limit_s if self.kind is not None else None
        return None if limit_s is None else self.started_s + limit_s

    @property
    def is_idle(self) -> bool:
        """Whether none of its calls runs."""
        return not self.running

    @property
    def is_failed(self) -> bool:
        """Whether a call was never answered so far, nor a repeat of it."""
        return bool(self._unrepaired) or self._unrepaired_beyond

    @property
    def elapsed_s(self) -> float:
        """Return the time from its first call to the last end of one, so far."""
        return self.last_end_s - self.started_s

    @property
    def path_calls_s(self) -> float:
        """Return the time that its critical path was in calls, queues included: the chain of the call that ended last."""
        last = self.last_ended
        return 0.0 if last is None else last.chain_calls_s + self.last_end_s - last.started_s

    @property
    def path_queue_s(self) -> float:
        """Return the time that its critical path was in our queues."""
        last = self.last_ended
        return 0.0 if last is None else last.chain_queue_s + last.queue_s

    @property
    def path_client_s(self) -> float:
        """Return the time of its critical path in no call: before the first of them, and between them."""
        return max(0.0, self.elapsed_s - self.path_calls_s)

    def begin(self, call: WorkflowCall, request: CallRequest, *, is_kept: bool) -> None:
        """Note a call that begins."""
        self.calls_begun += 1
        self.running[call] = request
        self.fan_out = max(self.fan_out, len(self.running))
        self.depth = max(self.depth, call.depth)
        if is_kept:
            self.calls.append(call)

    def end(self, call: WorkflowCall, ending: Ending, now_s: float) -> None:
        """Note that a call is over."""
        call.ended_s, call.ending = now_s, ending
        self.running.pop(call, None)
        self.calls_ended += 1
        self.last_ended, self.last_end_s = call, now_s
        if ending in ANSWERED:
            self.answered += 1
            repeated = self._unrepaired.pop(call.fingerprint, None)
            if repeated is not None:
                repeated.is_repaired = True
        elif ending in UNANSWERED:
            self.unanswered_calls += 1
            if len(self._unrepaired) < _UNANSWERED_MAX or call.fingerprint in self._unrepaired:
                self._unrepaired[call.fingerprint] = call
            else:
                self._unrepaired_beyond = True
