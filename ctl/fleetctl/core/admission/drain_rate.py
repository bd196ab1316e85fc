"""How fast a lane works off its queue, and what a new request would wait."""

from __future__ import annotations

# Each finished request moves the mean by 5 %: about twenty requests are remembered.
_WEIGHT = 0.05


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


def predicted_wait_s(*, ahead: int, drain_rate_rps: float | None) -> float | None:
    """Return what a request with `ahead` others in front waits for its slot. None: cannot be known yet."""
    if drain_rate_rps is None:
        return None
    return (ahead + 1) / drain_rate_rps
