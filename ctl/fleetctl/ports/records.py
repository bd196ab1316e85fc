"""Records that a store keeps beside a fleet's own: bounded collections, each of one kind of value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

import msgspec

from fleetctl.codec import decode, encode
from fleetctl.errors import DamagedStateError

T = TypeVar("T")


class Collection(StrEnum):
    """What records are of. Each keeps a bounded number of them a fleet: the oldest go."""

    AUDIT = "audit"
    COSTS = "costs"  # by the hour
    HEADS = "heads"  # orders of a fleet's heads, and their signs
    HOSTS = "hosts"  # where a fleet's controller and gateway run, where that is not the machine of `up`
    INTERRUPTIONS = "interruptions"
    PLACES = "places"  # the account or cluster that a fleet's nodes are in
    PROVIDERS = "providers"  # that a fleet has been at, with the settings: where it may have left something
    RECORDINGS = "recordings"
    ROLLOUTS = "rollouts"
    RUNBOOK_RUNS = "runbook-runs"
    SHADOW = "shadow"
    SLO_PERIODS = "slo-periods"

    @property
    def records_max(self) -> int:
        """How many a fleet has at most."""
        return _RECORDS_MAX[self]

    @property
    def outlives_fleet(self) -> bool:
        """Whether its records stay when the fleet is forgotten."""
        return self in _LASTING


_LASTING = (
    Collection.AUDIT,
    Collection.COSTS,
    Collection.HEADS,
    Collection.HOSTS,
    Collection.INTERRUPTIONS,
    Collection.PROVIDERS,
    Collection.RUNBOOK_RUNS,
)
_RECORDS_MAX = {
    Collection.AUDIT: 20_000,
    Collection.COSTS: 2_400,  # a hundred days
    Collection.HEADS: 200,
    Collection.HOSTS: 1,
    Collection.INTERRUPTIONS: 10_000,
    Collection.PLACES: 1,
    Collection.PROVIDERS: 20,
    Collection.RECORDINGS: 100,
    Collection.ROLLOUTS: 200,
    Collection.RUNBOOK_RUNS: 2_000,
    Collection.SHADOW: 10_000,
    Collection.SLO_PERIODS: 10_000,
}


def revision_key(number: int) -> str:
    """Return the key of a fleet's revision in Collection.ROLLOUTS; keys sort as the numbers do."""
    return f"revision-{number:08d}"


_SHADOW_TOTALS = "totals-"


def shadow_totals_key(lane: str) -> str:
    """Return the key of a lane's totals in Collection.SHADOW; its comparisons have their instants for keys."""
    return f"{_SHADOW_TOTALS}{lane}"


def is_shadow_totals(key: str) -> bool:
    """Whether a key of Collection.SHADOW is of totals."""
    return key.startswith(_SHADOW_TOTALS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """One value of a collection, as JSON. `fleet` is empty for what belongs to none."""

    collection: Collection
    fleet: str = ""
    key: str
    at: datetime  # orders a collection, and decides which go first
    text: str

    @classmethod
    def of(cls, collection: Collection, key: str, value: object, *, at: datetime, fleet: str = "") -> StoredRecord:
        """Return the record of a value that `value_as` reads again."""
        return cls(collection=collection, fleet=fleet, key=key, at=at, text=encode(value).decode())

    def value_as(self, kind: type[T]) -> T:
        """Return the value. Raises DamagedStateError on one of another shape."""
        try:
            return decode(kind, self.text)
        except msgspec.DecodeError as exc:
            raise DamagedStateError(
                f"record {self.key!r} of {self.collection.value} cannot be read: {exc}",
                hint="it was written by another version of fleetctl, or by hand; use the fleetctl that wrote it",
            ) from exc
