"""Checks what one profile needs of this machine and of its provider before `up`; nothing is started, or fetched from anywhere."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from fleetctl import os_signals
from fleetctl.config.faults import place_errors
from fleetctl.controller.keys import with_secrets
from fleetctl.engine_kit.hub_cache import absent_weights, hub_home
from fleetctl.errors import ConfigError, UnavailableError
from fleetctl.operations import checks
from fleetctl.operations.checks import Check
from fleetctl.operations.engine_versions import missing_program, version_of
from fleetctl.operations.hub_weights import is_gated
from fleetctl.operations.lookup import fleet_names
from fleetctl.operations.planning import try_planning
from fleetctl.operations.preflight import preflight
from fleetctl.operations.profiles import as_brought_up, find_reading
from fleetctl.ports.engine import WeightsFormat
from fleetctl.units import format_bytes, format_count, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site

_TOKEN = "HF_TOKEN"  # noqa: S105  # the variable's name


def diagnose_profile(site: Site, file_or_name: str) -> tuple[Check, ...]:
    """Return what stands between a profile and `up`, and what is there already. Raises NotFoundError where there is none."""
    return tuple(_checks(site, file_or_name))


def _checks(site: Site, file_or_name: str) -> Iterator[Check]:
    reading = find_reading(file_or_name)
    if reading.profile is None:
        yield from (checks.fail("profile", str(each), each.hint) for each in reading.faults)
        return
    profile = as_brought_up(site, reading.profile)
    planned = os_signals.run(try_planning(site, profile))
    if planned.plan is None:
        yield from (
            checks.fail("profile", str(each), each.hint) for each in place_errors(planned.errors, reading.source)
        )
    else:
        plan = planned.plan
        price = format_usd(plan.cost_usd_per_hour)
        replicas = format_count(sum(lane.replicas for lane in plan.lanes), "replica")
        yield checks.ok("profile", f"{profile.name} is planned: {replicas}, {price} an hour")
        if planned.listed:
            advice = "`up` plans by the provider's own answer or not at all: mend what keeps it from being asked"
            yield checks.warn("offers", "; ".join(planned.listed), advice)
    yield from _references(profile)
    yield from _port(site, profile)
    if planned.plan is None:
        return
    yield from _engines(site, profile)
    yield from _weights(site, profile, planned.plan)
    for finding in os_signals.run(preflight(site, profile, planned.plan)):
        yield Check(name=finding.name, verdict=finding.verdict, found=finding.detail, advice=finding.hint)


def _references(profile: Profile) -> Iterator[Check]:
    """Yield whether the secrets that a profile refers to can be read here; their values are shown to nobody."""
    wanted = {f"{lane.name}: {name}": value for lane in profile.lanes for name, value in lane.launch.env.items()}
    wanted |= {f"gateway: key {number}": each for number, each in enumerate(profile.gateway.api_keys, start=1)}
    for name, value in wanted.items():
        if not value.startswith(("env:", "file:")):
            continue
        try:
            with_secrets({name: value}, lambda variable: os.environ.get(variable, ""))
        except ConfigError as exc:
            yield checks.fail("secrets", f"{name}: {exc.message}", exc.hint)
        else:
            yield checks.ok("secrets", f"{name} is there, by {value}")


def _port(site: Site, profile: Profile) -> Iterator[Check]:
    host, port = profile.gateway.host, profile.gateway.port
    if not profile.host_choice.is_local:
        yield checks.ok("port", f"{port} of the fleet's host, which has it for itself")
        return
    if profile.name in fleet_names(site):
        yield checks.ok("port", f"{host}:{port} is of the fleet {profile.name}, which is up or was")
        return
    try:
        site.host.check_port(host, port)
    except UnavailableError as exc:
        yield checks.fail("port", exc.message, exc.hint or "say another: gateway.port, or --port N")
    else:
        yield checks.ok("port", f"{host}:{port} is free")


def _engines(site: Site, profile: Profile) -> Iterator[Check]:
    """Yield the programs that are there, with their releases; those that are not are found by the preflight."""
    if not site.provider_of(profile).capabilities.runs_here:
        return
    for kind, executable in dict.fromkeys((lane.engine, lane.engine_executable) for lane in profile.lanes):
        engine = site.engines(kind)
        program = shutil.which(executable or engine.program or "")
        if program is None or missing_program(engine, executable):
            continue
        release = version_of(program, engine.version).version if engine.version is not None else ""
        yield checks.ok(kind, f"started with {program}" + (f", {release}" if release else ""))


def _weights(site: Site, profile: Profile, plan: Plan) -> Iterator[Check]:
    """Yield the weights that are there, what room the others have, and the token of a gated model."""
    if not site.provider_of(profile).capabilities.runs_here:
        return
    for planned in {lane.launch.model: lane for lane in plan.lanes}.values():
        lane, engine = profile.lane(planned.lane), site.engines(planned.engine)
        if engine.emulation(lane) is not None or engine.capabilities.weights_format is not WeightsFormat.CHECKPOINT:
            continue
        environment = {**os.environ, **planned.launch.env}
        absent = absent_weights(engine, lane, planned, plan.card_of(planned), environment=environment)
        if absent is None:
            yield checks.ok("weights", f"{planned.launch.model} is on this machine")
            continue
        there = next(path for path in (absent.cache, *absent.cache.parents) if path.exists())
        left = format_bytes(shutil.disk_usage(there).free)
        needed = f", and {format_bytes(absent.left_bytes)} are to be fetched" if absent.total_bytes is not None else ""
        yield checks.ok("room for weights", f"{left} left at {absent.cache}{needed}")
        yield from _token(planned, environment)


def _token(planned: LanePlan, environment: Mapping[str, str]) -> Iterator[Check]:
    """Yield by what a gated model's engines may fetch it; that they may not is found by the preflight."""
    login: Path = hub_home(environment) / "token"
    if not is_gated(planned.launch.model):
        return
    if _TOKEN in planned.launch.env:
        yield checks.ok(_TOKEN, f"given to lane {planned.lane}, as {planned.launch.model} asks for one")
    elif login.is_file():
        yield checks.ok(_TOKEN, f"of a login, at {login}, as {planned.launch.model} asks for one")
