"""What the controller tells each of several gateways, and is reported: its part of the fleet's limits, and what the others have."""

from __future__ import annotations

import msgspec


class OthersLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What all other gateways have at a replica, as they last said."""

    streams: int = 0
    prompts: int = 0  # sent, without a first token
    prompt_tokens: int = 0  # of these, uncached
    kv_held: float = 0.0  # tokens of its KV cache
    kv_most: float = 0.0  # that they will come to
    prompts_done: int = 0  # that it has computed for them, and the tokens of these; less once one of them is gone
    prompt_tokens_done: int = 0


NO_OTHERS = OthersLoad()


class ReplicaAllotment(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway's part of one replica."""

    id: str
    slots: int  # requests of its own that may be there at once
    may_probe: bool = False  # it may try the replica once its ejection is over
    others: OthersLoad = OthersLoad()


class TierLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a tier had lately in one lane, exponentially weighted, as fairness counts it."""

    name: str
    served: float = 0.0  # tokens
    arrivals: float = 0.0
    taken: float = 0.0  # seconds of a replica, of those let in
    work: float = 0.0  # seconds of a replica, of its arrivals


class LaneAllotment(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway's part of one lane."""

    name: str
    places: int  # requests of its own that may wait
    may_probe: bool = False  # it may let one a second through an open breaker
    prefill_load: float = 0.0  # of the others' arrivals, in replicas
    is_pressed: bool = False  # another's could not be answered in time lately
    tiers: tuple[TierLoad, ...] = ()  # of the others


class Allotment(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway's part of all limits; replaces the one before. `seq` only grows within an epoch."""

    epoch: int
    seq: int
    is_alone: bool = False  # it is the only gateway: everything is its own
    replicas: tuple[ReplicaAllotment, ...] = ()
    lanes: tuple[LaneAllotment, ...] = ()

    @property
    def order(self) -> tuple[int, int]:
        """What tells the newer of two."""
        return self.epoch, self.seq


class ReplicaHoldings(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway has at one replica."""

    id: str
    slots: int | None  # that it may have; None: as many as the table says
    streams: int = 0
    streams_max: int = 0  # of all gateways together, as the gaps between tokens allow; 0: as many as the table says
    prompts: int = 0
    prompt_tokens: int = 0
    kv_held: float = 0.0
    kv_most: float = 0.0
    prompts_done: int = 0
    prompt_tokens_done: int = 0
    may_probe: bool = False
    wants_probe: bool = False  # it has ejected the replica, and the time for that is over
    is_probing: bool = False  # it has ejected the replica, and a request is there


class LaneHoldings(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway has of one lane."""

    name: str
    places: int | None  # that it may have; None: as many as the table says
    queued: int = 0  # places that are taken
    waiting: int = 0  # for a replica, those that lost theirs among them
    arrivals_per_s: float = 0.0
    may_probe: bool = False
    prefill_load: float = 0.0
    is_pressed: bool = False
    tiers: tuple[TierLoad, ...] = ()


class GatewayHoldings(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway has, under the allotment it works by."""

    pid: int
    epoch: int = 0
    seq: int = 0
    replicas: tuple[ReplicaHoldings, ...] = ()
    lanes: tuple[LaneHoldings, ...] = ()
