"""What a recorded period came to, lane by lane, in the figures that a simulation of it is held against."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from fleetctl.core.slo.sketch import QuantileSketch
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import BreachKind, covered_refusals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from fleetctl.model.recording import RecordedRequest
    from fleetctl.model.replica import Replica
    from fleetctl.recordings.period import RecordedPeriod
    from fleetctl.sim.result import LaneResult

BUCKET_S = 10.0  # of the time over SLO, as in simulations
_NOT_OFFERED = ("rejected", "cancelled")  # verdicts of requests that were the client's own to end


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestLane:
    """One lane of the period, as it was or as a simulation has it."""

    lane: str
    offered: int  # requests that the lane took
    good: int
    good_share: float | None  # good of offered, of those that are decided; null where none is
    refused: int
    undecided: int  # ended by the client in time, or unfinished inside every limit: in no share
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    tpot_p50_s: float | None  # per output token of a whole streamed answer, each answer counting once
    tpot_p99_s: float | None
    e2e_p50_s: float | None
    e2e_p99_s: float | None
    queue_wait_p99_s: float | None
    replicas_mean: float  # from order to end
    ready_mean: float  # in rotation
    cost_usd: float
    over_slo_s: float  # 10 s buckets of arrivals whose share of good requests was under the objective


def recorded_lanes(period: RecordedPeriod) -> tuple[BacktestLane, ...]:
    """Return what became of the period's requests, and what its replicas cost."""
    found: dict[str, list[RecordedRequest]] = {lane.name: [] for lane in period.desired.profile.lanes}
    for request in period.requests:
        found.setdefault(request.lane, []).append(request)
    spans = list(replica_spans(period))
    return tuple(_recorded(period, lane, requests, spans) for lane, requests in found.items())


def simulated_lane(runs: Sequence[LaneResult]) -> BacktestLane:
    """Return one lane's figures over all seeds: counts and means of a run."""
    offered, good = round(fmean(each.offered for each in runs)), round(fmean(each.good for each in runs))
    judged = sum(each.offered - each.undecided for each in runs)
    return BacktestLane(
        lane=runs[0].lane,
        offered=offered,
        good=good,
        good_share=sum(each.good for each in runs) / judged if judged else None,
        refused=round(fmean(sum(each.refused.values()) for each in runs)),
        undecided=round(fmean(each.undecided for each in runs)),
        ttft_p50_s=_mean(each.ttft.p50_s for each in runs if each.ttft.count),
        ttft_p99_s=_mean(each.ttft.p99_s for each in runs if each.ttft.count),
        tpot_p50_s=_mean(each.tpot.p50_s for each in runs if each.tpot.count),
        tpot_p99_s=_mean(each.tpot.p99_s for each in runs if each.tpot.count),
        e2e_p50_s=_mean(each.e2e.p50_s for each in runs if each.e2e.count),
        e2e_p99_s=_mean(each.e2e.p99_s for each in runs if each.e2e.count),
        queue_wait_p99_s=_mean(each.queue_wait.p99_s for each in runs if each.queue_wait.count),
        replicas_mean=fmean(each.replicas_mean for each in runs),
        ready_mean=fmean(each.ready_mean for each in runs),
        cost_usd=fmean(each.cost_usd for each in runs),
        over_slo_s=fmean(each.over_slo_s for each in runs),
    )


def replica_spans(period: RecordedPeriod) -> Iterator[tuple[Replica, float]]:
    """Yield each live record of the period's replicas, and for how many seconds of it that was so."""
    for records in period.replicas.values():
        instants = [record.changed_at for record in records]
        # A record may change without its state: the later one then says what was so since.
        for record, (since, until) in zip(records, pairwise([*instants, period.until]), strict=True):
            lasted_s = _overlap_s(period, since, until)
            if record.state.is_live and lasted_s > 0:
                yield record, lasted_s


def _overlap_s(period: RecordedPeriod, since: datetime, until: datetime) -> float:
    return (min(until, period.until) - max(since, period.since)).total_seconds()


def _recorded(
    period: RecordedPeriod, lane: str, requests: list[RecordedRequest], spans: list[tuple[Replica, float]]
) -> BacktestLane:
    shed = _shed(period, lane)
    undecided = sum(each.verdict in _NOT_OFFERED for each in requests)
    good = _good(requests, allowance=shed * (len(requests) - undecided))
    ttft = _sketch(each.ttft_s for each in requests)
    tpot = _sketch(each.gap_s_mean for each in requests if each.ending == "complete")
    e2e = _sketch(each.total_s for each in requests if each.ending == "complete")
    wait = _sketch(each.queue_wait_s for each in requests)
    own = [(record, lasted_s) for record, lasted_s in spans if record.lane == lane]
    seconds = max(1.0, period.duration_s)
    return BacktestLane(
        lane=lane,
        offered=len(requests),
        good=good,
        good_share=good / (len(requests) - undecided) if len(requests) > undecided else None,
        refused=sum(bool(each.refusal) for each in requests),
        undecided=undecided,
        ttft_p50_s=_quantile(ttft, 0.5),
        ttft_p99_s=_quantile(ttft, 0.99),
        tpot_p50_s=_quantile(tpot, 0.5),
        tpot_p99_s=_quantile(tpot, 0.99),
        e2e_p50_s=_quantile(e2e, 0.5),
        e2e_p99_s=_quantile(e2e, 0.99),
        queue_wait_p99_s=_quantile(wait, 0.99),
        replicas_mean=sum(lasted_s for _, lasted_s in own) / seconds,
        ready_mean=sum(lasted_s for record, lasted_s in own if record.state is ReplicaState.READY) / seconds,
        cost_usd=sum(record.price_usd_per_hour * lasted_s / 3600.0 for record, lasted_s in own),
        over_slo_s=_over_slo_s(period, requests, shed),
    )


def _over_slo_s(period: RecordedPeriod, requests: list[RecordedRequest], shed: float) -> float:
    objective = period.desired.profile.objective.fraction
    buckets: defaultdict[int, list[RecordedRequest]] = defaultdict(list)
    for each in requests:
        if each.verdict not in _NOT_OFFERED:
            buckets[int((each.at - period.since).total_seconds() // BUCKET_S)].append(each)
    return BUCKET_S * sum(
        _good(found, allowance=shed * len(found)) < objective * len(found) for found in buckets.values()
    )


def _good(requests: Iterable[RecordedRequest], *, allowance: float) -> int:
    verdicts = Counter(each.verdict for each in requests)
    return verdicts["good"] + covered_refusals(verdicts[BreachKind.REFUSED], allowance=allowance)


def _shed(period: RecordedPeriod, lane: str) -> float:
    """Return the share of a lane's requests that may be refused; of one that the profile does not have, none."""
    return next((each.slo.shed for each in period.desired.profile.lanes if each.name == lane), 0.0)


def _sketch(values: Iterable[float | None]) -> QuantileSketch:
    sketch = QuantileSketch()
    for value in values:
        if value is not None:
            sketch.add(max(0.0, value))
    return sketch


def _quantile(sketch: QuantileSketch, q: float) -> float | None:
    return sketch.quantiles([q])[0] if sketch.count else None


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return fmean(found) if found else None
