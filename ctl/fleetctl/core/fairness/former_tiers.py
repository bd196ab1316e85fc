"""Tiers that a lane had until a change of the profile: their figures stay until no window holds them any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleetctl.core.fairness.tier import LaneTier

KEPT_MAX: Final = 8  # as many as a profile may have; the longest gone makes place
KEPT_S: Final = 3600.0  # the longest window


class FormerTiers:
    """One lane's, the longest gone first. A request that is still at a replica goes on in its tier, and ends there."""

    __slots__ = ("_gone",)

    def __init__(self) -> None:
        self._gone: dict[str, tuple[float, LaneTier]] = {}  # by name, since when

    def retire(self, tiers: Iterable[LaneTier], now_s: float) -> None:
        """Keep the figures of tiers that are no more."""
        for tier in tiers:
            self._gone[tier.spec.name] = (now_s, tier)
        for name in list(self._gone)[:-KEPT_MAX]:
            del self._gone[name]

    def returned(self, names: Iterable[str], now_s: float) -> list[LaneTier]:
        """Take out the tiers of these names, which go on as they were."""
        self._forget(now_s)
        return [self._gone.pop(name)[1] for name in names if name in self._gone]

    def all(self, now_s: float) -> Sequence[LaneTier]:
        """Return those that a window may still hold something of, or that carry requests."""
        self._forget(now_s)
        return [tier for _, tier in self._gone.values()]

    def _forget(self, now_s: float) -> None:
        for name, (gone_s, tier) in list(self._gone.items()):
            if now_s - gone_s > KEPT_S and not tier.in_flight:
                del self._gone[name]
