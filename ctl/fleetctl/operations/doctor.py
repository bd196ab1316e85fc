"""Checks the machine and what fleetctl left on it, and says what to mend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl import os_signals, paths
from fleetctl.errors import ConfigError, FleetctlError, StateError, UnavailableError
from fleetctl.model.desired import DesiredPhase
from fleetctl.operations import checks
from fleetctl.operations.checks import Check
from fleetctl.operations.garbage import tombstones_left
from fleetctl.operations.machine_checks import check_installation, check_surroundings
from fleetctl.operations.orphaned_processes import describe, orphaned_processes
from fleetctl.operations.preflight import fleet_findings, planned_nodes, provider_findings
from fleetctl.operations.profiles import find_profile, packaged_profiles
from fleetctl.state.migrations import STEPS
from fleetctl.state.shared import SharedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.desired import Desired
    from fleetctl.model.preflight import Finding, PlannedNodes
    from fleetctl.model.provider_setting import ProviderChoice
    from fleetctl.operations.site import Site

_DEFAULT_PORT = 8080
_LOOPBACK = "127.0.0.1"


def diagnose(site: Site) -> tuple[Check, ...]:
    """Return every check's finding; none of them changes anything."""
    fleets = (
        found for check in (_state, _fleets, _unowned, _tombstones, _network, _providers) for found in check(site)
    )
    return (*check_installation(), *fleets, *check_surroundings())


def _state(site: Site) -> Iterator[Check]:
    try:
        if not _has_state(site):
            yield checks.ok("state", "no fleet was ever brought up here")
            return
        if isinstance(site.store, SharedStore) and not site.is_readonly:
            site.store.check_conditions()
        fleets = site.store.fleets()
        pending = {d.fleet: len(site.store.open_intents(d.fleet)) for d in fleets}
    except StateError as exc:
        yield checks.fail("state", exc.message, exc.hint)
        return
    except FleetctlError as exc:
        yield checks.warn("state", exc.message, exc.hint)
        return
    place = site.store.location if site.store.is_shared else str(paths.state_db())
    yield checks.ok("state", f"{place}, schema {STEPS[-1].version}, {len(fleets)} fleets")
    for fleet, count in pending.items():
        if count and not site.host.processes(fleet).has_controller:
            advice = f"a controller looks them up first thing: fleetctl up, or fleetctl down {fleet}"
            yield checks.warn("intents", f"{count} creates of {fleet} were cut short", advice)


def _fleets(site: Site) -> Iterator[Check]:
    try:
        fleets = site.store.fleets()
    except FleetctlError:
        return  # the state check reports it
    for desired in fleets:
        processes = site.host.processes(desired.fleet)
        named = {"controller": processes.has_controller, "gateway": processes.has_gateway}
        alive = [name for name, is_alive in named.items() if is_alive]
        if processes.other_gateways:
            alive += [f"gateway {number}" for number, _ in processes.other_gateways]
        found = f"should be {desired.phase}; alive: {', '.join(alive) or 'nothing'}"
        if all(named.values()) or (desired.phase is DesiredPhase.DOWN and not alive):
            yield checks.ok(f"fleet {desired.fleet}", found)
        else:
            again = f"fleetctl {'up PROFILE' if desired.phase is DesiredPhase.UP else f'down {desired.fleet}'}"
            yield checks.warn(f"fleet {desired.fleet}", found, f"{again} starts what is missing")


def _unowned(site: Site) -> Iterator[Check]:
    try:
        found = orphaned_processes(site)
    except FleetctlError:
        return  # nothing can be told apart; the state check reports why
    if found:
        fleets = " ".join(f"fleetctl down {fleet};" for fleet in sorted({each.fleet for each in found}))
        advice = f"put the state back where it was, or end them: {fleets.rstrip(';')}"
        yield checks.warn("orphaned processes", f"processes of no fleet: {describe(found)}", advice)
    else:
        yield checks.ok("orphaned processes", "no process without a fleet")


