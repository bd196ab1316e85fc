"""Which burst breaks a plan: its fleet is simulated under ever burstier arrivals, until each lane misses its objective."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from fleetctl.core.dispersion import UNKNOWN_DISPERSION, index_of_dispersion
from fleetctl.load.bursts import burst_times_s
from fleetctl.model.plan import LaneBurst
from fleetctl.operations.proof_load import DrawnRun, ProofLoad, proof_load
from fleetctl.operations.proving import Laboratory, warm_s
from fleetctl.units import format_fraction
from fleetctl.worker_processes import spread

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from fleetctl.core.plan import TracedRequest
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.proof_figures import SimulatedEvidence

REQUESTS: Final = 2000  # of one simulation: the objective's half a per cent are ten
_FACTORS: Final = (1.5, 2.25, 3.4, 5.1, 7.6)  # times the dispersion that was planned for
_ROUNDING: Final = 1e-9
_DURATION_S_MIN, _DURATION_S_MAX = 120.0, 3600.0  # ten seconds are told apart by ten of them


def with_breaking_bursts(
    plan: Plan,
    profile: Profile,
    rows: Sequence[TracedRequest] | None,
    slowdown: Mapping[str, float],
    *,
    requests: int = REQUESTS,
    processes: int = 1,
) -> Plan:
    """Return a proven plan with the burst that breaks each of its lanes, and a caution that names it.

    Engines step `slowdown` times as long, as in the plan's proof; requests are those of the proof, drawn anew. A plan that
    was not simulated, and a lane that misses its objective as planned, is left without. By more `processes` it is the same, sooner.
    """
    kept = {lane.lane for lane in plan.lanes if _keeps(lane, profile.objective.fraction)}
    if not plan.proof or not kept:
        return plan
    load = proof_load(profile, rows, requests_max=requests, warm_s=warm_s(plan))
    counts = {lane.lane: lane.replicas for lane in plan.lanes}
    crowds = {lane.lane: lane.proof.replicas for lane in plan.lanes if lane.proof is not None}
    base = fleet_dispersion(load)

    def simulated(factor: float) -> dict[str, SimulatedEvidence]:
        burst = bursty(load, profile.workload.peak_rps, *(factor * index for index in base), requests=requests)
        laboratory = Laboratory(profile=profile, plan=plan, load=burst, crowds=crowds)
        return laboratory.simulated(counts, dict(slowdown))

    tried: list[dict[str, SimulatedEvidence]] = []
    # In order: whether a lane keeps its objective is not monotone, as one draw of bursty arrivals has a third more requests than
    # another. Several are simulated at once; those behind the last that it takes are left out, as if they had not been.
    while len(tried) < len(_FACTORS) and not _are_broken(kept, tried):
        factors = _FACTORS[len(tried) : len(tried) + max(1, processes)]
        for each in spread([partial(simulated, factor) for factor in factors], processes=processes):
            if not _are_broken(kept, tried):
                tried.append(each)
    lanes = tuple(
        _with_burst(lane, [each[lane.lane] for each in tried]) if lane.lane in kept else lane for lane in plan.lanes
    )
    named = replace(plan, lanes=lanes)
    return replace(named, cautions=(*plan.cautions, *burst_cautions(named, profile.objective.fraction)))


def fleet_dispersion(load: ProofLoad) -> tuple[float, float]:
    """Return the index of dispersion of all arrivals of a proof over a second and over ten, at least Poisson's."""
    stretches = [
        (load.warm_s, length_s, [each.at_s for each in run if each.at_s >= load.warm_s])
        for run, length_s in zip(load.runs, load.run_s, strict=True)
    ]
    short, long = (index_of_dispersion(stretches, window_s) for window_s in (1.0, 10.0))
    found = max(1.0, short if short is not None else UNKNOWN_DISPERSION)
    return found, max(found, long if long is not None else found)


def bursty(load: ProofLoad, rps: float, dispersion_1s: float, dispersion_10s: float, *, requests: int) -> ProofLoad:
    """Return the requests of a proof, drawn anew, at this rate and as bursty as is said. The same load, the same requests."""
    rng = random.Random(f"burst/{dispersion_1s:.6f}/{dispersion_10s:.6f}")
    bodies = tuple(each for run in load.runs for each in run)
    places = range(len(bodies))
    duration_s = load.warm_s + min(_DURATION_S_MAX, max(_DURATION_S_MIN, requests / rps))
    times_s, body_of = [], []
    for at_s in burst_times_s(rps, dispersion_1s=dispersion_1s, dispersion_10s=dispersion_10s, rng=rng):
        if at_s >= duration_s:
            break
        times_s.append(at_s)
        body_of.append(rng.choice(places))
    made = DrawnRun(bodies, tuple(body_of), tuple(times_s))
    return ProofLoad(runs=(made,), run_s=(duration_s,), warm_s=load.warm_s, about="a burst")


def burst_cautions(plan: Plan, objective: float) -> Iterator[str]:
    """Yield of each lane which burst breaks it, where one does."""
    for lane in plan.lanes:
        burst = lane.proof.burst if lane.proof is not None else None
        if burst is None or burst.broken_1s is None:
            continue
        yield (
            f"lane {lane.lane}: keeps {format_fraction(objective)} good up to arrivals with an index of dispersion of "
            f"{_dispersion_text(burst.kept_1s, burst.kept_10s)}; at {_dispersion_text(burst.broken_1s, burst.broken_10s)} "
            f"{format_fraction(round(burst.broken_good_share or 0.0, 3))} are good"
        )


def _dispersion_text(short: float, long: float | None) -> str:
    return f"{short:.1f} over 1 s" + (f" and {long:.1f} over 10 s" if long is not None else "")


def _keeps(lane: LanePlan, objective: float) -> bool:
    """Whether a lane keeps its objective as planned: with a risk that was accepted it may not."""
    proof = lane.proof
    return proof is not None and (proof.good_share is None or proof.good_share >= objective - _ROUNDING)


def _are_broken(lanes: Collection[str], tried: Sequence[Mapping[str, SimulatedEvidence]]) -> bool:
    return all(any(_is_broken(each[lane]) for each in tried) for lane in lanes)


def _is_broken(found: SimulatedEvidence) -> bool:
    return found.missed.total() > found.allowed


def _with_burst(lane: LanePlan, tried: Sequence[SimulatedEvidence]) -> LanePlan:
    proof = lane.proof
    if proof is None or proof.dispersion_1s is None:
        return lane  # too few arrivals to tell a burst by
    kept_1s, kept_10s, broken = proof.dispersion_1s, proof.dispersion_10s, None
    for found in tried:
        if _is_broken(found):
            broken = found
            break
        if found.dispersion_1s is not None and found.dispersion_1s >= kept_1s:  # both of one load that was kept
            kept_1s, kept_10s = found.dispersion_1s, found.dispersion_10s
    burst = LaneBurst(
        kept_1s=kept_1s,
        kept_10s=kept_10s,
        broken_1s=broken.dispersion_1s if broken is not None else None,
        broken_10s=broken.dispersion_10s if broken is not None else None,
        broken_good_share=broken.good_share if broken is not None else None,
    )
    return replace(lane, proof=replace(proof, burst=burst))
