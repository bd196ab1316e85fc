"""What is not as it should be and keeps nothing from being done: for the status while it is new, once in the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.clock import Clock

_log = logging.getLogger("fleetctl_kubernetes")
Fleet = tuple[str, str]  # owner and name
# What goes on is said again with every look, some five seconds apart at most; what is over is to be seen by who looks now and then.
_SHOWN_S = 30.0
_KEPT_MAX = 50


class RecentWarnings:
    """Sentences by fleet and by what they are about; each is shown for half a minute after it was last said."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: dict[tuple[Fleet, str], tuple[str, float]] = {}

    def say(self, of: Fleet, about: str, message: str) -> None:
        """Say what is the case; it is logged where it was not the case already."""
        before = self._recent.pop((of, about), None)
        if before is None or before[0] != message or self._is_over(before):
            _log.warning("fleet %s: %s", of[1], message)
        self._recent[of, about] = (message, self._clock.monotonic_s())
        while len(self._recent) > _KEPT_MAX:
            del self._recent[next(iter(self._recent))]

    def unsay(self, of: Fleet, about: str) -> None:
        """Say that something is not the case any more."""
        self._recent.pop((of, about), None)

    def of_fleet(self, of: Fleet) -> tuple[str, ...]:
        """Return what was said of a fleet lately, in a steady order."""
        self._recent = {key: each for key, each in self._recent.items() if not self._is_over(each)}
        return tuple(dict.fromkeys(self._recent[key][0] for key in sorted(self._recent) if key[0] == of))

    def _is_over(self, warning: tuple[str, float]) -> bool:
        return self._clock.monotonic_s() - warning[1] > _SHOWN_S
