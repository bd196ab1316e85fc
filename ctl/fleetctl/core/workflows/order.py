"""In which order calls of workflows and other requests leave a queue: `plain` as they came, or by an order of a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from fleetctl.core.slo.stopwatch import RequestStopwatch
    from fleetctl.core.workflows.call import WorkflowCall
    from fleetctl.core.workflows.workflow import Workflow

# Of a lane's longest wait: nobody is overtaken by those who come more than so long after it.
BYPASS_SHARE: Final = 0.5


class QueuedCall(Protocol):
    """What an order may know of a request: a part of the dispatcher's own record, to be read only."""

    @property
    def stopwatch(self) -> RequestStopwatch:
        """Return its times."""
        ...

    @property
    def workflow(self) -> Workflow | None:
        """Return the workflow it is a call of, itself among those that have begun. None: it is part of none."""
        ...

    @property
    def workflow_call(self) -> WorkflowCall | None:
        """Return which call of its workflow it is."""
        ...


class CallOrder(Protocol):
    """The urgency of a request that joins a queue: called once, for each one that has to wait.

    Pure and a few operations long: it is on the way of requests. What is installed under `fleetctl.order` is one.
    """

    def __call__(self, request: QueuedCall, now_s: float, /) -> float:
        """Return its urgency from 0 (as it came) to 1 (before those that came up to BYPASS_SHARE of the lane's max_wait earlier).

        `now_s` is on the clock of the request's own times.
        """
        ...


class BoundedOrder:
    """A queue's order by urgency: a request counts as waiting from as much before its arrival as its urgency says.

    Who comes at `t` ranks at `t` or before, so it is overtaken only by those who come until `t + BYPASS_SHARE * max_wait`:
    of the later ones none may rank before `t`. Where all are as urgent it is first come, first served.
    """

    __slots__ = ("_most_s", "_order")

    def __init__(self, order: CallOrder, *, max_wait_s: float) -> None:
        self._order = order
        self._most_s = BYPASS_SHARE * max_wait_s

    def rank(self, request: QueuedCall, now_s: float) -> float:
        """Return the instant from which a request counts as waiting; what is no urgency from 0 to 1 counts as the nearest."""
        urgency = self._order(request, now_s)
        # Compared so that NaN counts as none.
        return now_s - self._most_s * min(1.0, urgency) if urgency > 0.0 else now_s


def by_deadline(request: QueuedCall, now_s: float) -> float:
    """Return how late a call's workflow is, or how nearly done, whichever says more: the order `deadline`.

    Late is its elapsed time as a share of its kind's limit, done the calls before this one as a share of the kind's calls.
    So one that is late already, or in its last call, goes first; a new workflow's first call, a request of no workflow and
    one of a kind that the profile does not know wait as they came. The order by lateness bounds the longest elapsed time
    (least slack first); that by what is done frees what a workflow has cost already, and has the last of a fan-out, for
    which the others wait, go first. Attained service (Autellix, arXiv:2502.13965) would put those last that have had the
    most, which is right where nothing is known of their length; here the kind says it.
    """
    workflow = request.workflow
    if workflow is None or workflow.kind is None:
        return 0.0
    call, kind = request.workflow_call, workflow.kind
    before = call.number if call is not None else workflow.calls_begun
    done = before / kind.calls
    limit_s = kind.limit_s
    late = (now_s - workflow.started_s) / limit_s if limit_s else 0.0
    return min(1.0, max(done, late))
