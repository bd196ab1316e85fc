"""Whether replicas that span several machines can be had: from the provider, and of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.profile import Profile
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
        if not site.providers(profile.provider).capabilities.node_groups:
            yield ConfigError(
                f"{what}, and provider {profile.provider} gives no groups of machines", hint=_HINT, key=key
            )
        elif not site.engines(lane.engine).capabilities.multi_node:
            yield ConfigError(f"{what}, and engine {lane.engine} runs on one machine only", hint=_HINT, key=key)
