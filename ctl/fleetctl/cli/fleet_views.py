"""Fleets, lanes and replicas as tables and as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.cli import cells
from fleetctl.cli.output import View, lines, table
from fleetctl.codec import to_plain
from fleetctl.core.conditions import Condition, fleet_condition, lane_condition
from fleetctl.core.lane_figures import WINDOW_S, lane_headline, lane_quantiles
from fleetctl.model.slo import Metric, Validity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.cli.output import Section
    from fleetctl.model.gateway import LaneWindow
    from fleetctl.model.status import FleetStatus, LaneStatus, ReplicaStatus

_BURN_WINDOWS = ("5m", "1h")


def fleets_view(fleets: Sequence[FleetStatus]) -> View:
    """Return `ls`: a row a fleet."""
    rows = []
    for status in fleets:
        condition = fleet_condition(status)
        ready, wanted = sum(lane.ready for lane in status.lanes), sum(lane.wanted for lane in status.lanes)
        rows.append((
            status.fleet, condition.type, f"{ready}/{wanted}", str(sum(lane.spot for lane in status.lanes)),
            cells.cost(status.cost_usd_per_hour), status.gateway_url, status.provider, status.model,
            condition.message,
        ))  # fmt: skip
    section = table("FLEET STATUS >READY >SPOT >COST GATEWAY +PROVIDER +MODEL REASON", rows)
    empty = lines("no fleets; bring one up: fleetctl up quickstart")
    return View(
        value=[fleet_value(status) for status in fleets],
        names=tuple(status.fleet for status in fleets),
        sections=(section,) if rows else (empty,),
    )


def status_view(status: FleetStatus) -> View:
    """Return `status`: the fleet's header, its lanes, its replicas."""
    names = (
        f"fleet/{status.fleet}",
        *(f"lane/{lane.name}" for lane in status.lanes),
        *(f"replica/{r.record.id}" for r in status.replicas if r.record.state.is_live),
    )
    sections = (lines(*_header(status)), _lanes_section(status), _replicas_section(status))
    return View(value=fleet_value(status), names=names, sections=sections)


def lanes_view(status: FleetStatus) -> View:
    """Return `lanes`: each lane's figures over the last minute (else five)."""
    columns = (
        "LANE STATUS >RPS >OK >REFUSED +>TTFT_P50 +>P95 TTFT_P99/SLO +>ITL_P50 +>P95 ITL_P99/SLO +>WAIT_P50 +>P95 >WAIT "
        ">QUEUE +>E2E_P50 +>P95 +>P99 +>BURN_5m +>1h +STEP"
    )
    return View(
        value=[lane_value(lane) for lane in status.lanes],
        names=tuple(lane.name for lane in status.lanes),
        sections=(table(columns, (_lane_figures(lane) for lane in status.lanes)),),
    )


def fleet_value(status: FleetStatus) -> dict[str, Any]:
    """Return a status as programs get it: the record, with its condition and its lanes'."""
    plain: dict[str, Any] = to_plain(status)
    plain["condition"] = to_plain(fleet_condition(status))
    plain["lanes"] = [lane_value(lane) for lane in status.lanes]
    return plain


def lane_value(lane: LaneStatus) -> dict[str, Any]:
    """Return a lane as programs get it."""
    plain: dict[str, Any] = to_plain(lane)
    plain["condition"] = to_plain(lane_condition(lane))
    return plain


def format_condition(condition: Condition) -> str:
    """Return "DEGRADED  the gateway does not answer"."""
    return f"{condition.type}  {condition.message}".rstrip()


def _header(status: FleetStatus) -> list[str]:
    per_token = status.cost_usd_per_1m_tokens
    cost = cells.cost(status.cost_usd_per_hour, status.max_cost_usd_per_hour)
    return [
        f"Fleet    {status.fleet}  (generation {status.generation}, {status.mode}, provider {status.provider})",
        f"Status   {format_condition(fleet_condition(status))}",
        f"Model    {status.model}",
        f"Gateway  {status.gateway_url}/v1  ({_alive(status.gateway_alive, status.gateway_pid)})",
        f"Control  {_alive(status.controller_alive, status.controller_pid)}",
        f"Cost     {cost}" + (f", ${per_token:.2f}/1M tokens" if per_token is not None else ""),
    ]


def _alive(is_alive: bool, pid: int) -> str:
    return f"pid {pid}" if is_alive else "not answering"


def _lanes_section(status: FleetStatus) -> Section:
    rows = []
    for lane in status.lanes:
        condition = lane_condition(lane)
        queued = str(lane.traffic.queued) if lane.traffic else cells.NOTHING
        rows.append((
            lane.name, condition.type, str(lane.wanted), str(lane.ready), str(lane.spot),
            cells.tail_of(lane_headline(lane)), queued, lane.step.value, condition.message or lane.reason,
        ))  # fmt: skip
    return table("LANE STATUS >WANT >READY >SPOT TAIL/SLO >QUEUE STEP REASON", rows)


def _replicas_section(status: FleetStatus) -> Section:
    shown = [replica for replica in status.replicas if replica.record.state.is_live]
    ended = [replica for replica in status.replicas if not replica.record.state.is_live]
    columns = "REPLICA STATE MARKET GPU >RUN >WAIT >KV >AGE +ENGINE +NODE +ADDRESS REASON"
    return table(columns, (_replica_row(replica, status) for replica in (*shown, *ended)))


def _replica_row(replica: ReplicaStatus, status: FleetStatus) -> tuple[str, ...]:
    record, engine = replica.record, replica.engine
    known = engine.validity is Validity.OK
    return (
        record.id, record.state, record.market, record.gpu,
        str(engine.running) if known else cells.NOTHING,
        str(engine.waiting) if known else cells.NOTHING,
        f"{engine.kv_usage:.0%}" if known else cells.NOTHING,
        cells.age(record.created_at, status.at), record.engine, record.node_id,
        f"{record.host}:{record.port}" if record.port else "", record.reason,
    )  # fmt: skip


def _lane_figures(lane: LaneStatus) -> tuple[str, ...]:
    window = lane.traffic.window(WINDOW_S) if lane.traffic else None
    return (
        lane.name, lane_condition(lane).type, *_rates(window),
        *_against_slo(lane, Metric.TTFT), *_against_slo(lane, Metric.ITL),
        *cells.quantiles(lane_quantiles(lane, Metric.QUEUE_WAIT)),
        str(lane.traffic.queued) if lane.traffic else cells.NOTHING,
        *cells.quantiles(lane_quantiles(lane, Metric.E2E)),
        *(f"{lane.burn[key]:.2g}x" if key in lane.burn else cells.NOTHING for key in _BURN_WINDOWS),
        lane.step.value,
    )  # fmt: skip


def _against_slo(lane: LaneStatus, metric: Metric) -> tuple[str, str, str]:
    p50, p95, p99 = cells.quantiles(lane_quantiles(lane, metric))
    promise = cells.limit(lane.slo, metric)
    return p50, p95, p99 if promise == cells.NOTHING else f"{p99}/{promise}"


def _rates(window: LaneWindow | None) -> tuple[str, str, str]:
    if window is None:
        return cells.NOTHING, cells.NOTHING, cells.NOTHING
    return (
        cells.rate(window.offered, window.seconds),
        cells.rate(window.good, window.seconds),
        str(sum(window.shed.values())),
    )
