"""The models of a simulated fleet: whose lanes an arrival enters, and which model stands in, as at the gateway."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fleetctl.core.model_names import models_by_name
from fleetctl.sim.result import ModelFallback

if TYPE_CHECKING:
    from fleetctl.load.trace import Arrival
    from fleetctl.model.profile import Profile


class SimulatedModels:
    """Those of one profile. A fleet of one has none: any name is its."""

    def __init__(self, profile: Profile) -> None:
        models = profile.models if len(profile.models) > 1 else ()
        self._by_name = models_by_name(models)
        self._fallbacks = {model.name: model.fallback for model in models if model.fallback}
        self._of_lanes = profile.lane_models
        self._first = profile.model.name if models else ""
        self._stood_in: Counter[tuple[str, str]] = Counter()

    def of(self, row: Arrival) -> str | None:
        """Return the model an arrival is for; "": the only one. None: there is none of that name."""
        if not self._by_name:
            return ""
        if row.model:
            return self._by_name.get(row.model)
        return self._of_lanes.get(row.lane or row.lane_entered, self._first)

    def stand_in(self, model: str) -> str:
        """Return the model that serves a request where this one's lane cannot, and count it; empty: none does."""
        other = self._fallbacks.get(model, "")
        if other:
            self._stood_in[model, other] += 1
        return other

    def fallbacks(self) -> tuple[ModelFallback, ...]:
        """Return how often which model stood in for which."""
        return tuple(
            ModelFallback(model=model, served_by=other, requests=count)
            for (model, other), count in sorted(self._stood_in.items())
        )
