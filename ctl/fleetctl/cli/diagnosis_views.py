"""Requests and diagnoses, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli.output import View, lines, section
from fleetctl.units import format_duration
from fleetctl.views.figures import format_clock_time
from fleetctl.views.table import NOTHING, Tone, cell, text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from fleetctl.cli.output import OutputSection
    from fleetctl.core.diagnosis.findings import CauseFound, Diagnosis
    from fleetctl.core.diagnosis.request import RequestExplanation
    from fleetctl.model.request_trace import RequestTrace, RequestTraces
    from fleetctl.views.table import Cell

_TITLES = "TIME ID LANE REPLICA VERDICT >WAIT >TTFT >TOTAL >PROMPT >OUTPUT +CLIENT >+CACHED >+AHEAD +REFUSAL +ENDING"


def requests_view(found: RequestTraces, *, now: datetime, of_workflow: bool = False) -> View:
    """Return `requests`: a line a request, in the order they were accepted.

    `of_workflow`: the calls of one workflow id, of which each client may have a workflow of its own.
    """
    requests = sorted(found.requests, key=lambda trace: trace.at)
    is_mixed = of_workflow and len({trace.client for trace in requests}) > 1
    titles = _TITLES.replace("+CLIENT", "CLIENT") if is_mixed else _TITLES
    has_tiers = any(trace.tier for trace in requests)
    rows = [(*_row(trace, now), *([trace.tier or NOTHING] if has_tiers else [])) for trace in requests]
    shown = (
        section(text_table(titles + (" TIER" if has_tiers else ""), rows))
        if rows
        else lines("no request is remembered")
    )
    return View(value=requests, names=tuple(trace.id for trace in requests), sections=(shown,))


def _row(trace: RequestTrace, now: datetime) -> Sequence[str | Cell]:
    is_good = trace.verdict in ("good", "cancelled", "rejected")
    ahead = trace.attempts[-1].prompt_tokens_ahead if trace.attempts else 0
    return (
        format_clock_time(trace.at, now), trace.id, trace.lane, trace.replica or NOTHING,
        cell(trace.verdict, Tone.PLAIN if is_good else Tone.BAD), _duration(trace.queue_wait_s), _duration(trace.ttft_s),
        format_duration(trace.total_s), f"{trace.prompt_tokens:,}", f"{trace.output_tokens:,}", trace.client,
        f"{trace.cached_tokens:,}", f"{ahead:,}", trace.refusal, trace.ending,
    )  # fmt: skip


def _duration(seconds: float | None) -> str:
    return NOTHING if seconds is None else format_duration(seconds)


def request_view(found: Sequence[RequestExplanation], *, now: datetime) -> View:
    """Return `why REQUEST-ID`: what became of it, and where its time went."""
    parts = [_explained(each, now) for each in found]
    return View(value=list(found), names=tuple(name for name, _ in parts), sections=tuple(each for _, each in parts))


def _explained(found: RequestExplanation, now: datetime) -> tuple[str, OutputSection]:
    """Return a request's id, and what is said of it."""
    trace, early = found.trace, found.early
    if trace is None:
        name, at = (early.id, format_clock_time(early.at, now)) if early is not None else (NOTHING, NOTHING)
        return name, lines(f"{name}: {found.headline}", f"Request  answered {at}; it never had a lane, nor a replica")
    return trace.id, lines(
        f"{trace.id}: {found.headline}",
        f"Request  lane {trace.lane}{f' of model {trace.model}' if trace.model else ''}"
        f"{f' in place of {trace.in_place_of}' if trace.in_place_of else ''}"
        f"{f' by adapter {trace.adapter}' if trace.adapter else ''}"
        f"{f', tier {trace.tier}' if trace.tier else ''}, accepted {format_clock_time(trace.at, now)}, "
        f"{trace.prompt_tokens:,} prompt tokens, {trace.output_tokens:,} generated, "
        f"{format_duration(trace.total_s)} in all, ended as {trace.ending}",
        *(f"{'Time' if not number else '':<8} {step}" for number, step in enumerate(found.steps)),
    )


def diagnosis_view(found: Diagnosis) -> View:
    """Return `diagnose`: the causes, each with its evidence and its remedy."""
    sections = [lines(*_cause(number, cause)) for number, cause in enumerate(found.causes, 1)]
    if found.unexplained:
        sections.append(lines(*(cell(_unexplained(lane), Tone.STRONG) for lane in found.unexplained)))
    elif not found.causes:
        sections = [lines(cell(f"{found.fleet}: nothing is wrong", Tone.GOOD))]
    sections.append(lines(*(cell(line, Tone.DIM) for line in (*found.looked_at, *found.notes)), title="Looked at"))
    return View(value=found, names=tuple(cause.cause.value for cause in found.causes), sections=tuple(sections))


def _unexplained(lane: str) -> str:
    return f"{lane} misses its objective, and no cause was found: fleetctl requests --missed --lane {lane}"


def _cause(number: int, found: CauseFound) -> Iterator[str | Cell]:
    where = f" in {found.lane}" if found.lane else ""
    yield cell(f"{number}. {found.cause}{where}: {found.message}", Tone.STRONG if number == 1 else Tone.PLAIN)
    for figure in found.evidence:
        if figure:
            yield f"   {figure}"
    yield f"   Do: {found.remedy}"
