"""What became of each tier and each client in a simulation, over all seeds."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from fleetctl.core.slo.judge import COUNTS_ALONE
from fleetctl.core.slo.promises import over_runs
from fleetctl.model.traffic import OTHERS
from fleetctl.model.verdict import PromiseFinding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fleetctl.model.traffic import TrafficFigures
    from fleetctl.sim.result import SimulationResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTraffic:
    """One tier or client under one policy: counts over all seeds, in every lane."""

    policy: str
    name: str  # empty: of requests that name none; "(others)": of several clients together
    offered: int
    good: int
    undecided: int  # in no share
    good_share: float | None  # good of what was offered and is decided; null where nothing is
    good_share_min: float | None  # of the worst seed
    refused: int
    served_tokens: int  # prompts that were computed and what was generated
    token_share: float  # of all served tokens
    ttft_p50_s: float  # means over the seeds, as is the next
    ttft_p99_s: float
    promises: tuple[PromiseFinding, ...] = ()  # of a tier with an SLO of its own: the share of good requests, then TTFT


def tiers_of(runs: Sequence[SimulationResult]) -> tuple[PolicyTraffic, ...]:
    """Return every policy's tiers; none where no request had one."""
    return tuple(_compared(runs, lambda run: run.tiers))


def clients_of(runs: Sequence[SimulationResult]) -> tuple[PolicyTraffic, ...]:
    """Return every policy's clients, the rest together last; none where no request named one."""
    return tuple(_compared(runs, lambda run: run.clients))


def _compared(
    runs: Sequence[SimulationResult], part_of: Callable[[SimulationResult], tuple[TrafficFigures, ...]]
) -> Iterator[PolicyTraffic]:
    for policy in dict.fromkeys(run.policy for run in runs):
        parts = [part_of(run) for run in runs if run.policy == policy]
        names = dict.fromkeys(each.name for part in parts for each in part)
        tokens = sum(each.served_tokens for part in parts for each in part)
        for name in sorted(names, key=lambda name: name == OTHERS):
            found = [each for part in parts for each in part if each.name == name]
            yield _over_seeds(policy, name, found, all_tokens=tokens)


def _over_seeds(policy: str, name: str, found: Sequence[TrafficFigures], *, all_tokens: int) -> PolicyTraffic:
    offered, good = sum(each.offered for each in found), sum(each.good for each in found)
    undecided, tokens = sum(each.undecided for each in found), sum(each.served_tokens for each in found)
    return PolicyTraffic(
        policy=policy,
        name=name,
        offered=offered,
        good=good,
        undecided=undecided,
        good_share=good / (offered - undecided) if offered > undecided else None,
        good_share_min=min((each.good_share for each in found if each.good_share is not None), default=None),
        refused=sum(each.refusals for each in found),
        served_tokens=tokens,
        token_share=tokens / all_tokens if all_tokens else 0.0,
        ttft_p50_s=fmean(each.ttft.p50_s for each in found),
        ttft_p99_s=fmean(each.ttft.p99_s for each in found),
        promises=over_runs([each.promises for each in found], COUNTS_ALONE),
    )
