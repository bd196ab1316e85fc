"""What an incident is: drawn from a seed, in the sizes a small fleet has, or in any."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import StrEnum

from fleetctl.model.slo import LaneSlo, LatencyTarget, Metric
from fleetctl.testing import samples

CALM_S, AFTER_S = 60.0, 90.0
SLO = samples.lane_slo()  # TTFT P99 300 ms, ITL P99 50 ms
E2E_SLO = LaneSlo(targets=(LatencyTarget(metric=Metric.E2E, percentile=0.95, limit_s=2.0),))
P95_SLO = LaneSlo(
    targets=(
        LatencyTarget(metric=Metric.TTFT, percentile=0.95, limit_s=0.3),
        LatencyTarget(metric=Metric.E2E, percentile=0.99, limit_s=3.0),
        LatencyTarget(metric=Metric.ITL, percentile=0.99, limit_s=0.05),
    )
)
_TOKENS_PER_S_MAX = 400  # of all requests together: a campaign has to end
_TOKEN_S = 0.0225  # as tests/sim/incidents serves them
_FIRST_TOKEN_S = 0.1


class IncidentKind(StrEnum):
    SLOW = "slow"
    HANG = "hang"
    KILL = "kill"
    REFUSE = "refuse"
    OVERLOAD = "overload"
    FEW_SAMPLES = "few samples"
    # In any size only.
    STRAGGLERS = "stragglers"  # 5 to 30 % of the requests wait long for their first token
    ONE_REPLICA = "one replica slow"
    ITL = "itl only"
    LONG_ANSWERS = "e2e only"
    EARLY = "at the start"
    REPEATED = "back to back"
    FLAPPING = "flapping"
    UNNAMED = "under no lane"  # the client's requests fail before any lane is named
    CALM = "calm at the limit"  # 70 % of what the limit and the objective leave is late, all the time


FIRST_KINDS = tuple(IncidentKind)[:6]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """What happens, drawn from a seed."""

    seed: int
    kind: IncidentKind
    rps: float
    phases: tuple[tuple[float, float], ...]  # begins, ends
    factor: float  # slower, or more load
    share: float = 1.0  # of the requests, where not all are hit
    replicas: int = 2
    concurrency_max: int = 8
    tokens: tuple[int, int] = (10, 40)
    slo: LaneSlo = SLO
    objective: float = 0.995

    @classmethod
    def of(cls, seed: int) -> Incident:
        """Return an incident on a small fleet."""
        dice = random.Random(seed)
        kind = FIRST_KINDS[seed % len(FIRST_KINDS)]
        rps = dice.uniform(0.7, 1.2) if kind is IncidentKind.FEW_SAMPLES else dice.uniform(1.5, 6.0)
        starts_s = CALM_S + dice.uniform(0.0, 1.0)
        ends_s = starts_s + dice.uniform(20.0, 50.0)
        factor = dice.uniform(4.0, 16.0) if kind is not IncidentKind.OVERLOAD else dice.uniform(12.0, 20.0)
        return cls(seed=seed, kind=kind, rps=rps, phases=((starts_s, ends_s),), factor=factor)

    @classmethod
    def of_any_size(cls, seed: int) -> Incident:
        """Return an incident on a lane of 0.2 to 200 rps with 1 to 40 replicas."""
        dice = random.Random(f"any size {seed}")
        kind = tuple(IncidentKind)[seed % len(IncidentKind)]
        rps = math.exp(dice.uniform(math.log(0.2), math.log(200.0)))
        if kind is IncidentKind.OVERLOAD:
            rps = dice.uniform(1.0, 15.0)
        longest = max(3, min(40, round(_TOKENS_PER_S_MAX / rps)))
        replicas = dice.randint(4, 12) if kind is IncidentKind.ONE_REPLICA else dice.randint(1, 40)
        if kind is IncidentKind.OVERLOAD:
            replicas = dice.randint(1, 4)
        busy = rps * (_FIRST_TOKEN_S + longest * _TOKEN_S)
        slo = {IncidentKind.LONG_ANSWERS: E2E_SLO, IncidentKind.ITL: SLO}.get(kind, dice.choice((SLO, P95_SLO)))
        return cls(
            seed=seed,
            kind=kind,
            rps=rps,
            phases=_phases(kind, dice),
            factor=dice.uniform(4.0, 16.0) if kind is not IncidentKind.OVERLOAD else dice.uniform(12.0, 20.0),
            share=0.007 if kind is IncidentKind.CALM else dice.uniform(0.05, 0.3),
            replicas=replicas,
            concurrency_max=max(1 if kind is IncidentKind.OVERLOAD else 4, math.ceil(3.0 * busy / replicas)),
            tokens=(max(2, longest // 4), longest),
            slo=slo,
            objective=0.99 if kind is IncidentKind.CALM else dice.choice((0.99, 0.995)),
        )

    @property
    def starts_s(self) -> float:
        return self.phases[0][0]

    @property
    def ends_s(self) -> float:
        return self.phases[-1][1]


def _phases(kind: IncidentKind, dice: random.Random) -> tuple[tuple[float, float], ...]:
    starts_s = 1.0 if kind is IncidentKind.EARLY else CALM_S + dice.uniform(0.0, 1.0)
    if kind is IncidentKind.REPEATED:
        first_s = starts_s + dice.uniform(10.0, 40.0)
        again_s = first_s + dice.uniform(3.0, 50.0)
        return (starts_s, first_s), (again_s, again_s + dice.uniform(10.0, 40.0))
    if kind is IncidentKind.FLAPPING:
        every_s, lasts_s = dice.uniform(4.0, 15.0), dice.uniform(1.0, 3.0)
        return tuple((starts_s + n * every_s, starts_s + n * every_s + lasts_s) for n in range(8))
    if kind is IncidentKind.CALM:
        return ((1.0, 1801.0),)
    return ((starts_s, starts_s + dice.uniform(30.0, 90.0)),)
