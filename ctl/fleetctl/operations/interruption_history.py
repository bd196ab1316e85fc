"""When and where nodes were taken, and what is expected of each offering by that."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.hazard import Hazards
from fleetctl.core.poisson_rate import is_telling, rate_interval
from fleetctl.model.catalogue import OfferingKey
from fleetctl.model.interruption import InterruptionRecord
from fleetctl.ports.records import Collection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from fleetctl.model.hazard import OfferingRecord
    from fleetctl.operations.site import Site

_SHOWN_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionRate:
    """How often nodes are taken in one zone, of one type, or of one offering."""

    name: str
    interruptions: int  # in the history shown
    held_h: float  # node-hours, weighed down as they age
    losses: float  # of these nodes, weighed likewise
    losses_per_h: float | None  # of one node, as seen; None: no node was held there
    losses_per_h_low: float | None  # its interval at 90 %
    losses_per_h_high: float | None
    is_telling: bool  # whether that interval spans less than a factor of ten: below three losses it does not
    hazard_per_h: (
        float | None
    )  # what placement expects of one node an hour; None: of zones and types it expects nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionHistory:
    """The interruptions of a fleet, gone or not, and the rates by zone, type and offering."""

    fleet: str
    interruptions: tuple[InterruptionRecord, ...]  # oldest first
    zones: tuple[InterruptionRate, ...]
    types: tuple[InterruptionRate, ...]
    offerings: tuple[InterruptionRate, ...]  # their hazard is what placement goes by


def interruptions(site: Site, fleet: str, *, since: datetime | None = None) -> InterruptionHistory:
    """Return a fleet's interruptions since an instant, or all that are kept, and what was learned of its offerings."""
    found = site.store.records(Collection.INTERRUPTIONS, fleet=fleet, since=since, limit=_SHOWN_MAX)
    records = tuple(each.value_as(InterruptionRecord) for each in found)
    learned = site.store.memory(fleet).offerings
    hazards = Hazards(now=site.clock.now(), records=learned)
    offerings = tuple(
        _rate(
            key, sum(r.offering == key for r in records), [learned[key]] if key in learned else [], hazards.per_h(key)
        )
        for key in sorted({*learned, *(r.offering for r in records)})
    )
    return InterruptionHistory(
        fleet=fleet,
        interruptions=records,
        zones=_rates(records, learned, of=lambda key: key.zone),
        types=_rates(records, learned, of=lambda key: key.instance_type),
        offerings=offerings,
    )


def _rates(
    records: Iterable[InterruptionRecord], learned: dict[str, OfferingRecord], *, of: Callable[[OfferingKey], str]
) -> tuple[InterruptionRate, ...]:
    counts = Counter(of(OfferingKey.parse(record.offering)) for record in records)
    names = {of(OfferingKey.parse(key)) for key in learned} | counts.keys()
    return tuple(
        _rate(name, counts[name], [known for key, known in learned.items() if of(OfferingKey.parse(key)) == name], None)
        for name in sorted(names)
    )


def _rate(name: str, count: int, known: list[OfferingRecord], hazard_per_h: float | None) -> InterruptionRate:
    """Return a rate with how sure it is."""
    held_h, losses = sum(each.held_h for each in known), sum(each.losses for each in known)
    low, high = rate_interval(losses, held_h) if held_h > 0.0 else (None, None)
    return InterruptionRate(
        name=name,
        interruptions=count,
        held_h=held_h,
        losses=losses,
        losses_per_h=losses / held_h if held_h > 0.0 else None,
        losses_per_h_low=low,
        losses_per_h_high=high,
        is_telling=low is not None and high is not None and is_telling(low, high),
        hazard_per_h=hazard_per_h,
    )
