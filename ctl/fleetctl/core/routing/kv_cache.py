"""What an engine's requests hold of its KV cache, now and at the most, and when another prompt fits beside them.

A request holds its prompt and what it has generated, and grows by a token a step until it ends. So the most that those
resident will hold is not what they hold now, nor all they might: it is at one of their ends, when who ended before has left
and the rest have grown (the future memory of the Past-Future scheduler, ASPLOS 2025). A prompt that does not fit then waits
inside the engine for others to end, and everybody behind it too, or streams are preempted.
"""

from __future__ import annotations

import math
from collections import deque
from operator import attrgetter

import msgspec

# Of the cache, what may be promised: blocks are whole, and lengths of answers are forecasts.
KV_SHARE = 0.96
# An engine's own figure says nothing of a cache that is nearly empty, and its usage is read to so much.
_USAGE_MIN = 0.2
_TOLERANCE = 0.05
_NEWEST = 0.2  # of the capacity, what one reading moves it by
_CORRECTED_MOST = 4.0  # times what was planned, or a fourth of it
# What is counted is kept for as long as an engine's figures are fit to decide on.
_KEPT_S = 15.0
# Below this share of the capacity nobody waits, and no waits are reckoned.
_CROWDED = 0.5
_S_PER_TOKEN = 0.03  # until a gap has been heard


_TO_COME = attrgetter("to_come")


# One for every request, and no cycle passes through it: not for the garbage collector to track.
class KvShare(msgspec.Struct, eq=False, gc=False):
    """What one request holds of a KV cache, in tokens."""

    held: float
    to_come: float  # that it is yet to generate, as far as can be known
    at_peak: float  # what it holds when all together hold most; 0: it has left by then


