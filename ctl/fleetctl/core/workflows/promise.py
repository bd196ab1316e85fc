"""What a promise of a whole workflow asks of each of its calls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.workflows import WorkflowKind


def call_percentile(kind: WorkflowKind, percentile: float) -> float:
    """Return the percentile (0-1) of a call at which a step of `fan_out` calls keeps `percentile`.

    A step is over when the last of its calls is. All of them are in time with probability p^fan_out, were they
    independent, so p = percentile^(1 / fan_out): five at P99 take P99.8 each (Dean and Barroso, The Tail at Scale,
    CACM 56(2), 2013). Calls of one moment meet the same queues: of those that are slow together it asks too much.
    """
    return float(percentile ** (1.0 / kind.fan_out))


def elapsed_s(kind: WorkflowKind, call_s: Callable[[float], float], percentile: float) -> float:
    """Return the elapsed time that `percentile` (0-1) of workflows do not exceed; `call_s` is the quantile of a call's time.

    Steps follow on one another, so their means add, and were they independent their variances: the deviation of the sum
    is the root of the sum of squares, sqrt(steps) times that of one (Bienayme; statistical tolerancing adds chains so). As
    answers' lengths are skewed, a step's own P99 lies further out than that of a normal one, which keeps this on the safe
    side. Steps that are all slow together, as where the fleet is, take up to steps times that of one: it asks too little of
    those. The client's own time between its calls is in none of it.
    """
    middle_s = call_s(call_percentile(kind, 0.5))
    deviation_s = call_s(call_percentile(kind, percentile)) - middle_s
    return kind.steps * middle_s + math.sqrt(kind.steps) * deviation_s


def call_limit_s(kind: WorkflowKind, limit_s: float, percentile: float, middle_s: float) -> float:
    """Return how long a call may take at its percentile for the workflow to keep its own: `elapsed_s`, solved for it.

    `middle_s` is what half of the steps take; a promise of no more than half of the workflows is held against that itself.
    """
    if percentile <= 0.5:
        return limit_s / kind.steps
    return middle_s + (limit_s - kind.steps * middle_s) / math.sqrt(kind.steps)
