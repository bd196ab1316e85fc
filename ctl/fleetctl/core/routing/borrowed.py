"""How a lane's requests fared on another lane's replicas, whose settings may be none for its promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_NEWEST: Final = 0.1  # of the share that missed, what one answer counts
# More misses than this, and another lane's replica is no help.
_MISSED_SHARE_MAX: Final = 0.2
# Then it is tried again, as its load may have changed; two more misses are enough to let it be, for twice as long.
_AGAIN_S: Final = 7.5
_AGAIN_S_MAX: Final = 60.0
_AGAIN_SHARE: Final = 0.1


@dataclass(slots=True)
class BorrowedAnswers:
    """Of one lane at one other lane's replicas."""

    missed_share: float = 0.0
    _ended_s: float = 0.0  # when its requests were last kept away
    _until_s: float = 0.0
    _again_s: float = _AGAIN_S

    def note(self, now_s: float, *, sent_s: float, missed: bool) -> None:
        """Count the answer of a request sent at `sent_s`.

        One that was sent before its lane was last kept away says nothing new: fewer share the replica since.
        """
        if sent_s < self._ended_s:
            return
        self.missed_share += _NEWEST * (missed - self.missed_share)
        if self.missed_share > _MISSED_SHARE_MAX:
            self._ended_s, self._until_s, self.missed_share = now_s, now_s + self._again_s, _AGAIN_SHARE
            self._again_s = min(_AGAIN_S_MAX, 2.0 * self._again_s)
        elif self.missed_share < _AGAIN_SHARE / 2.0:
            self._again_s = _AGAIN_S

    def is_worth_it(self, now_s: float) -> bool:
        """Whether they mostly kept the promise lately."""
        return now_s >= self._until_s
