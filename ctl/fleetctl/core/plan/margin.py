"""How far a forecast may be off, and so how much room a promise needs above it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.perf.frontend import forecast_errors
from fleetctl.model.slo import Metric

if TYPE_CHECKING:
    from fleetctl.model.catalogue import GpuSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastMargin:
    """What the upper end of a forecast is of its point, 1 or more."""

    ttft: float = 1.0
    step: float = 1.0  # of whatever is made of engines' steps

    def of(self, metric: Metric) -> float:
        """Return the factor of one metric."""
        return self.ttft if metric in (Metric.TTFT, Metric.QUEUE_WAIT) else self.step


NO_MARGIN = ForecastMargin()


def model_margin(gpu: GpuSpec) -> ForecastMargin:
    """Return what the step model's own error on unseen data asks for on a GPU."""
    step, ttft = forecast_errors(gpu)
    return ForecastMargin(ttft=1.0 + ttft, step=1.0 + step)