class KvCacheLoad:
    """One engine's; the caller says when a request is sent and ends, and looks at what they hold now and then."""

    __slots__ = (
        "_after", "_capacity", "_count", "_counted", "_held", "_joined", "_looked_s", "_others_held", "_others_most", "_peak", "_peaks", "_planned", "_share", "_steps",
        "free_tokens", "s_per_token",
    )  # fmt: skip

    def __init__(self, capacity_tokens: int = 0) -> None:
        self.free_tokens = math.inf  # the longest prompt that fits now; read for every request
        self.s_per_token = _S_PER_TOKEN  # of a stream
        self._planned = 0
        self._share = KV_SHARE  # of the cache, what may be promised
        self._capacity = 0.0  # 0: not known
        self._count = 0
        self._held = self._peak = 0.0
        self._others_held = self._others_most = 0.0  # of other gateways, now and at the most
        self._after = 0.0  # steps until the peak, as of the last look
        self._looked_s = 0.0
        self._joined = 0.0  # tokens since then
        self._steps: list[float] = []  # when somebody ends, in steps from the last look, the latest first
        self._peaks: list[float] = []  # and the most that those hold who are left then
        self._counted: deque[tuple[float, float, float]] = (
            deque()
        )  # at each look: least and most that the engine may hold
        self.plan(capacity_tokens)

    def plan(self, capacity_tokens: int, share: float = KV_SHARE) -> None:
        """Take the plan's figure as what is known before the engine has said anything; 0: it is not known.

        Of it, or of what the engine says instead, so large a `share` may be promised.
        """
        if share != self._share:
            self._share = share
            self._show()
        if capacity_tokens != self._planned:
            self._planned, self._capacity = capacity_tokens, float(capacity_tokens)
            self._show()

    @property
    def capacity_tokens(self) -> float:
        """What it holds, as planned and corrected by the engine's own figures; 0: it is not known."""
        return self._capacity

    @property
    def held_tokens(self) -> float:
        """What its requests hold."""
        return self._held

    @property
    def most_tokens(self) -> float:
        """What its requests will hold at the most."""
        return max(self._held, self._peak) + self._after if self._count else 0.0

    def note_others(self, held: float, most: float) -> None:
        """Count what requests of other gateways hold, and at the most will."""
        if (held, most) != (self._others_held, self._others_most):
            self._others_held, self._others_most = held, most
            self._show()

    def join(self, prompt_tokens: int, output_tokens: float) -> KvShare:
        """Count a request that is sent, whose answer is expected to be so long."""
        after = self._after
        at_peak = prompt_tokens + (min(output_tokens, after))
        self._count += 1
        self._held += prompt_tokens
        self._joined += prompt_tokens
        self._peak += at_peak
        if self._capacity:
            self._show()
        return KvShare(prompt_tokens, output_tokens, at_peak)

    def leave(self, share: KvShare) -> None:
        """Uncount one that has ended."""
        self._count -= 1
        self._held -= share.held
        self._peak -= share.at_peak
        if self._capacity:
            self._show()

    def look(self, shares: list[KvShare], now_s: float, *, computing_tokens: float) -> None:
        """Take stock of what its requests hold; of that `computing_tokens` are of prompts that have no token yet."""
        self._held = math.fsum([share.held for share in shares])
        self._joined, self._looked_s = 0.0, now_s
        counted = self._held + self._others_held
        self._counted.append((now_s, counted - computing_tokens, counted))
        while self._counted[0][0] < now_s - _KEPT_S:
            self._counted.popleft()
        self._forecast(shares)
        self._show()

    def _forecast(self, shares: list[KvShare]) -> None:
        """Find the peak: when each of them ends, the one that ends last first, who is left by then and how much they hold."""
        shares.sort(key=_TO_COME, reverse=True)
        peak = held = after = 0.0
        for place, share in enumerate(shares, 1):
            held += share.held
            all_of_them = held + place * share.to_come
            if all_of_them >= peak:
                peak, after = all_of_them, share.to_come
        if held >= peak:
            peak, after = held, 0.0
        for share in shares:
            share.at_peak = share.held + after if share.to_come >= after else 0.0
        self._peak, self._after = peak, after
        self._steps, self._peaks = _ends(shares) if peak > _CROWDED * self._capacity else ([], [])

    def note_usage(self, usage: float, read_s: float) -> None:
        """Correct the capacity by the share that the engine said was taken at `read_s`."""
        counted = next((c for c in reversed(self._counted) if c[0] <= read_s), None)
        if usage < _USAGE_MIN or counted is None or not counted[2]:
            return
        least, most = counted[1] / usage * (1.0 - _TOLERANCE), counted[2] / usage * (1.0 + _TOLERANCE)
        if not self._capacity:
            self._capacity = most
        else:
            self._capacity += _NEWEST * (min(max(self._capacity, least), most) - self._capacity)
        if self._planned:
            least, most = self._planned / _CORRECTED_MOST, self._planned * _CORRECTED_MOST
            self._capacity = min(max(self._capacity, least), most)
        self._show()

    def wait_s(self, tokens: float, now_s: float) -> float:
        """Return how long a prompt that joins now waits until it fits; infinite where it never would."""
        if tokens <= self.free_tokens:
            return 0.0
        free = self._share * self._capacity - self._others_most - self._joined - tokens
        # The earliest end after which those who are left never hold too much; peaks fall the later it is.
        for steps, peak in zip(reversed(self._steps), reversed(self._peaks), strict=True):
            if peak <= free:
                return max(0.0, self._looked_s + steps * self.s_per_token - now_s)
        return math.inf

    def _show(self) -> None:
        """Let routing see what fits; an engine with nothing else takes whatever it holds at all."""
        if not self._capacity or not (self._count or self._others_most):
            self.free_tokens = math.inf
        else:
            most = max(self._held, self._peak)
            self.free_tokens = self._share * self._capacity - most - self._after - self._others_most


def _ends(shares: list[KvShare]) -> tuple[list[float], list[float]]:
    """Return when each of them ends, the last one first, and the most that those hold who are left then."""
    peak = held = 0.0
    steps, peaks = [], []
    for place, share in enumerate(shares, 1):
        steps.append(share.to_come)
        peaks.append(peak)
        held += share.held
        peak = max(peak, held + place * share.to_come)
    return steps, peaks
