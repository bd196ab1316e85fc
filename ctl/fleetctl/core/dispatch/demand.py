"""How much of its replicas a lane's own requests take, measured as they arrive."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Long enough that one long prompt is not a trend, short enough that a mix that moves is followed within seconds.
_MEMORY_S = 15.0
# Of a replica's time, what prompts of one lane may fill before their waits grow out of bounds.
_LOAD_MAX = 0.85
_SEEN_S_MIN = 2.0
_DECAYS = 2.6  # exp(-2.6): of those who wait at all, one in thirteen waits longer, and may borrow in turn
_LENGTHS_CV2 = 0.3  # squared coefficient of variation of what prompts take
_ROUNDED = 0.01  # of a replica
_NEWEST = 0.05  # what one prompt moves the mean length by
# A lane whose own replicas were too busy for it lends none for so long.
PRESSED_S = 5.0


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

    def pressed(self, now_s: float) -> None:
        """Note that its own replicas could not answer one in time."""
        self._pressed_until_s = now_s + PRESSED_S

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
