"""Which model each request of a load is for, where a fleet has several."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from fleetctl.config.trace import TraceRow
    from fleetctl.load.report import LoadSpec


class TrafficModels:
    """Those of one run."""

    def __init__(self, spec: LoadSpec) -> None:
        self._every, self._lane = spec.model, spec.lane
        self._of_lanes = spec.lane_models
        self._names = [model.name for model in spec.models]
        self._shares = list(accumulate(model.share for model in spec.models))

    def of(self, row: TraceRow, rng: random.Random) -> str:
        """Return the model that a request asks for; empty: the fleet has one, or nobody knows.

        Where neither the run nor the row names one, it is that of the lane which one of these names, else one drawn by
        the models' shares. Nothing is drawn for a fleet of one model.
        """
        if named := self._every or row.model:
            return named
        if of_lane := self._of_lanes.get(self._lane or row.lane or ""):
            return of_lane
        return rng.choices(self._names, cum_weights=self._shares)[0] if len(self._names) > 1 else ""
