"""How busy the gateway's event loop is: one loop carries every stream, and what it is late with is late for all of them."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from fleetctl.model.gateway import EventLoopLoad

if TYPE_CHECKING:
    from collections.abc import Callable

_WINDOW_S = 10.0
_SAMPLES_MIN = 8
_LATE_QUANTILE = 0.9  # one long step is no load


class LoopLoadMeter:
    """Keeps how late the loop's own timer calls it, and how much the thread has computed by then."""

    __slots__ = ("_cpu_s", "_interval_s", "_samples")

    def __init__(self, interval_s: float, cpu_s: Callable[[], float]) -> None:
        self._interval_s = interval_s
        self._cpu_s = cpu_s
        self._samples: deque[tuple[float, float]] = deque(maxlen=max(_SAMPLES_MIN, round(_WINDOW_S / interval_s)))

    def note(self, now_s: float) -> None:
        """Take a sample."""
        self._samples.append((now_s, self._cpu_s()))

    def read(self) -> EventLoopLoad | None:
        """Return the load over the last ten seconds. None: that is not known yet."""
        samples = tuple(self._samples)
        if len(samples) < _SAMPLES_MIN:
            return None
        (first_s, first_cpu_s), (last_s, last_cpu_s) = samples[0], samples[-1]
        steps_s = (after - before for (before, _), (after, _) in itertools.pairwise(samples))
        late_s = sorted(max(0.0, step_s - self._interval_s) for step_s in steps_s)
        return EventLoopLoad(
            cpu_share=min(1.0, (last_cpu_s - first_cpu_s) / max(last_s - first_s, self._interval_s)),
            lag_s=late_s[int(_LATE_QUANTILE * (len(late_s) - 1))],
        )
