"""A verdict in words, the same in every face."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.slo import Metric, Validity
from fleetctl.model.verdict import Compliance
from fleetctl.units import format_duration, format_fraction

if TYPE_CHECKING:
    from fleetctl.model.slo import LatencyTarget
    from fleetctl.model.verdict import PromiseFinding, SloFinding, SloVerdict


def explain(verdict: SloVerdict) -> str:
    """Return what was missed, by what factor, over which window and for how long; what is undecided; else nothing."""
    missed = [describe(finding) for finding in verdict.having(Compliance.MISSED)]
    if missed:
        lasting = f"for {format_duration(int(verdict.breach_s))}: " if verdict.breach else ""
        return lasting + "; ".join(missed)
    undecided = [describe(finding) for finding in verdict.having(Compliance.UNDECIDED)]
    is_cut_short = any(finding.is_cut_short for finding in verdict.findings)
    why = "too many cut short to be sure" if is_cut_short else "too few to be sure"
    return f"{'; '.join(undecided)} ({why})" if undecided else ""


def describe(finding: SloFinding) -> str:
    """Return "ttft P99 932ms > 300ms (3.1x) over 60s", or "31 of 43 requests good (12 ttft), 99.5% promised ..."."""
    over = f"over {finding.window_s:.0f}s"
    target = finding.target
    if target is None:
        counts = {**dict(sorted(finding.kinds.items())), "cut short": finding.undecided}
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        good = f"{finding.samples - finding.missed - finding.undecided} of {finding.samples} requests good"
        good += f", {finding.covered} of them refused as allowed" if finding.covered else ""
        promised = format_fraction(1.0 - finding.allowed)
        return f"{good}{f' ({kinds})' if kinds else ''}, {promised} promised (burn {_times(finding.factor)}) {over}"
    measured = format_value(target, finding.measured or 0.0)
    sign = ">" if finding.missed > finding.samples * finding.allowed else "<="
    return f"{target.name} {measured} {sign} {format_limit(target)} ({_times(finding.factor)}) {over}"


def describe_promise(finding: PromiseFinding) -> str:
    """Return "elapsed P99 ~1.4s of 1s (8 of 8 late or failed)", or "good requests 0% of 99.5% (0 of 12)"."""
    unfinished = f", {finding.undecided} unfinished" if finding.undecided else ""
    if finding.percentile is None:
        counts = f"{finding.samples - finding.missed} of {finding.samples}{unfinished}"
        return (
            f"{finding.name} {format_fraction(finding.measured or 0.0)} of {format_fraction(finding.limit)} ({counts})"
        )
    measured = "unknown" if finding.measured is None else format_duration(finding.measured)
    mark = "~" if finding.validity is Validity.FEW else ""
    late = "late or failed" if finding.name.startswith("elapsed") else "late"
    counts = f"{finding.missed} of {finding.samples} {late}{unfinished}"
    return f"{finding.name} {mark}{measured} of {format_duration(finding.limit)} ({counts})"


def format_value(target: LatencyTarget, value: float) -> str:
    """Return a figure of what is promised, in its unit: "212ms", "1.2%", "4.0 tokens"."""
    match target.metric:
        case Metric.STALL_RATE:
            return format_fraction(round(value, 4))
        case Metric.TOKENS_PER_CHUNK:
            return f"{value:.1f} tokens"
        case Metric.TTFT | Metric.ITL | Metric.E2E | Metric.QUEUE_WAIT | Metric.COMPLETION | Metric.STREAM_GAP:
            return format_duration(value)


def format_limit(target: LatencyTarget) -> str:
    """Return what is promised, in its unit: "300ms", "1%", "8 tokens"."""
    if target.metric is Metric.TOKENS_PER_CHUNK:
        return f"{target.limit_s:g} tokens"
    return format_value(target, target.limit_s)


def _times(factor: float) -> str:
    # From 99.5 on two digits would be written as 1e+02.
    return f"{factor:.2g}x" if factor < 99.5 else f"{factor:.0f}x"
