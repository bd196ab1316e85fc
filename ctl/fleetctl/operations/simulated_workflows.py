"""A simulation's workflows, of every policy over all seeds."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from fleetctl.core.slo.judge import COUNTS_ALONE
from fleetctl.core.slo.promises import over_runs
from fleetctl.model.verdict import PromiseFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleetctl.load.calls import PlayedWorkflows
    from fleetctl.sim.result import SimulationResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWorkflows:
    """The workflows of one kind under one policy, over all seeds."""

    policy: str
    kind: str  # "-": they have none
    offered: int
    completed: int
    failed: int
    undecided: int  # had not ended with the simulation, inside their limit
    good: int | None  # null: their kind promises nothing
    good_share: float | None  # good of what was offered and is decided
    good_share_min: float | None  # of the worst seed
    retries: int  # of refused calls
    elapsed_p50_s: float  # means over the seeds, as are the next; 0 where none completed
    elapsed_p99_s: float
    queued_share: float | None  # of their elapsed time
    backoff_share: float | None
    promises: tuple[PromiseFinding, ...] = ()  # of its kind's elapsed time, lowest percentile first


def workflows_compared(runs: Sequence[SimulationResult]) -> Iterator[PolicyWorkflows]:
    """Yield every policy's kinds of workflows, in the order they first came."""
    for policy in dict.fromkeys(run.policy for run in runs):
        played = [each for run in runs if run.policy == policy for each in run.workflows]
        for kind in dict.fromkeys(each.kind for each in played):
            yield _over_seeds(policy, kind, [each for each in played if each.kind == kind])


def _over_seeds(policy: str, kind: str, found: Sequence[PlayedWorkflows]) -> PolicyWorkflows:
    offered, undecided = sum(each.offered for each in found), sum(each.undecided for each in found)
    is_judged = found[0].good is not None
    good = sum(each.good or 0 for each in found)
    return PolicyWorkflows(
        policy=policy,
        kind=kind,
        offered=offered,
        completed=sum(each.completed for each in found),
        failed=sum(sum(each.failed.values()) for each in found),
        undecided=undecided,
        good=good if is_judged else None,
        good_share=good / (offered - undecided) if is_judged and offered > undecided else None,
        good_share_min=min((each.good_share for each in found if each.good_share is not None), default=None),
        retries=sum(each.retries for each in found),
        elapsed_p50_s=fmean(each.elapsed.p50_s for each in found),
        elapsed_p99_s=fmean(each.elapsed.p99_s for each in found),
        queued_share=_mean([each.queued_share for each in found]),
        backoff_share=_mean([each.backoff_share for each in found]),
        promises=over_runs([each.promises for each in found], COUNTS_ALONE),
    )


def _mean(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return fmean(known) if known else None
