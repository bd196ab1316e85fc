"""What providers say beforehand of the nodes that plans ask for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleetctl.engine_kit.containers import container_launch
from fleetctl.engine_kit.cpu_shares import cpu_share
from fleetctl.errors import CredentialsError, FleetctlError, ProviderError
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.preflight import Finding, PlannedNodes, Verdict
from fleetctl.model.remote_weights import remote_weights
from fleetctl.operations.checkpoint_code import code_findings
from fleetctl.operations.engine_options import consulted, options_findings
from fleetctl.operations.engine_versions import flags_findings, program_findings
from fleetctl.operations.fleet_hosts import FleetHosts
from fleetctl.operations.formats import format_findings
from fleetctl.operations.gateway_tls import tls_findings
from fleetctl.operations.hub_weights import weights_findings
from fleetctl.operations.places import PLACE, place_findings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import Profile
    from fleetctl.model.provider_setting import ProviderChoice
    from fleetctl.operations.site import Site
    from fleetctl.ports.provider import Provider

_NAME = "preflight"


async def preflight(site: Site, profile: Profile, plan: Plan) -> tuple[Finding, ...]:
    """Return what a profile's provider finds for its plan, and engines and weights that are not there. Empty: nothing was looked at."""
    here = (
        *program_findings(site, profile),
        *flags_findings(site, profile, consulted=consulted(site, profile)),
        *options_findings(site, profile),
        *format_findings(plan),
        *weights_findings(site, profile, plan),
        *code_findings(site, profile, plan),
        *tls_findings(profile, site.clock.now()),
    )
    found = await fleet_findings(site, profile, planned_nodes(site, profile, plan))
    return (*here, *await place_findings(site, profile), *found)


async def fleet_findings(site: Site, profile: Profile, nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
    """Return what a profile's provider finds for these nodes, as it is from where its controller and gateway are."""
    found = await provider_findings(site, profile.provider_choice, nodes)
    if not profile.host_choice.is_local and isinstance(site.host, FleetHosts):
        return await asyncio.to_thread(site.host.judged, profile, found)
    return found


async def provider_findings(site: Site, choice: ProviderChoice, nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
    """Return what a provider finds. That it cannot be asked, is late or fails is a finding too, and never an error."""
    try:
        return await _findings(site.provider(choice), nodes)
    except CredentialsError as exc:  # nothing else would work either
        return (Finding(name=_NAME, verdict=Verdict.FAIL, detail=exc.message, hint=exc.hint or "log in to it"),)
    except FleetctlError as exc:
        return (_unknown(exc.message, exc.hint),)
    except Exception as exc:  # noqa: BLE001  # a third party's package may fail in any way
        return (_unknown(f"{choice} cannot say: {type(exc).__name__}: {exc}"),)


def planned_nodes(site: Site, profile: Profile, plan: Plan) -> tuple[PlannedNodes, ...]:
    """Return the nodes of a plan by lane and offering, and how many of them are not there yet."""
    return tuple(nodes for lane in plan.lanes for nodes in _of_lane(site, profile, plan, lane))


def refuse_failures(profile: Profile, nodes: Iterable[PlannedNodes], findings: tuple[Finding, ...]) -> None:
    """Refuse to create nodes over a failure, and to keep from elsewhere those that are up; else these may stay as they are.

    Raises ProviderError.
    """
    failures = [finding for finding in findings if finding.verdict is Verdict.FAIL]
    is_elsewhere = any(finding.name == PLACE for finding in failures)
    if is_elsewhere or (failures and any(each.to_create for each in nodes)):
        what = "; ".join(f"{finding.name}: {finding.detail}" for finding in failures)
        hints = dict.fromkeys(finding.hint for finding in failures if finding.hint)
        raise ProviderError(f"provider {profile.provider} would fail: {what}", hint="; ".join(hints))


async def _findings(provider: Provider, nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
    look, deadline_s = provider.capabilities.preflight, provider.pace.preflight_deadline_s
    if look is None:
        return ()
    try:
        async with asyncio.timeout(deadline_s):
            return await look.findings(nodes)
    except TimeoutError as exc:
        raise ProviderError(f"{provider.name} did not say within {deadline_s:g} s") from exc


def _unknown(detail: str, hint: str = "") -> Finding:
    hint = hint or "whether it works shows once nodes are ordered"
    return Finding(name=_NAME, verdict=Verdict.WARN, detail=detail, hint=hint)


def _of_lane(site: Site, profile: Profile, plan: Plan, lane: LanePlan) -> list[PlannedNodes]:
    sold = lane.replicas_by_offering
    missing = max(0, lane.replicas - _replicas_there(site, plan.fleet, lane.lane))
    engine, spec = site.engines(lane.engine), profile.lane(lane.lane)
    # Only the command says whether it needs any GPU, and what it mounts; where it listens is without meaning here.
    command = engine.launch(plan=plan, lane=spec, lane_plan=lane, host="127.0.0.1", port=1)
    container = container_launch(engine, command, spec, lane.launch)
    gpu_count = lane.gpus_each_node if command.uses_gpus else 0
    found = []
    for offering, count in sold:
        to_create = min(count, missing)
        missing -= to_create
        if count:
            nodes = PlannedNodes(
                offering=offering,
                count=count,
                to_create=to_create,
                gpu_count=gpu_count,
                node_count=lane.node_count,
                gpu_memory_fraction=lane.launch.gpu_memory_utilization if gpu_count else 0.0,
                cpu=cpu_share(site.engines, plan, lane, profile.control.rollout),
                weights=remote_weights(lane.launch.model),
                image=container.image if container is not None else "",
                mounts=container.mounts if container is not None else (),
            )
            found.append(nodes)
    return found


def _replicas_there(site: Site, fleet: str, lane: str) -> int:
    desired = site.store.fleet(fleet)
    if desired is None or desired.phase is not DesiredPhase.UP:
        return 0
    return sum(r.lane == lane and r.state.counts_as_capacity for r in site.store.replicas(fleet))
