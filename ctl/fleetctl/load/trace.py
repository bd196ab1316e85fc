"""Who asks for what, and when: arrivals from a trace, or generated from a workload."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.config.call_rows import call_name, kind_of, linked
from fleetctl.config.trace import TraceRow
from fleetctl.config.trace_summary import summarize
from fleetctl.config.trace_units import read_units
from fleetctl.core.model_names import models_by_name
from fleetctl.errors import ConfigError
from fleetctl.load.bursts import burst_times_s
from fleetctl.load.calls import TraceCall
from fleetctl.load.models import TrafficModels

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from fleetctl.load.report import LoadSpec
    from fleetctl.model.profile import Distribution, WorkloadSpec

_Z99 = 2.3263478740408408  # the standard normal's 99th percentile
_GENERATED_DURATION_S = 60.0
_COMMON_PREFIX = "common"
# A lognormal has no end; beyond four times the P99 a length is the model's doing, not the workload's.
_LENGTH_MAX = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request to send, `at_s` after the run's start."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    stream: bool
    batch: bool = False
    lane: str = ""
    client: str = ""  # whose it is; empty: nobody's in particular
    tier: str = ""  # that it names; empty: none
    model: str = ""  # the same
    prefix_group: str = ""
    prefix_tokens: int = 0  # of the prompt, the same for the whole group
    # Of a recorded request, whose `prompt_tokens` are those that were not cached:
    lane_entered: str = ""  # enters it again, where it can; empty: the profile's rules choose
    cached_tokens: int = 0  # of its prompt, beside `prompt_tokens`
    cached_lane: str = ""  # whose replicas had them; empty: those of every lane whose engines cache prefixes
    call: TraceCall | None = None  # of a workflow; `at_s` is then the workflow's, whose calls come together


def arrivals(spec: LoadSpec, rng: random.Random) -> Iterator[Arrival]:
    """Yield the run's arrivals in order of time, none beyond its duration; rows are read as they are needed.

    All calls of a workflow are yielded together, where it begins: which of them is sent when, a WorkflowPlayer says.

    Raises ConfigError for a broken trace, at the row that is broken.
    """
    duration_s = arrival_duration_s(spec)
    rows = _replayed(spec, rng) if spec.trace else ((row, None) for row in _generated(spec.workload, spec, rng))
    models = TrafficModels(spec)
    share = spec.workload.batch_share if spec.batch_share is None else spec.batch_share
    for row, call in rows:
        if duration_s is not None and row.arrival_s >= duration_s:
            next(rows, None)  # one that is earlier shows the trace to be unsorted: an error, not an empty run
            return
        is_hinted = rng.random() < share
        is_batch = is_hinted if row.batch is None else row.batch
        streams = not is_batch and (spec.workload.stream_share >= 1 or rng.random() < spec.workload.stream_share)
        cached = row.cached_prefix_tokens
        if cached is None:  # a trace that does not say it has what the profile says of its requests
            cached = round(row.prompt_tokens * spec.workload.prefix_hit)
        yield _arrival(row, call, model=models.of(row, rng), is_batch=is_batch, streams=streams, cached_tokens=cached)


def arrival_duration_s(spec: LoadSpec) -> float | None:
    """Return how long arrivals come; None: until the trace ends."""
    return spec.duration_s if spec.trace or spec.duration_s else _GENERATED_DURATION_S


def check_spec(spec: LoadSpec) -> None:
    """Raise ConfigError for what no run can do."""
    positive = {"speed": spec.speed, "timeout": spec.timeout_s, "interval": spec.interval_s}
    positive |= {"bytes-per-token": spec.bytes_per_token, "in-flight-max": float(spec.in_flight_max)}
    positive |= {} if spec.duration_s is None else {"duration": spec.duration_s}
    positive |= {} if spec.rps is None else {"rps": spec.rps}
    for name, value in positive.items():
        if not 0 < value < math.inf:
            raise ConfigError(f"--{name} must be more than zero, not {value:g}")
    if not 0 <= spec.offset_s < math.inf:
        raise ConfigError(f"--offset must be zero or more, not {spec.offset_s:g}")
    if spec.batch_share is not None and not 0 <= spec.batch_share <= 1:
        raise ConfigError(f"--batch-share must lie between 0 and 1, not {spec.batch_share:g}")


def uncached(arrival: Arrival) -> Arrival:
    """Return a request with the work of the prompt tokens that are not cached, and beside it what is, for simulated engines."""
    if not arrival.prefix_tokens:
        return arrival
    tokens = max(1, arrival.prompt_tokens - arrival.prefix_tokens)
    cached = arrival.prompt_tokens - tokens
    return replace(arrival, prompt_tokens=tokens, cached_tokens=cached, prefix_tokens=0, prefix_group="")


def _arrival(
    row: TraceRow, call: TraceCall | None, *, model: str, is_batch: bool, streams: bool, cached_tokens: int
) -> Arrival:
    return Arrival(
        at_s=row.arrival_s,
        prompt_tokens=row.prompt_tokens,
        output_tokens=max(1, row.output_tokens),
        stream=streams if row.stream is None else row.stream,
        batch=is_batch,
        lane=row.lane or "",
        client=row.client,
        tier=row.tier,
        model=model,
        # What is cached of a prompt of no group is the same for all such, as common instructions are: else none of it would be.
        prefix_group=row.prefix_group or (_COMMON_PREFIX if cached_tokens else ""),
        prefix_tokens=cached_tokens,
        call=call,
    )


def _replayed(spec: LoadSpec, rng: random.Random) -> Iterator[tuple[TraceRow, TraceCall | None]]:
    """Yield the trace's rows at the run's own times: skipped to the offset, sped up, thinned, and looped if short."""
    path = Path(spec.trace)
    keep = _share_to_keep(spec, path)
    tiers, kinds = [tier.name for tier in spec.tiers], [kind.name for kind in spec.kinds]
    models = () if spec.model else models_by_name(spec.models)
    lap, lap_start_s = 1, 0.0
    while True:
        last_s = None
        for unit in read_units(path, tiers=tiers, kinds=kinds, models=models):
            began_s = unit[0].arrival_s
            if began_s < spec.offset_s:
                continue
            last_s = lap_start_s + (began_s - spec.offset_s) / spec.speed
            if rng.random() < keep:
                for row, call in zip(unit, _calls(unit, lap, spec.speed), strict=True):
                    yield replace(row, arrival_s=last_s), call
        if last_s is None:
            raise ConfigError(f"{path}: has no requests from {spec.offset_s:g} s on", hint="lower --offset")
        if spec.duration_s is None or last_s >= spec.duration_s:
            return
        if last_s <= lap_start_s:
            raise ConfigError(f"{path}: is one instant long, so it cannot be looped", hint="leave out --duration")
        # One mean gap between the last row of a lap and the first of the next would need the count; a second will do.
        lap, lap_start_s = lap + 1, last_s + 1.0 / spec.speed


def _calls(unit: tuple[TraceRow, ...], lap: int, speed: float) -> Iterator[TraceCall | None]:
    """Yield each row's place among the calls of its workflow, which has another name in every lap; None: it is in none."""
    rows = [row.call for row in unit if row.call is not None]
    if not rows:
        yield None
        return
    kind, links = kind_of(rows), linked(rows)
    for number, (each, row) in enumerate(zip(rows, unit, strict=True)):
        later_s = 0.0 if each.after else (row.arrival_s - unit[0].arrival_s) / speed
        yield TraceCall(
            workflow=each.workflow if lap == 1 else f"{each.workflow}.{lap}",
            kind=kind,
            name=call_name(each, number),
            number=number,
            count=len(rows),
            after=links[number],
            think_s=each.think_s + later_s,
        )


