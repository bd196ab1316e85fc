"""Workflows as tables: the figures of each kind, and one of them as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.workflow_figures import WorkflowVerdict
from fleetctl.units import format_duration, format_fraction
from fleetctl.views.canvas import PLAIN
from fleetctl.views.figures import format_clock_time, format_measured
from fleetctl.views.table import NOTHING, Cell, Table, Tone, cell, text_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from fleetctl.model.workflow_figures import WorkflowKindSnapshot, WorkflowSnapshot, WorkflowWindow
    from fleetctl.model.workflow_trace import WorkflowCallTrace, WorkflowTrace

WORKFLOW_WINDOW_S = 3600.0
WORKFLOWS_TITLE = "Workflows, last hour"
_INDENTS_MAX = 8  # deeper branches stand as far in as this one
_OUTSIDE = (
    (
        "overgrown",
        ("id", "ids"),
        "with more calls than any action of a user: does a proxy use one trace id for everything?",
    ),
    ("untracked_calls", ("call", "calls"), "found no place among the workflows held"),
    (
        "ended_early",
        ("workflow was ended before it was idle", "workflows were ended before they were idle"),
        "for long, to make place",
    ),
    ("unlawful_ids", ("call", "calls"), "had an x-fleetctl-workflow that is no lawful id"),
    ("unknown_parents", ("call", "calls"), "had an x-fleetctl-parent that is no call of the same workflow"),
)


def workflow_table(seen: WorkflowSnapshot) -> Table:
    """Return a row a kind, over the last hour; the workflows of no kind have one where there were any."""
    kinds = [each for each in seen.kinds if each.kind or each.running or each.window(WORKFLOW_WINDOW_S).ended]
    titles = (
        "WORKFLOWS >RUNNING >ENDED >GOOD >P50 >P99 >CALLS >DEPTH >FAN_OUT >QUEUES +>LATE +>FAILED +>CANCELLED +>CLIENT"
    )
    return text_table(titles, [_kind_row(each) for each in kinds])


def live_workflow_table(seen: WorkflowSnapshot | None, *, is_stale: bool) -> Table:
    """Return the same for a screen; stale figures are not shown."""
    return Table() if seen is None or is_stale else workflow_table(seen)


def workflow_notes(seen: WorkflowSnapshot) -> Iterator[str]:
    """Yield what is in no kind's figures, since the gateway started, where it says that something is wrong."""
    for field, (one, several), text in _OUTSIDE:
        if count := getattr(seen, field):
            yield f"{count:,} {one if count == 1 else several} {text}"


def workflow_text(kind: WorkflowKindSnapshot) -> tuple[str, Tone] | None:
    """Return a kind in a few words: "agent 98.3% P99 31s/30s"; None: none ended within the hour."""
    window = kind.window(WORKFLOW_WINDOW_S)
    if not window.judged:
        return None
    parts = [kind.label, format_fraction(window.good / window.judged)]
    tail = window.targets[-1] if window.targets else None
    if tail is not None and tail.samples:
        parts.append(f"P{tail.target.percentile * 100:g} {_elapsed(window, tail.target.percentile).text}")
    is_missed = any(not each.is_kept for each in window.targets)
    return " ".join(parts), Tone.BAD if is_missed else Tone.PLAIN


def _kind_row(kind: WorkflowKindSnapshot) -> tuple[str | Cell, ...]:
    window = kind.window(WORKFLOW_WINDOW_S)
    some = window.ended > 0
    return (
        kind.label,
        str(kind.running),
        str(window.ended),
        cell(format_fraction(window.good / window.judged)) if window.judged else cell(NOTHING, Tone.DIM),
        _elapsed(window, 0.5),
        _elapsed(window, 0.99),
        f"{window.calls_mean:.1f}" if some else NOTHING,
        f"{window.depth_mean:.1f}" if some else NOTHING,
        f"{window.fan_out_mean:.1f}" if some else NOTHING,
        format_fraction(round(window.queue_share, 3)) if window.elapsed_s else NOTHING,
        str(window.late),
        str(window.failed),
        str(window.cancelled),
        format_fraction(round(window.client_s / window.elapsed_s, 3)) if window.elapsed_s else NOTHING,
    )


def _elapsed(window: WorkflowWindow, percentile: float) -> Cell:
    """Return "31s/30s": measured, and promised at this percentile."""
    found, validity = window.elapsed, window.elapsed.validity
    if not found.count:
        return cell(NOTHING, Tone.DIM)
    promised = next((each for each in window.targets if each.target.percentile == percentile), None)
    measured_s = promised.measured_s if promised is not None else found.at_s(percentile)
    text = format_measured(measured_s, validity, PLAIN)
    if promised is None:
        return cell(text)
    return cell(f"{text}/{format_duration(promised.target.limit_s)}", Tone.PLAIN if promised.is_kept else Tone.BAD)


