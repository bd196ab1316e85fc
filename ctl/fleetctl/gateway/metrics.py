"""The gateway's own figures in the Prometheus text format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.clock import thread_cpu_s
from fleetctl.core.slo.sketch import SketchReading
from fleetctl.gateway.certificate import GatewayCertificate
from fleetctl.gateway.certificate_metrics import certificate_families
from fleetctl.gateway.eviction_metrics import eviction_families
from fleetctl.gateway.loop_load import LoopLoadMeter
from fleetctl.gateway.model_metrics import model_families
from fleetctl.gateway.slo_gauges import SloGauges
from fleetctl.gateway.stream_metrics import stream_families
from fleetctl.gateway.tier_metrics import NamedClients, client_families, tier_families
from fleetctl.gateway.workflow_metrics import workflow_families
from fleetctl.model.generation import BoundReason
from fleetctl.model.slo import BreachKind
from fleetctl.telemetry.page import MetricsPage

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.core.dispatch.routes import RoutingState
    from fleetctl.core.slo.accounts import LaneAccounts
    from fleetctl.core.slo.sketch import QuantileSketch
    from fleetctl.gateway.connections import OpenConnections
    from fleetctl.gateway.model_names import ModelNames
    from fleetctl.gateway.upstreams import Upstreams
    from fleetctl.gateway.workflows import RequestWorkflows
    from fleetctl.model.gateway import EventLoopLoad

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
# vLLM's buckets, finer below 0.1 s, where the lanes' promises lie.
_SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.0, 2.5, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_PREFIX = "fleetctl_gateway_"

Sample = tuple[dict[str, str], float]


class BreachCounters:
    """Counts breaches so that no count goes down: to Prometheus that is a restart, and all of it new.

    A breach is uncounted where its request turns out to be another lane's; the next one takes its place then.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, tuple[LaneAccounts, dict[str, int]]] = {}

    def breaches(self, lane: str, accounts: LaneAccounts) -> dict[str, int]:
        """Return a lane's breaches by kind, the most there ever were; every kind is there from zero on."""
        known, shown = self._lanes.get(lane, (None, {}))
        if known is not accounts:  # the lane was removed meanwhile, and is another
            shown = {}
        counted = accounts.windows.lifetime().breached
        shown = {kind.value: max(shown.get(kind, 0), counted.get(kind, 0)) for kind in BreachKind}
        self._lanes[lane] = (accounts, shown)
        return shown


class PageGauges:
    """What the page has besides the dispatcher's own figures."""

    def __init__(self, clock: Callable[[], float], sweep_interval_s: float) -> None:
        self.slo = SloGauges(clock)
        self.breaches = BreachCounters()
        self.clients = NamedClients()
        self.models: ModelNames | None = None  # None: nobody counts them
        self.certificate = GatewayCertificate()  # that clients are served by
        self.loop = LoopLoadMeter(sweep_interval_s, thread_cpu_s)

    def sweep(self, now_s: float) -> None:
        """Look at what has no event of its own."""
        self.loop.note(now_s)
        self.certificate.check(now_s)


def exposition(  # noqa: PLR0913  # all that the page shows, and whose it is
    fleet: str,
    dispatcher: Dispatcher,
    upstreams: Upstreams,
    *,
    clients: OpenConnections,
    gauges: PageGauges,
    workflows: RequestWorkflows | None = None,
    number: int = 0,
) -> bytes:
    """Return the page; of one of several, each sample with its `number`, without what all have alike.

    Every sample names the fleet: one Prometheus reads several, and their lanes are called alike.
    """
    page = MetricsPage(_PREFIX, fleet=fleet, **({"gateway": str(number)} if number else {}))
    routes = dispatcher.routes
    for lane in routes.lanes.values():
        lane.accounts.fold(dispatcher.clock())
    table = routes.table
    page.family("connections", "gauge", "Open client connections.", [({}, len(clients))])
    page.family(
        "connections_displaced_total",
        "counter",
        "Idle client connections closed to make room.",
        [({}, clients.displaced)],
    )
    version = table.version if table is not None else 0
    page.family("table_version", "gauge", "Version of the routing table.", [({}, version)])
    _loop_gauges(page, gauges.loop.read())
    certificate_families(page, gauges.certificate)
    _lane_gauges(page, routes)
    _lane_counters(page, routes, gauges.breaches)
    _lane_histograms(page, routes)
    _replica_families(page, routes, upstreams)
    eviction_families(page, dispatcher.evictions, set(routes.replicas))
    stream_families(page, routes.lanes, set(routes.replicas), dispatcher.clock())
    tier_families(page, routes.lanes, dispatcher.clock())
    client_families(page, gauges.clients)
    if gauges.models is not None:
        model_families(page, gauges.models, (lane.route for lane in routes.lanes.values()))
    if workflows is not None:
        workflow_families(page, workflows.tracker, dispatcher.clock())
    return page.text().encode() + (b"" if number else slo_page(fleet, gauges, dispatcher.clock()))


def slo_page(fleet: str, gauges: PageGauges, now_s: float) -> bytes:
    """Return the controller's readings, which every gateway has alike."""
    slo = MetricsPage("fleetctl_slo_", fleet=fleet)
    gauges.slo.write(slo, now_s)
    return slo.text().encode()


def _loop_gauges(page: MetricsPage, load: EventLoopLoad | None) -> None:
    known: list[EventLoopLoad] = [] if load is None else [load]
    text = "Share of one processor that the event loop took over 10 s."
    page.family("event_loop_cpu_ratio", "gauge", text, [({}, each.cpu_share) for each in known])
    text = "By how much the event loop's timers were late over 10 s, nine in ten by no more."
    page.family("event_loop_lag_seconds", "gauge", text, [({}, each.lag_s) for each in known])


