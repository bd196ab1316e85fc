"""A load run as people read it: a line an interval, and the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli.output import View, lines, section
from fleetctl.codec import to_plain
from fleetctl.core.slo.wording import describe, explain, format_limit
from fleetctl.model.slo import Metric, Quantiles
from fleetctl.model.verdict import Compliance
from fleetctl.operations.traffic import LoadVerdict, failures, measured
from fleetctl.units import format_duration, format_fraction
from fleetctl.views.bursts import BURST_COLUMNS, burst_cells, burst_line
from fleetctl.views.canvas import PLAIN
from fleetctl.views.conditions import verdict_cell
from fleetctl.views.figures import format_percentile, percentile_cells
from fleetctl.views.promises import good_cell, promise_cell, promised_percentiles
from fleetctl.views.streams import stalled_cell, unit_cell
from fleetctl.views.table import NOTHING, Cell, text_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.cli.output import OutputSection
    from fleetctl.model.slo import LaneSlo
    from fleetctl.model.traffic import TrafficFigures
    from fleetctl.operations.traffic import LaneFigures, LoadProgress, LoadReport, PlayedWorkflows

_LATE_S = 0.1  # a generator this late at its P99 measured itself
_COUNTS = "LANE >REQUESTS >OK >REFUSED >FAILED >CUT_SHORT >ATTAINED >GOODPUT_RPS >TOKENS/S SLO REASON"
_TRAFFIC = ">OFFERED >GOOD >REFUSED >TOKENS >TOKEN_SHARE >TTFT_P50 >TTFT_P95 >TTFT_P99"
_WORKFLOWS = "WORKFLOW >OFFERED >COMPLETED >FAILED >CUT_SHORT >GOOD >RETRIES >ELAPSED_P50 >P95 >P99 >MAX SLO >BACKOFF"
_SHOWN = (Metric.TTFT, Metric.ITL, Metric.STREAM_GAP, Metric.E2E)


def progress_line(progress: LoadProgress) -> str:
    """Return one interval on one line: how far, what is in flight, and each lane's P99 TTFT and verdict as of now."""
    of = f"/{progress.duration_s:.0f}" if progress.duration_s else ""
    lanes = " | ".join(_interval(lane) for lane in progress.lanes)
    waits = ""
    if progress.drain_left_s is not None:
        waits = f", waited for {progress.drain_left_s:.0f} s more at most"
    return f"{progress.elapsed_s:4.0f}{of} s, {progress.in_flight} in flight{waits} | {lanes}"


def load_view(report: LoadReport, slos: dict[str, LaneSlo]) -> View:
    """Return the report: what happened to the requests, and the latencies beside their promises."""
    verdict = LoadVerdict(report=report)
    figures = [*report.lanes, report.total] if report.total.requests else list(report.lanes)
    sections = (
        lines(*_head(report)),
        section(text_table(_COUNTS, [_counts(lane) for lane in figures])),
        _latencies(report.lanes, slos),
        *_streams(report.lanes, slos),
        section(text_table(f"LANE {BURST_COLUMNS}", [_burst(lane) for lane in figures])),
        *_traffic(report),
        *([section(text_table(_WORKFLOWS, [_played(each) for each in report.workflows]))] if report.workflows else ()),
        lines(*verdict.promises_missed),
        lines(*(f"{lane.lane}: {failure}" for lane in report.lanes for failure in failures(lane))),
        lines(*_bursts(report)),
        lines(*_cautions(report)),
    )
    value = {**to_plain(report), "compliance": verdict.compliance, "kept": verdict.compliance is Compliance.KEPT}
    return View(value=value, names=tuple(lane.lane for lane in report.lanes), sections=sections)


def _interval(lane: LaneFigures) -> str:
    p99 = format_duration(lane.ttft.p99_s) if lane.ttft.count else NOTHING
    bad = f", {lane.refused} refused" if lane.refused else ""
    bad += f", {lane.failures} failed" if lane.failures else ""
    missed = lane.verdict.having(Compliance.MISSED)
    bad += f", BREACH for {format_duration(int(lane.verdict.breach_s))}: {describe(missed[0])}" if missed else ""
    return f"{lane.lane} {lane.ok} ok, ttft p99 {p99}{bad}"


def _head(report: LoadReport) -> Iterator[str]:
    early = ", ended early" if report.ended_early else ""
    early += ", not waited for any longer" if report.drain_timed_out else ""
    unfinished = f", {report.unfinished} requests cut short" if report.unfinished else ""
    yield f"{report.url} ({report.model}), load from {report.source}"
    yield f"{report.duration_s:.0f} s of arrivals, {report.elapsed_s:.0f} s in all{early}{unfinished}"