# One workflow.


def workflow_head(found: WorkflowTrace, now: datetime) -> Iterator[str | Cell]:
    """Yield what became of a workflow, and where its time went."""
    yield cell(f"{found.id}: {_headline(found)}", Tone.BAD if _is_missed(found) else Tone.STRONG)
    kind = f"of kind {found.kind}, " if found.kind else ""
    yield f"Workflow {kind}begun {format_clock_time(found.at, now)}, client {found.client}"
    running = f", {found.calls_running} running" if found.calls_running else ""
    unanswered = f", {found.calls_unanswered} not answered" if found.calls_unanswered else ""
    yield f"Calls    {found.calls_begun:,}{running}{unanswered}; {found.depth:,} deep, {found.fan_out:,} at once"
    parts = (("replicas", found.replica_s), ("our queues", found.queue_s), ("its client", found.client_s))
    yield "Time     " + ", ".join(f"{where} {format_duration(each)}{_share(each, found)}" for where, each in parts)
    slowest = _slowest(found)
    if slowest is not None:
        yield f"Longest  {slowest}"


def _is_missed(found: WorkflowTrace) -> bool:
    return found.is_late or found.verdict in (WorkflowVerdict.LATE, WorkflowVerdict.FAILED)


def _headline(found: WorkflowTrace) -> str:
    elapsed = format_duration(found.elapsed_s)
    promised = f", promised {format_duration(found.limit_s)}" if found.limit_s is not None else ""
    if found.verdict:
        return f"{found.verdict}, {elapsed}{promised}"
    state = f"{'late already' if found.is_late else 'running' if found.calls_running else 'idle'}"
    return f"{state}, {elapsed} so far{promised}"


def _share(seconds: float, found: WorkflowTrace) -> str:
    return f" ({seconds / found.elapsed_s:.0%})" if found.elapsed_s else ""


def _slowest(found: WorkflowTrace) -> str | None:
    """Return the call of the critical path that took longest, with the longest part of its time."""
    path = [call for call in found.calls if call.is_on_path]
    if len(path) < 2:
        return None
    call = max(path, key=lambda each: each.total_s)
    gap = max(path, key=lambda each: each.client_s)
    if gap.client_s > call.total_s:
        return f"its client, {format_duration(gap.client_s)} before call {gap.number}"
    where = f" at {call.replica}" if call.replica else ""
    queued = f", {format_duration(call.queue_s)} of it in the queue of {call.lane}"
    return f"call {call.number}{where}: {format_duration(call.total_s)}{queued}"


def workflow_tree(found: WorkflowTrace) -> Table:
    """Return a row a call: below the one it depends on, further in where several do; * marks the critical path."""
    titles = "CALL LANE REPLICA >QUEUE >TTFT >TOKENS >ELAPSED ENDING +>AT +>CLIENT +REQUEST"
    return text_table(titles, [_call_row(call, indent) for call, indent in _in_order(found)])


def _in_order(found: WorkflowTrace) -> Iterator[tuple[WorkflowCallTrace, int]]:
    """Yield every call below the one it depends on, with how far in it stands."""
    kept = {call.number for call in found.calls}
    below: dict[int | None, list[WorkflowCallTrace]] = {}
    for call in found.calls:
        below.setdefault(call.before if call.before in kept else None, []).append(call)
    following = [(call, 0) for call in reversed(below.get(None, []))]
    while following:
        call, indent = following.pop()
        yield call, indent
        branches = below.get(call.number, [])
        inner = min(_INDENTS_MAX, indent + (len(branches) > 1))
        following += [(each, inner) for each in reversed(branches)]


def _call_row(call: WorkflowCallTrace, indent: int) -> tuple[str | Cell, ...]:
    tone = Tone.STRONG if call.is_on_path else Tone.PLAIN
    name = f"{'*' if call.is_on_path else ' '} {'  ' * indent}{call.number}"
    tokens = f"{_tokens(call.prompt_tokens)}/{_tokens(call.output_tokens)}"
    ending = "repeated" if call.is_repaired else call.ending or "running"
    return (
        cell(name, tone),
        call.lane,
        call.replica or NOTHING,
        format_duration(call.queue_s),
        format_duration(call.ttft_s) if call.ttft_s is not None else NOTHING,
        tokens,
        format_duration(call.total_s),
        cell(ending, Tone.PLAIN if ending in ("complete", "running") else Tone.BAD),
        format_duration(call.at_s),
        format_duration(call.client_s),
        call.request_id,
    )


def _tokens(count: int) -> str:
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"


def tree_notes(found: WorkflowTrace) -> Iterator[str]:
    """Yield what the tree does not show."""
    if left := found.calls_begun - len(found.calls):
        yield f"{left:,} more calls are counted above and not kept"
    if any(call.is_on_path for call in found.calls):
        yield "* the critical path: each of its calls began once the one before it had ended"
