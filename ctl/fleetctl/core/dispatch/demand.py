"""How much of its replicas a lane's own requests take, measured as they arrive."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.core.slo.accounts import LaneAccounts

# Long enough that one long prompt is not a trend, short enough that a mix that moves is followed within seconds.
_MEMORY_S = 15.0
# Of a replica's time, what prompts of one lane may fill before their waits grow out of bounds.
_LOAD_MAX = 0.85
_SEEN_S_MIN = 2.0
_DECAYS = 2.6  # exp(-2.6): of those who wait at all, one in thirteen waits longer, and may borrow in turn
_LENGTHS_CV2 = 0.3  # squared coefficient of variation of what prompts take
_ROUNDED = 0.01  # of a replica
_NEWEST = 0.05  # what one prompt moves the mean length by
# A lane whose own replicas were too busy for it lends none for so long while it misses no more than the least share of what
# its objective allows, and for up to the most as it comes to all of that. Held for longer from its first miss on, lanes that
# borrow lose 1 to 2 % of six engines at their limit, for four misses of the owner's in 9,000 (docs/benchmarks.md).
PRESSED_S = 5.0
_PRESSED_S_MAX = 20.0
_SPENT_SHARE_MIN = 0.5
_WINDOW_REQUESTS = 2000.0  # of which ten may miss where 99.5 % are promised


@dataclass(slots=True)
class PrefillDemand:
    """A lane's prefill work, in seconds of one replica; `add` is called for every arrival."""

    load: float = 0.0  # replica-seconds a second, exponentially weighted
    mean_tokens: float = 0.0  # of a prompt, likewise
    others_load: float = 0.0  # of what arrives at other gateways, as last told
    _begun_s: float = -1.0
    _at_s: float = 0.0
    _pressed_until_s: float = 0.0
    _others_pressed_until_s: float = 0.0
    _missed_share: float = 0.0  # of its requests that were judged, lately
    _judged: int = 0  # of them, those counted there, and the misses among these
    _missed: int = 0

    def add(self, tokens: int, seconds: float, now_s: float) -> None:
        """Count a prompt of so many tokens, over which a replica takes so long."""
        if self._begun_s < 0.0:
            self._begun_s = now_s
        self.load = self.load * math.exp((self._at_s - now_s) / _MEMORY_S) + seconds / _MEMORY_S
        self.mean_tokens = (
            self.mean_tokens + _NEWEST * (tokens - self.mean_tokens) if self.mean_tokens else float(tokens)
        )
        self._at_s = now_s

    def load_at(self, now_s: float) -> float:
        """Return its own load as it is now."""
        return self.load * math.exp((self._at_s - now_s) / _MEMORY_S)

    def pressed(self, now_s: float, accounts: LaneAccounts, *, objective: float) -> None:
        """Note that its own replicas could not answer one in time: the more of its error budget it spends, the longer it counts."""
        spent = self._missed_lately(accounts.good, accounts.bad) / (1.0 - objective + accounts.slo.shed)
        over = min(1.0, max(0.0, spent - _SPENT_SHARE_MIN) / (1.0 - _SPENT_SHARE_MIN))
        self._pressed_until_s = max(self._pressed_until_s, now_s + PRESSED_S + (_PRESSED_S_MAX - PRESSED_S) * over)

    def _missed_lately(self, good: int, bad: int) -> float:
        """Return the share of misses in about the last requests, or in all since it was last asked, where those are more."""
        judged, missed = good + bad - self._judged, max(0, bad - self._missed)
        if judged > 0:
            newest = 1.0 - math.exp(-judged / _WINDOW_REQUESTS)
            self._missed_share += newest * (missed / judged - self._missed_share)
            self._judged, self._missed = good + bad, bad
        return self._missed_share

    def is_pressed(self, now_s: float) -> bool:
        """Whether that was of late: then it needs all that it has."""
        return now_s < self._pressed_until_s or now_s < self._others_pressed_until_s

    def is_pressed_itself(self, now_s: float) -> bool:
        """Whether requests of this gateway could not be answered."""
        return now_s < self._pressed_until_s

    def note_others(self, load: float, now_s: float, *, is_pressed: bool) -> None:
        """Count what arrives at other gateways, in place of what they last had."""
        self.others_load = load
        self._others_pressed_until_s = now_s + PRESSED_S if is_pressed else 0.0

    def replicas(self, now_s: float, *, own_s: float, budget_s: float) -> int:
        """Return how many replicas its own requests need, of which one takes a replica `own_s` and may wait out `budget_s`.

        As many as carry the load, and so many more that waits of Poisson arrivals end in time: in a queue before k servers
        the share that waits longer than t falls as exp(-2 (k - load) t / (own_s (1 + cv^2))). What a young lane has seen
        stands for what it has not.
        """
        if self._begun_s < 0.0 and not self.others_load:
            return 0
        seen = 1.0 - math.exp(-max(_SEEN_S_MIN, now_s - self._begun_s) / _MEMORY_S)
        load = self.load_at(now_s) / seen + self.others_load
        slack_s = max(own_s, budget_s - own_s)
        spare = _DECAYS * (1.0 + _LENGTHS_CV2) * own_s / (2.0 * slack_s)
        return math.ceil(max(load / _LOAD_MAX, load + min(load, spare)) - _ROUNDED)