def _lane_gauges(page: MetricsPage, routes: RoutingState) -> None:
    lanes = routes.lanes.items()
    page.family("in_flight", "gauge", "Requests at replicas.", [({"lane": n}, x.in_flight) for n, x in lanes])
    queued = [({"lane": n}, float(len(x.queue) + len(x.displaced))) for n, x in lanes]
    page.family("queued", "gauge", "Requests waiting for a replica.", queued)
    page.family("ladder_step", "gauge", "Degradation step.", [({"lane": n}, x.route.step.level) for n, x in lanes])
    rotation = [({"lane": n}, float(sum(c.in_rotation for c in x.candidates))) for n, x in lanes]
    page.family("replicas_in_rotation", "gauge", "Replicas that take new requests.", rotation)


def _lane_counters(page: MetricsPage, routes: RoutingState, counters: BreachCounters) -> None:
    requests: list[Sample] = []
    tokens: list[Sample] = []
    good: list[Sample] = []
    breaches: list[Sample] = []
    sheds: list[Sample] = []
    bounded: list[Sample] = []
    loops: list[Sample] = []
    for name, lane in routes.lanes.items():
        stats = lane.accounts.windows.lifetime()
        requests += [({"lane": name, "ending": e}, n) for e, n in sorted(lane.accounts.endings.items())]
        tokens.append(({"lane": name, "kind": "prompt"}, stats.prompt_tokens))
        tokens.append(({"lane": name, "kind": "output"}, stats.output_tokens))
        good.append(({"lane": name}, stats.good))
        loops.append(({"lane": name}, stats.looped))
        breaches += [({"lane": name, "kind": k}, n) for k, n in counters.breaches(name, lane.accounts).items()]
        bounded += [({"lane": name, "reason": r.value}, lane.bounded[r]) for r in BoundReason]
        sheds += [({"lane": name, "reason": r}, n) for r, n in sorted(stats.shed.items())]
    page.family("requests_total", "counter", "Requests that were answered, by how that ended.", requests)
    page.family("tokens_total", "counter", "Tokens in and out.", tokens)
    page.family("good_total", "counter", "Requests inside their lane's SLO.", good)
    allowances = [({"lane": name}, lane.accounts.slo.shed) for name, lane in routes.lanes.items()]
    page.family("shed_allowance_ratio", "gauge", "Share of a lane's requests whose refusal is no miss.", allowances)
    page.family("breaches_total", "counter", "Requests outside their lane's SLO.", breaches)
    page.family("loops_total", "counter", "Answers found to repeat themselves.", loops)
    page.family("shed_total", "counter", "Requests refused with 429.", sheds)
    text = "Answers that a bound of the server's ended: of their length, of their time, a stop sequence, a loop."
    page.family("bounded_total", "counter", text, bounded)


def _lane_histograms(page: MetricsPage, routes: RoutingState) -> None:
    lanes = {name: lane.accounts.windows.lifetime() for name, lane in routes.lanes.items()}
    _histogram(page, "ttft_seconds", "Submission to first content token.", {n: x.ttft for n, x in lanes.items()})
    _histogram(
        page, "itl_seconds", "Gap between content events of a stream.", {n: x.token_gaps() for n, x in lanes.items()}
    )
    gaps = {n: (x.stream_gaps(), x.stream_gap_sum_s()) for n, x in lanes.items()}
    _readings(page, "stream_gap_seconds", "Gap between chunks of a stream, as they leave for its client.", gaps)
    _histogram(page, "queue_wait_seconds", "Submission to dispatch.", {n: x.queue_wait for n, x in lanes.items()})
    _histogram(page, "e2e_seconds", "Submission to last byte.", {n: x.e2e for n, x in lanes.items()})


def _histogram(page: MetricsPage, name: str, text: str, sketches: dict[str, QuantileSketch]) -> None:
    _readings(page, name, text, {lane: (SketchReading(each), each.sum_s) for lane, each in sketches.items()})


def _readings(page: MetricsPage, name: str, text: str, readings: dict[str, tuple[SketchReading, float]]) -> None:
    samples = []
    for lane, (reading, sum_s) in readings.items():
        counts = {f"{limit:g}": reading.count_at_most(limit) for limit in _SECONDS} | {"+Inf": reading.count}
        samples.append(({"lane": lane}, counts, sum_s))
    page.histogram(name, text, samples)


def _replica_families(page: MetricsPage, routes: RoutingState, upstreams: Upstreams) -> None:
    replicas = [({"replica": r.route.id, "lane": r.route.lane}, r) for r in routes.replicas.values()]
    page.family("replica_in_flight", "gauge", "Requests at it.", [(k, r.candidate.in_flight) for k, r in replicas])
    page.family("replica_requests_total", "counter", "Requests sent to it.", [(k, r.requests) for k, r in replicas])
    page.family("replica_failures_total", "counter", "Times it failed.", [(k, r.failures) for k, r in replicas])
    errors = [(k, upstreams[r.route.id].protocol_errors) for k, r in replicas]
    page.family("replica_protocol_errors_total", "counter", "Answers of it that broke HTTP or a bound.", errors)
    ejected = [(k, float(r.ejection.is_ejected)) for k, r in replicas]
    page.family("replica_ejected", "gauge", "1 while it is left alone after failing.", ejected)
    slow = [(k, float(r.slow.until_s > 0.0)) for k, r in replicas]
    page.family("replica_slow", "gauge", "1 while it is left alone as much slower than its peers.", slow)
    opened = [(k, float(upstreams[r.route.id].opened)) for k, r in replicas]
    page.family("upstream_connections_total", "counter", "Connections opened to it.", opened)
