"""Which requests are retries: the same one coming again after it was refused, or one whose client says so."""

from __future__ import annotations

from typing import Final

import msgspec

# A refused client is told to return within a minute; some come a little later.
_WINDOW_S: Final = 70.0
# Of so many refused requests a tier knows that they were refused; the oldest are forgotten first.
REFUSED_MAX: Final = 4096


class RetryMark(msgspec.Struct, frozen=True, gc=False):
    """What tells a request from one that came before, set where its tier has a retry budget."""

    fingerprint: int | None  # of the body, equal for the same one; None: it is not looked at
    is_declared: bool = False  # its client says that it has sent the request before


class RefusedRequests:
    """The requests of one tier that were refused lately, by client and fingerprint: no text of theirs is kept."""

    __slots__ = ("_refused_s",)

    def __init__(self) -> None:
        self._refused_s: dict[tuple[int, int], float] = {}  # in the order in which they were refused

    def __len__(self) -> int:
        return len(self._refused_s)

    def refused(self, client: int, mark: RetryMark, now_s: float) -> None:
        """Note a refusal."""
        if mark.fingerprint is None:
            return
        known, key = self._refused_s, (client, mark.fingerprint)
        known.pop(key, None)
        while known:
            first = next(iter(known))
            if len(known) < REFUSED_MAX and known[first] > now_s - _WINDOW_S:
                break
            del known[first]
        known[key] = now_s

    def is_retry(self, client: int, mark: RetryMark, now_s: float) -> bool:
        """Return whether a request is one that was refused lately and comes again; it counts once."""
        if mark.fingerprint is None:
            return mark.is_declared
        refused_s = self._refused_s.pop((client, mark.fingerprint), None)
        return mark.is_declared or (refused_s is not None and refused_s > now_s - _WINDOW_S)