def _share_to_keep(spec: LoadSpec, path: Path) -> float:
    if spec.rps is None:
        return 1.0
    summary = summarize(path)
    mean_rps = summary.requests / max(summary.duration_s, 1.0) * spec.speed
    return min(1.0, spec.rps / mean_rps)


def _generated(workload: WorkloadSpec, spec: LoadSpec, rng: random.Random) -> Iterator[TraceRow]:
    """Yield requests for ever, as bursty as the workload says, with lognormal lengths."""
    rate = spec.rps or workload.peak_rps * spec.speed
    for at_s in _times_s(workload, rate, rng):
        prompt_tokens = _length(workload.prompt_tokens, rng)
        yield TraceRow(
            arrival_s=at_s,
            prompt_tokens=prompt_tokens,
            output_tokens=_length(workload.output_tokens, rng),
        )


def _times_s(workload: WorkloadSpec, rate: float, rng: random.Random) -> Iterator[float]:
    """Yield arrival times: by the indices of dispersion where there are any, else with gamma gaps; Poisson where nothing is said."""
    if workload.dispersion_1s is not None or workload.dispersion_10s is not None:
        short = workload.dispersion_1s or 1.0
        yield from burst_times_s(rate, dispersion_1s=short, dispersion_10s=workload.dispersion_10s or short, rng=rng)
    shape = 1.0 / (workload.burst_cv or 1.0) ** 2
    at_s = 0.0
    while True:
        at_s += rng.gammavariate(shape, 1.0 / (shape * rate))
        yield at_s


def _length(distribution: Distribution, rng: random.Random) -> int:
    sigma = math.log(distribution.p99 / distribution.p50) / _Z99
    drawn = rng.lognormvariate(math.log(distribution.p50), sigma) if sigma > 0 else distribution.p50
    return max(1, round(min(drawn, _LENGTH_MAX * distribution.p99)))
