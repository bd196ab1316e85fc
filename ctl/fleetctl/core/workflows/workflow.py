"""A workflow while it runs: its calls as they begin and end, and what is known of the whole at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.endings import Ending

if TYPE_CHECKING:
    from fleetctl.core.workflows.call import CallRequest, WorkflowCall
    from fleetctl.model.workflows import WorkflowKind

# Calls that were not answered and may be repeated; a workflow with more of them has failed whatever is repeated.
_UNANSWERED_MAX = 64
# Of a call, whatever its lane makes of it. The others are its client's own doing: it went, or asked for what cannot be.
_ANSWERED = frozenset((Ending.COMPLETE, Ending.CAPPED))
_UNANSWERED = frozenset((Ending.INCOMPLETE, Ending.TIMEOUT, Ending.ERROR, Ending.REFUSED))


class Workflow:
    """One workflow of one client. Whoever orders a queue reads it; the tracker alone changes it.

    A late one is told by `deadline_s`, one that is nearly done by `calls_begun` beside the `calls` of its `kind`.
    """

    __slots__ = (
        "answered",
        "calls",
        "calls_begun",
        "calls_ended",
        "client",
        "depth",
        "fan_out",
        "id",
        "is_by_trace",
        "is_overgrown",
        "kind",
        "last_end_s",
        "last_ended",
        "queue_s",
        "running",
        "seq",
        "started_s",
        "unanswered",
        "unanswered_beyond",
    )  # fmt: skip

    def __init__(
        self, id_: str, client: int, kind: WorkflowKind | None, started_s: float, *, is_by_trace: bool
    ) -> None:
        self.id = id_
        self.client = client  # the opaque key of whoever sent it: two clients never share a workflow
        self.kind = kind  # None: of none that the profile knows
        self.is_by_trace = is_by_trace  # its id is a trace id that nobody meant for this
        self.started_s = started_s  # when its first call came
        self.seq = 0
        self.calls: list[WorkflowCall] = []  # the first of them, as many as are kept
        self.running: dict[WorkflowCall, CallRequest] = {}
        self.calls_begun = self.calls_ended = self.answered = 0
        self.depth = self.fan_out = 0  # the longest chain; the most calls that ran at once
        self.queue_s = 0.0  # of all its calls that have ended, on the critical path or not
        self.last_ended: WorkflowCall | None = None
        self.last_end_s = started_s
        self.unanswered: dict[int, WorkflowCall] = {}  # by fingerprint, until a repeat of it is answered
        self.unanswered_beyond = 0
        self.is_overgrown = (
            False  # it has more calls than an action of a user; nothing but their number is noted any more
        )

    @property
    def deadline_s(self) -> float | None:
        """Return when it will be late, on the clock. None: nothing is promised of it."""
        limit_s = self.kind.limit_s if self.kind is not None else None
        return None if limit_s is None else self.started_s + limit_s

    @property
    def is_idle(self) -> bool:
        """Whether none of its calls runs."""
        return not self.running

    def begin(self, call: WorkflowCall, request: CallRequest, *, is_kept: bool) -> None:
        """Note a call that begins."""
        self.calls_begun += 1
        self.running[call] = request
        self.fan_out = max(self.fan_out, len(self.running))
        self.depth = max(self.depth, call.depth)
        if is_kept:
            self.calls.append(call)

    def end(self, call: WorkflowCall, ending: Ending, now_s: float) -> None:
        """Note that a call is over; what is known of it besides is on it already."""
        call.ended_s, call.ending = now_s, ending
        self.running.pop(call, None)
        self.calls_ended += 1
        self.queue_s += call.queue_s
        self.last_ended, self.last_end_s = call, now_s
        if ending in _ANSWERED:
            self.answered += 1
            repeated = self.unanswered.pop(call.fingerprint, None)
            if repeated is not None:
                repeated.is_repaired = True
        elif ending in _UNANSWERED:
            if len(self.unanswered) < _UNANSWERED_MAX:
                self.unanswered.setdefault(call.fingerprint, call)
            else:
                self.unanswered_beyond += 1
