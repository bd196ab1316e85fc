"""How fast a lane works off its queue, and what a new request would wait."""

from __future__ import annotations

from collections import deque

# Each finished request moves the mean by 5 %: about twenty requests are remembered.
_WEIGHT = 0.05
# Departures are counted for so long, in buckets of so long; over less than a second they are chance.
_RECENT_S = 4.0
_BUCKET_S = 0.1
_BUSY_S_MIN = 1.0


class ServiceTime:
    """The mean time a lane's requests hold a slot, recent ones first."""

    __slots__ = ("mean_s",)

    def __init__(self) -> None:
        self.mean_s: float | None = None

    def finished(self, service_s: float) -> None:
        """Count one request that held its slot this long."""
        if self.mean_s is None:
            self.mean_s = service_s
        else:
            self.mean_s += _WEIGHT * (service_s - self.mean_s)

    def drain_rate_rps(self, in_flight: int) -> float | None:
        """Return slots freed per second while `in_flight` are held (Little's law). None: nothing known, or none held.

        Measured departures would do only while the queue never empties: after a quiet minute they say almost nothing.
        """
        if not in_flight or not self.mean_s:
            return None
        return in_flight / self.mean_s


class AnswerLength:
    """The mean length of a lane's answers, recent ones first; as planned until some have come."""

    __slots__ = ("mean_tokens",)

    def __init__(self, planned_tokens: float) -> None:
        self.mean_tokens = planned_tokens

    def finished(self, tokens: int) -> None:
        """Count a whole answer."""
        self.mean_tokens += _WEIGHT * (tokens - self.mean_tokens) if self.mean_tokens else tokens


class Departures:
    """How many requests a lane finished lately, as long as it had any."""

    __slots__ = ("_busy_since_s", "_counts")

    def __init__(self) -> None:
        self._busy_since_s = 0.0
        self._counts: deque[list[float]] = deque()  # from when, and how many within _BUCKET_S

    def began(self, now_s: float) -> None:
        """Note that the lane has a request again, and had none."""
        self._busy_since_s = now_s

    def finished(self, now_s: float) -> None:
        """Count one."""
        counts = self._counts
        if counts and now_s - counts[-1][0] < _BUCKET_S:
            counts[-1][1] += 1.0
            return
        counts.append([now_s, 1.0])
        while counts[0][0] < now_s - _RECENT_S:
            counts.popleft()

    def rate_rps(self, now_s: float) -> float:
        """Return how many a second, over the last seconds in which the lane worked without a break."""
        from_s = max(now_s - _RECENT_S, self._busy_since_s)
        finished = sum(count for at_s, count in self._counts if at_s >= from_s)
        return finished / max(_BUSY_S_MIN, now_s - from_s)


def predicted_wait_s(*, ahead: int, drain_rate_rps: float | None) -> float | None:
    """Return what a request with `ahead` others in front waits for its slot. None: cannot be known yet."""
    if drain_rate_rps is None:
        return None
    return (ahead + 1) / drain_rate_rps