def _tombstones(site: Site) -> Iterator[Check]:
    try:
        left = tombstones_left(site) if _has_state(site) else ()
    except FleetctlError:
        return  # the state check reports it
    if left:
        found = f"{len(left)} orders and shared resources of gone fleets may still be there"
        yield checks.warn("tombstones", found, "look for them, and remove them: fleetctl gc")
    else:
        yield checks.ok("tombstones", "nothing is known to have outlived its fleet")


def _has_state(site: Site) -> bool:
    """Say whether anything was ever written; asking an absent store for its owner would make one."""
    return bool(site.store.fleets()) or site.store.is_shared or paths.state_db().exists()


def _network(site: Site) -> Iterator[Check]:
    try:
        site.host.free_port(_LOOPBACK)
    except UnavailableError as exc:
        yield checks.fail("loopback", exc.message, "engines and gateway listen there; look at the sandbox")
    else:
        yield checks.ok("loopback", f"{_LOOPBACK} can be bound")
    if _is_free(site, _DEFAULT_PORT) or _is_ours(site, _DEFAULT_PORT):
        yield checks.ok("port", f"{_DEFAULT_PORT} is free, or a fleet's own")
    else:
        yield checks.warn("port", f"{_DEFAULT_PORT} is taken by another program", "bring fleets up with --port N")


def _providers(site: Site) -> Iterator[Check]:
    """Yield what the providers find that fleets and profiles here use, for the nodes those fleets should have."""
    for choice, nodes in _nodes_by_provider(site).values():
        yield from _checks(str(choice), os_signals.run(provider_findings(site, choice, nodes)))
    for placed in _fleets_up(site):
        profile = placed.profile
        if not profile.host_choice.is_local:
            nodes = planned_nodes(site, profile, placed.plan)
            name = f"{profile.provider_choice} of {placed.fleet}"
            yield from _checks(name, os_signals.run(fleet_findings(site, profile, nodes)))


def _checks(of: str, findings: tuple[Finding, ...]) -> Iterator[Check]:
    for finding in findings:
        yield Check(name=f"{of}: {finding.name}", verdict=finding.verdict, found=finding.detail, advice=finding.hint)


def _nodes_by_provider(site: Site) -> dict[str, tuple[ProviderChoice, tuple[PlannedNodes, ...]]]:
    """Return by what they are called the providers, each with the settings of some fleet or profile, and their nodes.

    Of fleets whose controller is on this machine: others' providers are looked at as from where those are.
    """
    found: dict[str, tuple[ProviderChoice, tuple[PlannedNodes, ...]]] = {
        str(choice): (choice, ()) for choice in sorted(_profiles_providers(), key=str)
    }
    for desired in _fleets_up(site):
        if desired.profile.host_choice.is_local:
            choice = desired.profile.provider_choice
            nodes = planned_nodes(site, desired.profile, desired.plan)
            found[str(choice)] = (choice, (*found.get(str(choice), (choice, ()))[1], *nodes))
    return found


def _fleets_up(site: Site) -> list[Desired]:
    try:
        return [desired for desired in site.store.fleets() if desired.phase is DesiredPhase.UP]
    except FleetctlError:
        return []  # the state check reports it


def _profiles_providers() -> Iterator[ProviderChoice]:
    for name in packaged_profiles():
        try:
            yield find_profile(name).provider_choice
        except ConfigError:
            continue  # the user's own and in the making; `plan` says what is wrong with it


def _is_free(site: Site, port: int) -> bool:
    try:
        site.host.check_port(_LOOPBACK, port)
    except UnavailableError:
        return False
    return True


def _is_ours(site: Site, port: int) -> bool:
    try:
        fleets = [desired for desired in site.store.fleets() if desired.profile.gateway.port == port]
    except FleetctlError:
        return False
    return any(site.host.processes(desired.fleet).has_controller for desired in fleets)
