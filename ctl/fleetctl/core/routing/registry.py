"""Every scorer and filter by the name a profile gives it: a new one is its file and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from fleetctl.core.routing.candidate import Candidate, PromptLoad
from fleetctl.core.routing.filters.engine_not_queueing import engine_not_queueing
from fleetctl.core.routing.scorers.kv_headroom import kv_headroom
from fleetctl.core.routing.scorers.least_predicted_ttft import least_predicted_ttft
from fleetctl.core.routing.scorers.prefix_affinity import prefix_affinity

if TYPE_CHECKING:
    from fleetctl.model.profile import RoutingRules

# One score in [0, 1] for each candidate, in their order, or none at all where nothing tells them apart; the time is on
# the dispatcher's clock.
Scorer: TypeAlias = Callable[[Sequence[Candidate], PromptLoad, float], list[float]]
# Some of the candidates, in their order.
Filter: TypeAlias = Callable[[Sequence[Candidate], PromptLoad], list[Candidate]]

SCORERS: Final[Mapping[str, Scorer]] = {
    "least-predicted-ttft": least_predicted_ttft,
    "prefix-affinity": prefix_affinity,
    "kv-headroom": kv_headroom,
}
FILTERS: Final[Mapping[str, Filter]] = {
    "engine-not-queueing": engine_not_queueing,
}


def unknown_names(rules: RoutingRules) -> list[str]:
    """Return the names in these rules that are not registered."""
    return [name for name in rules.scorers if name not in SCORERS] + [n for n in rules.filters if n not in FILTERS]
