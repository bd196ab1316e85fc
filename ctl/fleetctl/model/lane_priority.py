"""Which lane goes before which, where not all can have GPUs."""

from __future__ import annotations

# Lanes beyond have the priority of the last of these.
RANKS = 10


def lane_priority(rank: int, *, is_interruptible: bool) -> int:
    """Return the priority of a lane at this place of the profile (the first 0); one that may be interrupted is below all others."""
    return -RANKS if is_interruptible else -min(rank, RANKS - 1)


def request_priority(rank: int, *, is_interruptible: bool) -> int:
    """Return the same order for an inference gateway's requests: it sheds what is below zero, and none of an ordinary lane is."""
    return -1 if is_interruptible else RANKS + lane_priority(rank, is_interruptible=False)
