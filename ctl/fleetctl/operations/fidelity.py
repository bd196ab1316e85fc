"""How true a simulation is to what it simulates: what was recorded beside what was computed of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.operations.recorded_lanes import BacktestLane
from fleetctl.units import format_duration, format_fraction

if TYPE_CHECKING:
    from collections.abc import Iterator


# Beside live fleets the simulation is off by up to 20 % of a P99 and mostly under two points of good (docs/benchmarks.md): what
# is apart by more has another cause, and differences between profiles that are smaller mean nothing either.
_SHARE_APART = 0.02
_LATENCY_FACTOR = 1.5
_LATENCY_APART_S = 0.05
_TPOT_APART_S = 0.01
_REPLICAS_APART = 0.1  # of them
_REPLICAS_APART_MIN = 0.25
_REQUESTS_MIN = 100  # fewer say nothing of a P99


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityLane:
    """One lane, as it was and as the simulation of its own profile has it."""

    lane: str
    recorded: BacktestLane
    replayed: BacktestLane
    is_near: bool | None  # None: too few requests to say
    apart: tuple[str, ...]  # which figures are too far apart, in words


def fidelity(recorded: tuple[BacktestLane, ...], replayed: tuple[BacktestLane, ...]) -> tuple[FidelityLane, ...]:
    """Return the lanes that either has, as the recorded profile orders them."""
    computed = {lane.lane: lane for lane in replayed}
    return tuple(_compared(lane, computed[lane.lane]) for lane in recorded if lane.lane in computed)


def _compared(recorded: BacktestLane, replayed: BacktestLane) -> FidelityLane:
    apart = tuple(_apart(recorded, replayed))
    is_few = min(recorded.offered, replayed.offered) < _REQUESTS_MIN
    return FidelityLane(
        lane=recorded.lane,
        recorded=recorded,
        replayed=replayed,
        # Where not the same requests were served, however few, no figure of it compares.
        is_near=None if is_few and recorded.offered == replayed.offered else not apart,
        apart=apart,
    )


def _apart(recorded: BacktestLane, replayed: BacktestLane) -> Iterator[str]:
    if recorded.offered != replayed.offered:
        yield f"{recorded.offered} offered against {replayed.offered}"
    was, computed = recorded.good_share, replayed.good_share
    if was is not None and computed is not None and abs(was - computed) > _SHARE_APART:
        yield f"good {format_fraction(was)} against {format_fraction(computed)}"
    for name, was_s, is_s, apart_s in (
        ("TTFT P50", recorded.ttft_p50_s, replayed.ttft_p50_s, _LATENCY_APART_S),
        ("TTFT P99", recorded.ttft_p99_s, replayed.ttft_p99_s, _LATENCY_APART_S),
        ("TPOT P50", recorded.tpot_p50_s, replayed.tpot_p50_s, _TPOT_APART_S),
        ("TPOT P99", recorded.tpot_p99_s, replayed.tpot_p99_s, _TPOT_APART_S),
        ("end to end P99", recorded.e2e_p99_s, replayed.e2e_p99_s, _LATENCY_APART_S),
    ):
        if was_s is not None and is_s is not None and _is_far(was_s, is_s, apart_s):
            yield f"{name} {format_duration(was_s)} against {format_duration(is_s)}"
    most = max(_REPLICAS_APART_MIN, _REPLICAS_APART * recorded.replicas_mean)
    if abs(recorded.replicas_mean - replayed.replicas_mean) > most:
        yield f"{recorded.replicas_mean:.2f} replicas against {replayed.replicas_mean:.2f}"


def _is_far(was_s: float, is_s: float, apart_s: float) -> bool:
    low, high = sorted((was_s, is_s))
    return high - low > apart_s and high > _LATENCY_FACTOR * low
