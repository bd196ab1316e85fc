"""Every bound that dispatching keeps and the routing table does not set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchLimits:
    """How often a request is tried again, and how long it waits for a replica it had lost."""

    resends_max: int = 1  # of a request that a replica has seen: a poison request must not visit them all
    continuations_max: int = 2  # of one stream
    # A displaced request waits this long for a replica, or its lane's max wait where that is longer: it was promised an
    # answer, and a lane that lets new requests wait for half an hour may let this one wait as long.
    displaced_wait_s: float = 30.0
