"""What a promise of a whole workflow asks of each of its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.model.workflows import WorkflowKind


def call_percentile(kind: WorkflowKind, percentile: float) -> float:
    """Return the percentile (0-1) that each call keeps its share of the elapsed time at, so that the workflow keeps `percentile`.

    A step is over when the last of its calls is, and all `fan_out` of them are in time with probability p^fan_out, were
    they independent: p = percentile^(1/fan_out), 0.99^(1/5) = 0.998 (Dean and Barroso, The Tail at Scale, CACM 56(2), 2013).
    Steps one after the other share the elapsed time, and all are in time, by the same rule, where each call keeps
    percentile^(1/(steps * fan_out)). Calls of one moment are slow together, so of dependent calls this asks too much
    rather than too little; and a step that is late may be made up for by the others, which it leaves out too.
    """
    return float(percentile ** (1.0 / kind.calls))


def call_limit_s(kind: WorkflowKind, limit_s: float) -> float:
    """Return the share of the elapsed time that each step may take, in seconds: all alike, and none for the client's own work."""
    return limit_s / kind.steps
