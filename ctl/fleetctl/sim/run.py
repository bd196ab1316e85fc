"""Runs one policy over one trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.sim.summary import on_own_machines, plan_offerings, summarize_world
from fleetctl.sim.world import SimulatedWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.load.trace import Arrival
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.desired import Desired
    from fleetctl.ports.policy import Policy
    from fleetctl.sim.result import SimulationResult
    from fleetctl.sim.scenario import SimulationSpec


def simulate(  # noqa: PLR0913  # a run is named by all of these
    desired: Desired,
    trace: Iterable[Arrival],
    *,
    policy: Policy,
    spec: SimulationSpec,
    offerings: tuple[Offering, ...] = (),
    policy_name: str = "",
    on_progress: Callable[[float], None] = lambda at_s: None,
    dispatcher_of: Callable[[SimulatedWorld], Dispatcher] | None = None,
) -> SimulationResult:
    """Return what a policy makes of a trace; `on_progress` is told the simulated time once a minute of it.

    `dispatcher_of` puts another dispatcher in the place of the gateway's, to compare with.

    Raises ConfigError for a plan that cannot be simulated.
    """
    desired = on_own_machines(desired)
    world = SimulatedWorld(
        desired,
        policy,
        spec,
        offerings=offerings or plan_offerings(desired, spec),
        dispatcher_of=dispatcher_of,
    )
    world.run(trace, on_progress)
    return summarize_world(world, policy_name or desired.profile.control.policy)
