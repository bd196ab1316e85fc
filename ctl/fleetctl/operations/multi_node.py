"""Over which GPUs replicas may lie: what provider and engine can have of machines, stages and ranks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fleetctl.core.plan.layouts import LayoutRules
from fleetctl.errors import ConfigError, FleetctlError
from fleetctl.model.catalogue import Precision
from fleetctl.ports.engine import visible_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.profile import LaneSpec, Profile
    from fleetctl.operations.site import Site

_HINT = "leave launch.pipeline_parallel out: the replica then takes one machine"


def multi_node_errors(site: Site, profile: Profile) -> Iterator[ConfigError]:
    """Yield a fault for each lane whose replicas span machines where provider or engine cannot. Raises NotFoundError."""
    for lane in profile.lanes:
        spans = lane.launch.pipeline_parallel or 1
        if spans == 1:
            continue
        what = f"lanes.{lane.name}.launch.pipeline_parallel is {spans}"
        key = ("lanes", lane.name, "launch", "pipeline_parallel")
        if not site.provider_of(profile).capabilities.node_groups:
            yield ConfigError(
                f"{what}, and provider {profile.provider} gives no groups of machines", hint=_HINT, key=key
            )
        elif not _spans_machines(site, lane):
            yield ConfigError(
                f"{what}, and engine {_engine_of(site, lane)} runs on one machine only", hint=_HINT, key=key
            )


def _spans_machines(site: Site, lane: LaneSpec) -> bool:
    """Whether one engine of the lane can lie over several machines, and so can the one it plays."""
    started, visible = site.engines(lane.engine).capabilities, visible_engine(site.engines, lane).capabilities
    return started.multi_node and visible.multi_node


def _engine_of(site: Site, lane: LaneSpec) -> str:
    """Return a lane's engine by its name, and by that of the one it plays."""
    played = visible_engine(site.engines, lane).name
    return lane.engine if lane.engine == played else f"{lane.engine}, which plays {played},"


def layout_errors(site: Site, profile: Profile) -> Iterator[ConfigError]:
    """Yield a fault for each lane that pins stages or ranks on a machine, and its engine has none. Raises NotFoundError."""
    for lane in profile.lanes:
        rules = _of_engine(site, lane)
        for name, can in (("pipeline_parallel_local", rules.has_stages), ("data_parallel", rules.has_ranks)):
            if (getattr(lane.launch, name) or 1) > 1 and not can:
                who = _engine_of(site, lane)
                yield ConfigError(
                    f"lane {lane.name}: {who} has no {name}",
                    hint="leave it out: replicas of their own are planned, and routed to one by one"
                    if name == "data_parallel"
                    else "leave it out: the model is split by tensor_parallel alone",
                    key=("lanes", lane.name, "launch", name),
                )


def layout_rules(site: Site, profile: Profile) -> dict[str, LayoutRules]:
    """Return by lane over what its replicas may lie; one whose engine does not load has no entry."""
    rules = {}
    for lane in profile.lanes:
        with suppress(FleetctlError):  # what cannot be loaded is refused by its name elsewhere
            rules[lane.name] = _of_engine(site, lane, has_groups=site.provider_of(profile).capabilities.node_groups)
    return rules


def _of_engine(site: Site, lane: LaneSpec, *, has_groups: bool = False) -> LayoutRules:
    started, visible = site.engines(lane.engine).capabilities, visible_engine(site.engines, lane).capabilities
    return LayoutRules(
        has_stages=started.local_stages and visible.local_stages,
        has_ranks=started.data_parallel and visible.data_parallel,
        spans_machines=has_groups and _spans_machines(site, lane),
        has_fp8_kv=Precision.FP8 in started.kv_cache_precisions & visible.kv_cache_precisions,
    )
