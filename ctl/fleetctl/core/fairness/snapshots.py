"""The figures of a lane's tiers, those beside them that it had until lately."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.tiers import TierSnapshot

if TYPE_CHECKING:
    from fleetctl.core.fairness.former_tiers import FormerTiers
    from fleetctl.core.fairness.lane_tiers import LaneTiers
    from fleetctl.core.fairness.tier import LaneTier
    from fleetctl.model.tiers import TierWindow


def tier_snapshots(tiers: LaneTiers | None, former: FormerTiers, now_s: float) -> tuple[TierSnapshot, ...]:
    """Return every tier's figures, highest first, then those of removed ones; none: the lane has and had no tiers."""
    found = []
    if tiers is not None:
        found += [_snapshot(tier, now_s, due=tier.share, had=tiers.had(tier, now_s)) for tier in tiers.all]
    found += [_snapshot(tier, now_s, is_removed=True) for tier in former.all(now_s)]
    served = {
        window.seconds: sum(_of(each, window.seconds).served_tokens for each in found)
        for each in found[:1]
        for window in each.windows
    }
    return tuple(
        replace(
            each,
            windows=tuple(
                replace(window, token_share=window.served_tokens / served[window.seconds])
                if served[window.seconds]
                else window
                for window in each.windows
            ),
        )
        for each in found
    )


def _snapshot(
    tier: LaneTier, now_s: float, *, due: float = 0.0, had: float = 0.0, is_removed: bool = False
) -> TierSnapshot:
    return TierSnapshot(
        name=tier.spec.name,
        in_flight=tier.in_flight,
        queued=tier.waiting,
        due=due,
        had=had,
        floor=0.0 if is_removed else tier.spec.floor,
        windows=tier.accounts.windows(now_s),
        slo=tier.promised,
        own_metrics=tier.own_metrics,
        is_removed=is_removed,
    )


def _of(tier: TierSnapshot, seconds: float) -> TierWindow:
    return next(window for window in tier.windows if window.seconds == seconds)
