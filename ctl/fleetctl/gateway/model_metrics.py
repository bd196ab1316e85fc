"""The metrics page's figures of a fleet's models, where it has several."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.gateway.model_names import ModelNames
    from fleetctl.model.gateway import RouteLane
    from fleetctl.telemetry.page import MetricsPage


def model_families(page: MetricsPage, names: ModelNames, lanes: Iterable[RouteLane]) -> None:
    """Write which lane serves which model, and who was to serve what; nothing of a fleet with one model."""
    if not names.requests:
        return
    page.family(
        "lane_model_info",
        "gauge",
        "1 for the model that a lane serves: joins a lane's figures to it.",
        [({"lane": lane.name, "model": lane.model}, 1) for lane in lanes if lane.model],
    )
    page.family(
        "model_requests_total",
        "counter",
        "Requests that entered a lane of the model, those it stands in for included.",
        [({"model": model}, count) for model, count in sorted(names.requests.items())],
    )
    page.family(
        "model_fallbacks_total",
        "counter",
        "Requests for a model that another one was given in its place.",
        [({"model": model, "served_by": other}, count) for (model, other), count in sorted(names.stood_in.items())],
    )
