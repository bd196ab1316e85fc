"""Fleets, lanes and replicas as tables and as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli.output import WIDE, View, lines, section
from fleetctl.core.conditions import fleet_condition
from fleetctl.model.rollout import RolloutPhase
from fleetctl.views.boot import start_lines
from fleetctl.views.conditions import condition_cell, condition_line
from fleetctl.views.figures import format_cost
from fleetctl.views.images import image_lines
from fleetctl.views.lanes import LANES_FIGURES, LANES_STATUS, lanes_table
from fleetctl.views.overrides import override_lines
from fleetctl.views.replicas import REPLICAS_STATUS, replicas_table
from fleetctl.views.rollouts import rollout_line, rollout_tone
from fleetctl.views.table import Cell, Tone, cell, text_table
from fleetctl.views.tiers import TIERS_TITLE, tier_table
from fleetctl.views.values import fleet_value, lane_value
from fleetctl.views.workflows import WORKFLOWS_TITLE, workflow_notes, workflow_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from fleetctl.cli.output import OutputSection
    from fleetctl.model.gateway_process import GatewayStatus
    from fleetctl.model.status import FleetStatus
    from fleetctl.model.tls import ServedCertificate


def fleets_view(fleets: Sequence[FleetStatus], *, location: str) -> View:
    """Return `ls`: a row a fleet; without any, where they were looked for."""
    table = text_table(
        "FLEET STATUS >READY >SPOT >COST GATEWAY +PROVIDER +MODEL REASON", [_fleet_row(status) for status in fleets]
    )
    empty = lines(f"no fleets in {location}; bring one up: fleetctl up quickstart")
    return View(
        value=[fleet_value(status) for status in fleets],
        names=tuple(status.fleet for status in fleets),
        sections=(section(table),) if fleets else (empty,),
    )


def status_view(status: FleetStatus) -> View:
    """Return `status`: the fleet's header, its lanes, its replicas."""
    names = (
        f"fleet/{status.fleet}",
        *(f"lane/{lane.name}" for lane in status.lanes),
        *(f"replica/{r.record.id}" for r in status.replicas if r.record.state.is_live),
    )
    replicas = replicas_table(status, WIDE, REPLICAS_STATUS, now=status.at, is_stale=False, with_gone=True)
    sections = (
        lines(*_header(status)),
        section(lanes_table(status, WIDE, LANES_STATUS, is_stale=False)),
        *_tiers(status),
        *_workflows(status),
        section(replicas),
        *_starts(status),
    )
    return View(value=fleet_value(status), names=names, sections=sections)


def _starts(status: FleetStatus) -> tuple[OutputSection, ...]:
    shown = tuple(start_lines(status))
    return (lines(*shown, title="Starts, and what each phase took"),) if shown else ()


def _tiers(status: FleetStatus) -> tuple[OutputSection, ...]:
    table = tier_table((lane.name, lane.traffic.tiers) for lane in status.lanes if lane.traffic is not None)
    return (section(table, title=TIERS_TITLE),) if table is not None else ()


def _workflows(status: FleetStatus) -> tuple[OutputSection, ...]:
    seen = status.workflows
    if seen is None:
        return ()
    return section(workflow_table(seen), title=WORKFLOWS_TITLE), lines(*workflow_notes(seen))


def lanes_view(status: FleetStatus) -> View:
    """Return `lanes`: each lane's figures over the last minute (else five)."""
    return View(
        value=[lane_value(lane) for lane in status.lanes],
        names=tuple(lane.name for lane in status.lanes),
        sections=(section(lanes_table(status, WIDE, LANES_FIGURES, is_stale=False)),),
    )


def _fleet_row(status: FleetStatus) -> tuple[str | Cell, ...]:
    condition = fleet_condition(status)
    ready, wanted = sum(lane.ready for lane in status.lanes), sum(lane.wanted for lane in status.lanes)
    return (
        status.fleet, condition_cell(condition), f"{ready}/{wanted}", str(sum(lane.spot for lane in status.lanes)),
        format_cost(status.cost_usd_per_hour), status.gateway_url, status.provider, status.model, condition.message,
    )  # fmt: skip