def _counts(lane: LaneFigures) -> tuple[str | Cell, ...]:
    attained = format_fraction(lane.attainment) if lane.attainment is not None else NOTHING
    return (
        lane.lane, str(lane.requests), str(lane.ok), str(lane.refused), str(lane.failures), str(lane.cut_short),
        attained, f"{lane.goodput_rps:.2f}", f"{lane.output_tokens_per_s:.0f}", verdict_cell(lane.verdict), explain(lane.verdict),
    )  # fmt: skip


def _latencies(lanes: tuple[LaneFigures, ...], slos: dict[str, LaneSlo]) -> OutputSection:
    rows = []
    for lane in lanes:
        for metric in _SHOWN:
            found = measured(lane, metric)
            if found is not None and found.count:
                rows.append((lane.lane, metric, *_quantiles(found), _promise(slos.get(lane.lane), metric)))
    return section(text_table("LANE METRIC >SAMPLES >P50 >P95 >P99 >MAX SLO", rows))


def _streams(lanes: tuple[LaneFigures, ...], slos: dict[str, LaneSlo]) -> Iterator[OutputSection]:
    """Yield how evenly answers came, if any streamed."""
    found = [(lane.lane, lane.streams) for lane in lanes if lane.streams.answers]
    if found:
        rows = [
            (
                name,
                str(each.answers),
                unit_cell(each),
                _unit_promise(slos.get(name), Metric.TOKENS_PER_CHUNK),
                stalled_cell(each),
                _unit_promise(slos.get(name), Metric.STALL_RATE),
                str(each.stalled_answers),
                str(each.stalls),
            )
            for name, each in found
        ]
        yield section(text_table("LANE >STREAMS >TOKENS/CHUNK SLO >STALL_RATE SLO >STALLED >STALLS", rows))


def _burst(lane: LaneFigures) -> tuple[str, ...]:
    """Return how bursty what was offered to it was, beside what it is planned for."""
    unknown = (NOTHING,) * 4  # of a report that a progress line holds
    return (lane.lane, *(burst_cells(lane.arrivals) if lane.arrivals else unknown))


def _traffic(report: LoadReport) -> Iterator[OutputSection]:
    """Yield what became of each tier and each client, where requests have any."""
    if report.tiers:
        rows = [(*_traffic_row(each), promise_cell(each.promises)) for each in report.tiers]
        yield section(text_table(f"TIER {_TRAFFIC} SLO", rows))
    if report.clients:
        yield section(text_table(f"CLIENT {_TRAFFIC}", [_traffic_row(each) for each in report.clients]))


def _traffic_row(each: TrafficFigures) -> tuple[str | Cell, ...]:
    return (
        each.name or NOTHING, str(each.offered), good_cell(each.good_share, each.promises), str(each.refusals), str(each.served_tokens),
        format_fraction(each.token_share), *promised_percentiles(each.ttft, each.promises),
    )  # fmt: skip


def _played(each: PlayedWorkflows) -> tuple[str | Cell, ...]:
    good, backoff = (
        format_fraction(share) if share is not None else NOTHING for share in (each.good_share, each.backoff_share)
    )
    failed = ", ".join(f"{count} {why}" for why, count in each.failed.items()) or "0"
    counts = (each.kind, str(each.offered), str(each.completed), failed, str(each.undecided), good, str(each.retries))
    longest = format_duration(each.elapsed.max_s) if each.elapsed.count else NOTHING
    return (*counts, *promised_percentiles(each.elapsed, each.promises), longest, promise_cell(each.promises), backoff)


def _unit_promise(slo: LaneSlo | None, metric: Metric) -> str:
    target = slo.strictest(metric) if slo else None
    return f"<= {format_limit(target)}" if target else NOTHING


def _quantiles(found: Quantiles) -> tuple[str, ...]:
    return (str(found.count), *(shown.text for shown in percentile_cells(found, PLAIN)), format_duration(found.max_s))


def _promise(slo: LaneSlo | None, metric: Metric) -> str:
    wanted = {metric, Metric.COMPLETION} if metric is Metric.E2E else {metric}
    found = [t for t in slo.targets if t.metric in wanted] if slo else []
    return ", ".join(f"{format_percentile(t.percentile)} {format_duration(t.limit_s)}" for t in found) or NOTHING


def _bursts(report: LoadReport) -> Iterator[str]:
    """Yield which lanes' arrivals were burstier than planned, and what became of their SLO."""
    for lane in report.lanes:
        if lane.arrivals and (line := burst_line(lane.lane, lane.arrivals, lane.verdict.compliance)):
            yield line


def _cautions(report: LoadReport) -> Iterator[str]:
    generator = report.generator
    if generator.overflow:
        yield f"caution: {generator.overflow} arrivals were not sent, as too many were in flight; the load was not open"
    if generator.lateness.count and generator.lateness.p99_s > _LATE_S:
        late = format_duration(generator.lateness.p99_s)
        yield f"caution: the generator itself ran up to {late} late (P99); this machine had no CPU left for it"
    if report.total.rejected:
        rejected = f"{report.total.rejected} requests were the client's own fault (4xx) and count for no lane"
        yield f"caution: {rejected}"
