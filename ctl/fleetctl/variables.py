"""Which variables a fleet needs of the shell that runs `up`: what its plugins read, and what its profile refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.environment import FleetEnvironment, controller_environment, state_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.ports.engine import Engine
    from fleetctl.ports.provider import Provider

_REFERENCE = "env:"


def fleet_environment(
    profile: Profile,
    plan: Plan,
    *,
    provider: Provider,
    engine_of: Callable[[str], Engine],
    environ: Mapping[str, str],
    before: FleetEnvironment | None = None,
) -> FleetEnvironment:
    """Return what a fleet takes of an environment.

    A fleet that runs already has one from `before`: it keeps that, so that a second shell's proxies and paths do not
    decide about half of it; only what its plugins declare and its profile refers to is taken anew where it is set.
    """
    engines = [engine_of(name) for name in sorted({lane.engine for lane in plan.lanes})]
    declared = {
        *provider.capabilities.variables,
        *(e.program_env for e in engines if e.program_env),
        *state_variables(environ),
    }
    wanted = frozenset(references(profile, plan, engine_of))
    inherited = controller_environment(environ, declared=declared)
    variables = {name: environ[name] for name in wanted if environ.get(name)}
    if before is not None:
        anew = inherited.items() - controller_environment(environ, declared=()).items()
        inherited = before.inherited | dict(anew)
        variables = {name: value for name, value in before.variables.items() if name in wanted} | variables
    return FleetEnvironment(inherited=inherited, variables=variables)


def references(profile: Profile, plan: Plan, engine_of: Callable[[str], Engine]) -> Iterator[str]:
    """Yield the names behind `env:` references: the gateway's keys', and those of the engines' own environments."""
    values = [*profile.gateway.api_keys]
    for lane_plan in plan.lanes:
        engine = engine_of(lane_plan.engine)
        lane = profile.lane(lane_plan.lane)
        # Where it listens does not matter here; a third party's engine may refer to variables that no profile names.
        command = engine.launch(plan=plan, lane=lane, lane_plan=lane_plan, host="127.0.0.1", port=1)
        values += command.env.values()
    return (value.removeprefix(_REFERENCE) for value in values if value.startswith(_REFERENCE))