def _gateway(gateway: GatewayStatus) -> str:
    """Return one of several gateways in a line."""
    who = gateway.place or f"pid {gateway.pid}"
    if not gateway.answers:
        ending = (
            "; is being ended, and keeps its part of the limits until it is seen gone" if gateway.is_leaving else ""
        )
        return f"{gateway.number}  {gateway.stall or 'does not answer'}{ending}" + (f", {who}" if gateway.place else "")
    carried = f"{gateway.in_flight} in flight, {gateway.queued} queued"
    cpu = f", {gateway.cpu_share:.0%} CPU" if gateway.cpu_share is not None else ""
    leaving = "; ends with its last request" if gateway.is_leaving else ""
    return f"{gateway.number}  {who}, {carried}{cpu}{leaving}"


def _header(status: FleetStatus) -> Iterator[str | Cell]:
    per_token = status.cost_usd_per_1m_tokens
    cost = format_cost(status.cost_usd_per_hour, status.max_cost_usd_per_hour)
    yield f"Fleet    {status.fleet}  (generation {status.generation}, {status.mode}, provider {status.provider})"
    yield Cell(spans=(("Status   ", Tone.PLAIN), *condition_line(fleet_condition(status)).spans))
    yield f"Model    {status.model}"
    if status.gateways:
        yield f"Gateway  {status.gateway_url}/v1  ({len(status.gateways)} processes)"
        yield from (f"         {_gateway(each)}" for each in status.gateways)
    else:
        yield f"Gateway  {status.gateway_url}/v1  ({_elsewhere(status) or _alive(status.gateway_alive, status.gateway_pid)})"
    if status.certificate is not None:
        yield _certificate(status.certificate, status.at)
    control = "not running" if status.is_unattended else _controller(status)
    yield f"Control  {_elsewhere(status) or control}"
    if status.head is not None:
        yield f"Head     {status.head}"
    yield f"Cost     {cost}" + (f", ${per_token:.2f}/1M tokens" if per_token is not None else "")
    for title, images in (
        ("Image", image_lines((lane.name, lane.image) for lane in status.lanes)),
        ("Machine", image_lines((lane.name, lane.machine_image) for lane in status.lanes)),
    ):
        yield from (f"{title if number == 0 else '':<9}{text}" for number, text in enumerate(images))
    for number, risk in enumerate(status.plan_risks):
        yield cell(f"{'Risk' if number == 0 else '':<9}{risk}, accepted with the plan", Tone.WARN)
    rollout = status.rollout
    # A revision that was rolled back stays said until the next one: what runs is not what was last asked for.
    if rollout is not None and (rollout.phase is not RolloutPhase.COMPLETE or rollout.undoes is not None):
        yield cell(f"Rollout  {rollout_line(rollout)}", rollout_tone(rollout))
    for number, text in enumerate(override_lines(status.overrides, status.at)):
        yield f"{'By hand' if number == 0 else '':<9}{text}"


def _certificate(found: ServedCertificate, now: datetime) -> Cell | str:
    if found.not_after is None:
        return cell("TLS      no certificate", Tone.BAD)
    text = f"TLS      certificate until {found.not_after:%Y-%m-%d %H:%M} UTC"
    return cell(text, Tone.WARN) if found.fault or found.ends_soon(now) else text


def _elsewhere(status: FleetStatus) -> str:
    """Return where a fleet's own processes are, of which nothing is seen from here; empty: they are seen, or run nowhere."""
    is_seen = status.controller_alive or status.gateway_alive or not status.controller_host
    return "" if is_seen else f"on {status.controller_host}, not seen from here"


def _controller(status: FleetStatus) -> str:
    # A process's number says nothing outside its pod.
    return status.controller_place or _alive(status.controller_alive, status.controller_pid)


def _alive(is_alive: bool, pid: int) -> str:
    if is_alive:
        return f"pid {pid}" if pid else "answering"
    return f"pid {pid}, not answering" if pid else "not answering"
