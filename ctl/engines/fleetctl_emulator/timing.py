"""How long the emulated engine takes for an iteration: the performance model, a seeded jitter, and the speed of the launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from fleetctl.core.perf.step import StepBatch, StepModel

# One sigma of a step's duration around the model's; kernel clocks and host scheduling move a real one by 1-3 %.
JITTER = 0.02
_JITTER_MAX = 3 * JITTER


class StepTimer:
    """Times iterations. `slowdown` is a fault: 3.0 makes every step take three times as long."""

    def __init__(self, model: StepModel, *, speed: float, rng: random.Random) -> None:
        self.slowdown = 1.0
        self._model = model
        self._speed = speed
        self._rng = rng

    def duration_s(self, batch: StepBatch) -> float:
        """Return the duration of one iteration."""
        noise = min(_JITTER_MAX, max(-_JITTER_MAX, self._rng.gauss(0.0, JITTER)))
        return self._model.step_s(batch) * (1.0 + noise) * self.slowdown / self._speed
