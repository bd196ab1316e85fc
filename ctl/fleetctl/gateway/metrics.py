"""The gateway's own figures in the Prometheus text format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.telemetry.page import heading, sample_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.core.dispatch.routes import RoutingState
    from fleetctl.core.slo.sketch import QuantileSketch
    from fleetctl.gateway.connections import OpenConnections
    from fleetctl.gateway.upstreams import Upstreams

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
# vLLM's buckets, finer below 0.1 s, where the lanes' promises lie.
_SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.0, 2.5, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_PREFIX = "fleetctl_gateway_"

Sample = tuple[dict[str, str], float]


def exposition(dispatcher: Dispatcher, upstreams: Upstreams, *, clients: OpenConnections) -> bytes:
    """Return the page."""
    lines: list[str] = []
    routes = dispatcher.routes
    for lane in routes.lanes.values():
        lane.accounts.fold(dispatcher.clock())
    table = routes.table
    _family(lines, "connections", "gauge", "Open client connections.", [({}, len(clients))])
    _family(
        lines,
        "connections_displaced_total",
        "counter",
        "Idle client connections closed to make room.",
        [({}, clients.displaced)],
    )
    version = table.version if table is not None else 0
    _family(lines, "table_version", "gauge", "Version of the routing table.", [({}, version)])
    _lane_gauges(lines, routes)
    _lane_counters(lines, routes)
    _lane_histograms(lines, routes)
    _replica_families(lines, routes, upstreams)
    return "\n".join((*lines, "")).encode()


def _lane_gauges(lines: list[str], routes: RoutingState) -> None:
    lanes = routes.lanes.items()
    _family(lines, "in_flight", "gauge", "Requests at replicas.", [({"lane": n}, x.in_flight) for n, x in lanes])
    queued = [({"lane": n}, float(len(x.queue) + len(x.displaced))) for n, x in lanes]
    _family(lines, "queued", "gauge", "Requests waiting for a replica.", queued)
    _family(lines, "ladder_step", "gauge", "Degradation step.", [({"lane": n}, x.route.step.level) for n, x in lanes])
    rotation = [({"lane": n}, float(sum(c.in_rotation for c in x.candidates))) for n, x in lanes]
    _family(lines, "replicas_in_rotation", "gauge", "Replicas that take new requests.", rotation)


def _lane_counters(lines: list[str], routes: RoutingState) -> None:
    requests: list[Sample] = []
    tokens: list[Sample] = []
    good: list[Sample] = []
    breaches: list[Sample] = []
    sheds: list[Sample] = []
    for name, lane in routes.lanes.items():
        stats = lane.accounts.windows.lifetime()
        requests += [({"lane": name, "ending": e}, n) for e, n in sorted(lane.accounts.endings.items())]
        tokens.append(({"lane": name, "kind": "prompt"}, stats.prompt_tokens))
        tokens.append(({"lane": name, "kind": "output"}, stats.output_tokens))
        good.append(({"lane": name}, stats.good))
        breaches += [({"lane": name, "kind": k}, n) for k, n in sorted(stats.breached.items())]
        sheds += [({"lane": name, "reason": r}, n) for r, n in sorted(stats.shed.items())]
    _family(lines, "requests_total", "counter", "Requests that were answered, by how that ended.", requests)
    _family(lines, "tokens_total", "counter", "Tokens in and out.", tokens)
    _family(lines, "good_total", "counter", "Requests inside their lane's SLO.", good)
    _family(lines, "breaches_total", "counter", "Requests outside their lane's SLO.", breaches)
    _family(lines, "shed_total", "counter", "Requests refused with 429.", sheds)


def _lane_histograms(lines: list[str], routes: RoutingState) -> None:
    stats_by_lane = {name: lane.accounts.windows.lifetime() for name, lane in routes.lanes.items()}
    _histogram(
        lines, "ttft_seconds", "Submission to first content token.", {name: t.ttft for name, t in stats_by_lane.items()}
    )
    _histogram(
        lines,
        "itl_seconds",
        "Gap between content events of a stream.",
        {name: t.itl for name, t in stats_by_lane.items()},
    )
    _histogram(
        lines,
        "queue_wait_seconds",
        "Submission to dispatch.",
        {name: t.queue_wait for name, t in stats_by_lane.items()},
    )
    _histogram(lines, "e2e_seconds", "Submission to last byte.", {name: t.e2e for name, t in stats_by_lane.items()})


def _replica_families(lines: list[str], routes: RoutingState, upstreams: Upstreams) -> None:
    replicas = [({"replica": r.route.id, "lane": r.route.lane}, r) for r in routes.replicas.values()]
    _family(lines, "replica_in_flight", "gauge", "Requests at it.", [(k, r.candidate.in_flight) for k, r in replicas])
    _family(lines, "replica_requests_total", "counter", "Requests sent to it.", [(k, r.requests) for k, r in replicas])
    _family(lines, "replica_failures_total", "counter", "Times it failed.", [(k, r.failures) for k, r in replicas])
    errors = [(k, upstreams[r.route.id].protocol_errors) for k, r in replicas]
    _family(lines, "replica_protocol_errors_total", "counter", "Answers of it that broke HTTP or a bound.", errors)
    ejected = [(k, float(r.ejection.is_ejected)) for k, r in replicas]
    _family(lines, "replica_ejected", "gauge", "1 while it is left alone after failing.", ejected)
    opened = [(k, float(upstreams[r.route.id].opened)) for k, r in replicas]
    _family(lines, "upstream_connections_total", "counter", "Connections opened to it.", opened)


def _family(lines: list[str], name: str, kind: str, text: str, samples: Iterable[tuple[dict[str, str], float]]) -> None:
    lines += heading(_PREFIX + name, kind, text)
    lines += [f"{sample_name(_PREFIX + name, labels)} {value:.17g}" for labels, value in samples]


def _histogram(lines: list[str], name: str, text: str, sketches: dict[str, QuantileSketch]) -> None:
    lines += heading(_PREFIX + name, "histogram", text)
    full = _PREFIX + name
    for lane, sketch in sketches.items():
        counts = {f"{limit:g}": sketch.count_at_most(limit) for limit in _SECONDS} | {"+Inf": sketch.count}
        lines += [f"{sample_name(f'{full}_bucket', {'lane': lane, 'le': le})} {count}" for le, count in counts.items()]
        lines.append(f"{sample_name(f'{full}_sum', {'lane': lane})} {sketch.sum_s:.17g}")
        lines.append(f"{sample_name(f'{full}_count', {'lane': lane})} {sketch.count}")
