"""A lane of Kubernetes objects, as a cluster's other controllers see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.model.plan import LanePlan
from fleetctl.model.profile import LaneSpec

if TYPE_CHECKING:
    from fleetctl.render.object_file import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTarget:
    """A lane as these controllers see it."""

    spec: LaneSpec
    plan: LanePlan
    fleet: str
    name: str  # of its Service, and the start of its Deployments' names
    labels: Mapping[str, str]
    selector: Mapping[str, str]  # of its pods
    port: int
    engine: str
    metrics_path: str
    request_gauges: tuple[str, ...]  # series of its engine whose sum is what runs and waits there
    request_priority: int  # among an inference gateway's requests; below zero they are sheddable

    def head(self, api: str, kind: str, *, suffix: str = "") -> Object:
        """Return the start of an object of this lane."""
        return {
            "apiVersion": api,
            "kind": kind,
            "metadata": {"name": f"{self.name}{suffix}", "labels": dict(self.labels)},
        }
