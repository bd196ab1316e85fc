"""What the bearer of a key is called, and which tier a request has: its key's, or its lane's, or a lower one that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.fairness.entitlement import entitled
from fleetctl.core.fairness.retries import RetryMark

if TYPE_CHECKING:
    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.gateway.auth import Authenticator
    from fleetctl.gateway.requests import Request
    from fleetctl.model.gateway import RoutingTable

TIER = b"x-fleetctl-tier"
# Passed on to replicas, and so among those headers, whose names are in lower case.
_RETRY_COUNT = b"\r\nx-stainless-retry-count:"
_NAME_CHARS_MAX = 64


class Entitlements:
    """Those of one routing table after another."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._names: dict[str, str] = {}
        self._tiers: dict[str, str] = {}
        self._takes_header = False
        self.has_any = False  # some key has a name, a tier or bounds of its own, or there are tiers

    def apply(self, table: RoutingTable) -> None:
        """Take over a table's."""
        self._names, self._tiers, self._takes_header = table.key_names, table.key_tiers, table.tier_header
        self.has_any = bool(table.key_generation or self._names or self._tiers or table.tiers)

    def own(self, request: Request) -> tuple[str, str]:
        """Return the hash of a request's key, and that key's tier; each "" where there is none."""
        key = self._authenticator.known_hash(request)
        return key, self._tiers.get(key, "")

    def assign(self, request: Request, lane: DispatchLane[ActiveRequest]) -> str:
        """Note a request's key, its client's name and its tier; return what is wrong with the tier it names: empty, as a rule."""
        key = request.key_hash = self._authenticator.known_hash(request)
        request.client_name = self._names.get(key, "")
        tiers = lane.tiers
        if tiers is None:
            return ""
        # A table is replaced whole, so that a key names a tier that there is; were it otherwise, it would have its lane's.
        own = self._tiers.get(key, "")
        named = request.headers.get(TIER) if self._takes_header else None
        # An empty header names none.
        request.tier = entitled(tiers, own, named.decode("latin-1") if named else "")
        if request.tier is None and named:
            request.tier, shown = entitled(tiers, own), named[:_NAME_CHARS_MAX].decode("latin-1")
            return f"there is no tier {shown!r}; there are: {', '.join(tier.spec.name for tier in tiers.all)}"
        if request.tier is not None and request.tier.spec.retry_budget is not None:
            request.retry_mark = _retry_mark(request)
        return ""


def _retry_mark(request: Request) -> RetryMark:
    """Return what tells whether a request has come before: its body, byte for byte, and what OpenAI's clients count."""
    _, _, rest = (b"\r\n" + request.forwarded).partition(_RETRY_COUNT)
    count = rest.partition(b"\r")[0].strip()
    return RetryMark(hash(request.body), is_declared=count.isdigit() and int(count) > 0)
