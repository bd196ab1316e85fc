"""Engines' images name one build, for CUDA: what a lane on AMD's GPUs needs in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.catalogue.known import load_catalogue
from fleetctl.engine_kit.containers import container_image
from fleetctl.model.catalogue import GpuVendor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import LaneSpec, Profile
    from fleetctl.ports.engine import Engine


def rocm_cautions(profile: Profile, plan: Plan, engine_of: Callable[[LaneSpec], Engine]) -> Iterator[str]:
    """Yield a sentence for each lane on an AMD GPU whose image is the publisher's own; one that the profile names is believed."""
    catalogue = load_catalogue()
    for lane_plan in plan.lanes:
        lane, gpu = profile.lane(lane_plan.lane), catalogue.gpus.get(lane_plan.gpu)
        if gpu is None or gpu.vendor is not GpuVendor.AMD or lane.launch.image:
            continue
        if image := container_image(engine_of(lane), lane):
            yield (
                f"lane {lane.name} is planned for {lane_plan.gpu}, and {image} is a build for CUDA: "
                f"name one for AMD's ROCm in lanes.{lane.name}.launch.image"
            )
