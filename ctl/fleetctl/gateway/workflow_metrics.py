"""The figures of workflows in the Prometheus text format; docs/slo.md has the rule of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.slo.sketch import SketchReading
from fleetctl.model.workflow_figures import WorkflowVerdict

if TYPE_CHECKING:
    from fleetctl.core.workflows.tracker import WorkflowTracker
    from fleetctl.telemetry.page import MetricsPage

# What users wait for: from an answer at once to a research that runs for an hour.
_SECONDS = (0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_COUNTED = tuple(each for each in WorkflowVerdict if each is not WorkflowVerdict.OVERGROWN)
_OUTSIDE = (
    ("workflow_singles_total", "Single calls with a trace id that no other call shared.", "singles"),
    ("workflow_overgrown_total", "Ids with more calls than any action of a user, as proxies reuse them.", "overgrown"),
    ("workflow_ended_early_total", "Workflows ended before they were idle for long, to make place.", "ended_early"),
    ("workflow_untracked_calls_total", "Calls that found no place among the workflows held.", "untracked_calls"),
    ("workflow_unlawful_ids_total", "Calls whose x-fleetctl-workflow is no lawful id.", "unlawful_ids"),
    ("workflow_unknown_parents_total", "Calls whose x-fleetctl-parent is no call of their workflow.", "unknown_parents"),
)  # fmt: skip


def workflow_families(page: MetricsPage, tracker: WorkflowTracker, now_s: float) -> None:
    """Write the families by kind."""
    seen = tracker.snapshot(now_s)
    kinds = [({"kind": each.label}, each.window(0.0), tracker.elapsed(each.kind)) for each in seen.kinds]
    running = [({"kind": each.label}, float(each.running)) for each in seen.kinds]
    page.family("workflows_running", "gauge", "Workflows that are not over.", running)
    ended = [
        (labels | {"verdict": each.value}, float(getattr(window, each.value)))
        for labels, window, _ in kinds
        for each in _COUNTED
    ]
    page.family("workflows_ended_total", "counter", "Workflows that are over, by how they count.", ended)
    counters = (
        ("workflow_calls_total", "Calls of workflows that are over.", "calls"),
        ("workflow_unanswered_calls_total", "Of these, those refused, failed or broken off.", "unanswered_calls"),
        ("workflow_queue_seconds_total", "Time of critical paths in our queues.", "queue_s"),
        ("workflow_client_seconds_total", "Time of critical paths between calls.", "client_s"),
    )
    for name, text, field in counters:
        page.family(name, "counter", text, [(labels, float(getattr(window, field))) for labels, window, _ in kinds])
    text = "First call's submission to last call's end, of workflows whose calls were all answered."
    elapsed = []
    for labels, _, sketch in kinds:
        reading = SketchReading(sketch)
        counts = {f"{limit:g}": reading.count_at_most(limit) for limit in _SECONDS} | {"+Inf": reading.count}
        elapsed.append((labels, counts, sketch.sum_s))
    page.histogram("workflow_elapsed_seconds", text, elapsed)
    limits = [
        (labels | {"quantile": f"{count.target.percentile:g}"}, count.target.limit_s)
        for labels, window, _ in kinds
        for count in window.targets
    ]
    page.family("workflow_elapsed_limit_seconds", "gauge", "The elapsed time that is promised.", limits)
    for name, text, field in _OUTSIDE:
        page.family(name, "counter", text, [({}, float(getattr(seen, field)))])
