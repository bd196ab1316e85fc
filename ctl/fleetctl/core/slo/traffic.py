"""Requests counted by tier and by client, in bounded memory; what is good is each request's own stopwatch to say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fleetctl.core.slo.sketch import QuantileSketch
from fleetctl.model.slo import BreachKind
from fleetctl.model.traffic import OTHERS, TrafficFigures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fleetctl.core.slo.stopwatch import RequestStopwatch
    from fleetctl.model.verdict import PromiseFinding

    TierJudge = Callable[[str, "TrafficCounts"], tuple[PromiseFinding, ...]]  # of a tier of this name

CLIENTS_COUNTED_MAX: Final = 1000  # that come after these are counted together
CLIENTS_SHOWN_MAX: Final = 20
TIERS_COUNTED_MAX: Final = 64  # a trace may name any


class TrafficCounts:
    """The sums of one tier or client."""

    __slots__ = ("good", "offered", "refused", "served_tokens", "shed", "ttft", "undecided")

    def __init__(self) -> None:
        self.offered = self.good = self.undecided = self.served_tokens = 0
        self.shed = 0  # misses that are a refusal
        self.refused: Counter[str] = Counter()
        self.ttft = QuantileSketch()

    def add(self, stopwatch: RequestStopwatch, *, refusal: str, served_tokens: int) -> None:
        """Count a request that is over, or will not end any more."""
        self.offered += 1
        self.good += stopwatch.is_good
        self.undecided += not stopwatch.is_good and stopwatch.breach is None
        self.shed += stopwatch.breach is BreachKind.REFUSED
        self.served_tokens += served_tokens
        if refusal:
            self.refused[refusal] += 1
        if stopwatch.ttft_s is not None:
            self.ttft.add(max(0.0, stopwatch.ttft_s))

    def merge(self, other: TrafficCounts) -> None:
        """Add everything another one counted."""
        self.offered += other.offered
        self.good += other.good
        self.undecided += other.undecided
        self.shed += other.shed
        self.served_tokens += other.served_tokens
        self.refused.update(other.refused)
        self.ttft.merge(other.ttft)

    def figures(self, name: str, *, all_tokens: int) -> TrafficFigures:
        """Return the figures, beside the tokens that everybody was served."""
        judged = self.offered - self.undecided
        return TrafficFigures(
            name=name,
            offered=self.offered,
            good=self.good,
            undecided=self.undecided,
            good_share=self.good / judged if judged else None,
            refused=dict(sorted(self.refused.items())),
            served_tokens=self.served_tokens,
            token_share=self.served_tokens / all_tokens if all_tokens else 0.0,
            ttft=self.ttft.summary(),
        )


class TrafficBreakdown:
    """Every tier's and client's sums. Nothing is counted until the first request that has either."""

    def __init__(self) -> None:
        self.tiers: dict[str, TrafficCounts] = {}
        self.clients: dict[str, TrafficCounts] = {}

    def add(
        self, tier: str, client: str, stopwatch: RequestStopwatch, *, refusal: str = "", served_tokens: int = 0
    ) -> None:
        """Count a request that is over, or will not end any more, under its tier and its client."""
        for name, known, most in (
            (tier, self.tiers, TIERS_COUNTED_MAX),
            (client, self.clients, CLIENTS_COUNTED_MAX),
        ):
            found = known.get(name)
            if found is None:
                place = name if len(known) < most else OTHERS
                found = known.setdefault(place, TrafficCounts())
            found.add(stopwatch, refusal=refusal, served_tokens=served_tokens)

    def merge(self, other: TrafficBreakdown) -> None:
        """Add everything another one counted."""
        for known, added in ((self.tiers, other.tiers), (self.clients, other.clients)):
            for name, counts in added.items():
                known.setdefault(name, TrafficCounts()).merge(counts)

    def by_tier(self, order: Sequence[str] = (), judged: TierJudge | None = None) -> tuple[TrafficFigures, ...]:
        """Return the tiers' figures, the profile's in their order, then others by name; none where no request had one.

        `judged` returns how a tier kept what is promised to it. None: nothing is.
        """
        if not any(self.tiers):
            return ()
        names = [name for name in order if name in self.tiers]
        found = _figures(self.tiers, [*names, *sorted(set(self.tiers) - set(names))])
        if judged is None:
            return found
        return tuple(replace(each, promises=judged(each.name, self.tiers[each.name])) for each in found)

    def by_client(self) -> tuple[TrafficFigures, ...]:
        """Return the figures of the clients that were offered the most, then of all others together; none where none is named."""
        if not any(self.clients):
            return ()
        ranked = sorted(self.clients, key=lambda name: (name == OTHERS, -self.clients[name].offered, name))
        shown = {name: self.clients[name] for name in ranked[:CLIENTS_SHOWN_MAX] if name != OTHERS}
        others = TrafficCounts()
        for name in ranked:
            if name not in shown:
                others.merge(self.clients[name])
        known = shown | ({OTHERS: others} if others.offered else {})
        return _figures(known, known)


def _figures(known: dict[str, TrafficCounts], names: Iterable[str]) -> tuple[TrafficFigures, ...]:
    tokens = sum(counts.served_tokens for counts in known.values())
    return tuple(known[name].figures(name, all_tokens=tokens) for name in names)
