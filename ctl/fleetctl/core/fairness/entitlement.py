"""Which tier a request has: its key's, else its lane's, or a lower one that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.tiers import given_rank

if TYPE_CHECKING:
    from fleetctl.core.fairness.lane_tiers import LaneTiers
    from fleetctl.core.fairness.tier import LaneTier


def entitled(tiers: LaneTiers, key_tier: str, named: str = "") -> LaneTier | None:
    """Return the tier of a request whose key has `key_tier` ("": none) and that names `named` ("": none).

    A higher one than its key's, or its lane's where the key has none, is not given. None: there is no tier of the name. A key's
    tier that there is not is the lane's.
    """
    own = tiers.named(key_tier) or tiers.default
    if not named:
        return own
    found = tiers.named(named)
    return tiers.all[given_rank(own.rank, found.rank)] if found is not None else None
