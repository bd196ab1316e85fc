"""When a replica streams so much more slowly than its peers that it is left alone, and when it is asked again.

Compared is the time per output token of finished and running streams: a slow prefill is learned by routing, which then sends
less; slow decoding breaks the promise of every stream there, however few.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final

from fleetctl.model.gateway import Slowness

if TYPE_CHECKING:
    from collections.abc import Sequence

# Times the median of its peers'. Batches of unlike size explain less than twofold, contention on one machine too.
SLOW_BY: Final = 1.8
# Prompts of another lane that share its steps explain more, but make it no slower at prompts: where it is not, this much.
SLOW_AT_TOKENS_ONLY_BY: Final = 3.0
SLOW_AT_PROMPTS_BY: Final = 1.4
# One that is held to few streams for its gaps, beside peers that are not, is slow with a batch far smaller than theirs.
HELD_SHARE: Final = 0.25
SLOW_HELD_BY: Final = 1.5
# A probe is alone there, and so faster than its peers' streams in their batches: this much is already too slow.
PROBE_SLOW_BY: Final = 1.25
# Of its streams that missed their promise. One that is slow and keeps it does no harm.
MISSED_SHARE_MIN: Final = 0.25
# Fewer streams say too little; of more the latest count, none older than a minute.
STREAMS_MIN: Final = 4
NEWEST_STREAMS: Final = 6
_STREAM_AGE_S_MAX: Final = 60.0
# A pause of an engine or of its machine is no slowness: it has to look slow for so long.
CONFIRMED_S: Final = 6.0
PROBES: Final = 3
# Left alone for a minute first, twice as long each time its probes are slow.
LEFT_S_FIRST: Final = 60.0
LEFT_S_MAX: Final = 480.0
# One that was well for so long begins afresh.
_FORGIVEN_AFTER_S: Final = 900.0
# Fewer replicas give no majority to compare with; of more, a quarter may be left alone as slow.
PEERS_MIN: Final = 2
SHARE_OUT_MAX: Final = 0.25


@dataclass(slots=True)
class Pace:
    """What a replica's last streams took per output token, and whether they missed their promise."""

    _streams: deque[tuple[float, float, bool]] = field(default_factory=lambda: deque(maxlen=NEWEST_STREAMS))

    def add(self, now_s: float, tpot_s: float, *, missed: bool) -> None:
        """Count a stream that has ended."""
        self._streams.append((now_s, tpot_s, missed))

    def since(self, now_s: float, from_s: float = 0.0) -> list[tuple[float, bool]]:
        """Return the streams of the last minute that ended after `from_s`: the time per token, and whether it missed."""
        from_s = max(from_s, now_s - _STREAM_AGE_S_MAX)
        return [(tpot_s, missed) for at_s, tpot_s, missed in self._streams if at_s >= from_s]


@dataclass(slots=True)
class SlowEjection:
    """Leaves a slow replica alone, then lets it be probed; longer every time its probes are slow."""

    until_s: float = 0.0  # 0: not ejected; past: being probed
    since_s: float = 0.0  # when it was found slow first, and has not been well for long since
    times: int = 0  # ejections since then
    is_probed_slow: bool = False  # by its last probes
    tpot_s: float = 0.0  # when it was last ejected
    peers_tpot_s: float = 0.0
    _well_since_s: float = 0.0
    _suspected_s: float | None = None  # it has looked slow since

    def is_confirmed(self, now_s: float, *, is_outlier: bool) -> bool:
        """Note whether it looks slow now; return whether it has for long enough."""
        if not is_outlier:
            self._suspected_s = None
        elif self._suspected_s is None:
            self._suspected_s = now_s
        return self._suspected_s is not None and now_s - self._suspected_s >= CONFIRMED_S

    def eject(self, now_s: float, tpot_s: float, peers_tpot_s: float) -> None:
        """Leave it alone."""
        self._suspected_s = None
        self.is_probed_slow = self.until_s > 0.0
        if not self.times or (not self.until_s and now_s - self._well_since_s > _FORGIVEN_AFTER_S):
            self.times, self.since_s = 0, now_s
        self.until_s = now_s + min(LEFT_S_MAX, LEFT_S_FIRST * 2.0 ** min(self.times, 10))
        self.times += 1
        self.tpot_s, self.peers_tpot_s = tpot_s, peers_tpot_s

    def readmit(self, now_s: float) -> None:
        """Send it requests again; how often it was ejected is kept for a while."""
        self.until_s, self._well_since_s = 0.0, now_s

    def slowness(self, now_s: float) -> Slowness | None:
        """Return its figures. None: it is not ejected."""
        if not self.until_s:
            return None
        return Slowness(
            tpot_s=self.tpot_s,
            peers_tpot_s=self.peers_tpot_s,
            for_s=now_s - self.since_s,
            ejections=self.times,
            is_confirmed=self.is_probed_slow,
        )


def is_outlier(
    streams: Sequence[tuple[float, bool]],
    peers_tpot_s: float,
    *,
    slow_at_prompts_by: float,
    streams_max: int = STREAMS_MIN,
    is_held: bool = False,
) -> bool:
    """Whether a replica's streams are so slow that it is left alone; it takes so many times as long over prompts too.

    One that may have few at once, for what they miss, shows few: `streams_max` and one more are enough. `is_held`: it may
    have no more than `HELD_SHARE` of its peers' median, and no other lane's prompts share its steps.
    """
    slow_by = SLOW_BY if slow_at_prompts_by >= SLOW_AT_PROMPTS_BY else SLOW_AT_TOKENS_ONLY_BY
    slow_by = SLOW_HELD_BY if is_held else slow_by
    if len(streams) < min(STREAMS_MIN, streams_max + 1):
        return False
    missed = sum(missed for _, missed in streams) / len(streams)
    return missed >= MISSED_SHARE_MIN and typical_s(streams) >= slow_by * peers_tpot_s


def verdict_of(probes: Sequence[tuple[float, bool]], peers_tpot_s: float | None) -> bool | None:
    """Return whether probes show that a replica is still slow. None: there are too few yet."""
    if not probes:
        return None
    if peers_tpot_s is not None and typical_s(probes) >= SLOW_BY * peers_tpot_s:
        return True
    if len(probes) < PROBES:
        return None
    return peers_tpot_s is not None and typical_s(probes) >= PROBE_SLOW_BY * peers_tpot_s


def typical_s(streams: Sequence[tuple[float, bool]]) -> float:
    """Return the median time per output token."""
    return median(tpot_s for tpot_s, _ in streams)
