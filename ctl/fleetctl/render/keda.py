"""What KEDA scales a rendered lane by: the requests that its engines count themselves, since no gateway of ours stands before them.

Where none runs none counts, so that only an endpoint picker before them, which holds requests meanwhile, wakes a lane at zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError
from fleetctl.model.catalogue import Market
from fleetctl.render.object_file import ObjectFile

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan
    from fleetctl.render.lane_target import LaneTarget
    from fleetctl.render.object_file import Object

# The pods' labels that a PodMonitor of `--with monitors` keeps (podTargetLabels), as Prometheus spells them.
_FLEET, _LANE = "fleetctl_dev_fleet", "fleetctl_dev_lane"
# What an endpoint picker holds in its flow control, by its pool, and how many of its endpoints are ready: as the inference extension
# 1.5 names these series, and as llm-d's router, which came of it, does. The first has no value before the first request, the
# second always. A picker may show both names of one figure, so the first series is looked for by one name, else by the other.
_HELD = ("llm_d_epp_flow_control_queue_size", "inference_extension_flow_control_queue_size")
_READY = "llm_d_epp_ready_endpoints|inference_pool_ready_pods"
# Four scrapes of `--with monitors`: for so long an engine may be ready and not seen yet, or gone and still counted as ready.
_UNSEEN = "1m:15s"
# Until KEDA sees that a request waits: its own look every 30 s, Prometheus' every 15 s, and the picker's figures, which are 5 s old.
WAKES_WITHIN_S = 60.0
_HEADER = (
    "Requests that run or wait in a lane's engines, as the engines count them: whoever sends them, no gateway is needed.",
    f"Prometheus has to scrape the pods and keep their labels as {_FLEET} and {_LANE}: with.monitors.yaml",
    "(`--with monitors`) has its operator do so. Without those series, or without Prometheus, the planned count stays.",
    'Where another namespace has a fleet of this name, add `namespace="..."` to the queries.',
)


def scaled_market(lane_plan: LanePlan) -> Market:
    """Return of which market KEDA scales a lane: spot comes and goes, and what is on demand beside it is the baseline."""
    return Market.SPOT if lane_plan.spot else Market.ON_DEMAND


def scales_to_zero(lane: LaneTarget) -> bool:
    """Return whether a lane may be without any replica, where something before its engines counts the requests that wait."""
    return bool(lane.plan.replicas) and lane.spec.replicas.min < 1 and not _baseline(lane.plan)


def scaled_objects(lanes: tuple[LaneTarget, ...], prometheus_url: str, *, has_pickers: bool) -> ObjectFile:
    """Return a ScaledObject of each lane that has replicas; where it has a picker, its queue wakes a lane that is at zero.

    Raises ConfigError for an engine that does not count requests.
    """
    scaled = [lane for lane in lanes if lane.plan.replicas]
    lines = [*_HEADER, *(line for lane in scaled for line in _derivation(lane, has_pickers=has_pickers))]
    return ObjectFile(
        objects=tuple(_scaled_object(lane, prometheus_url, has_picker=has_pickers) for lane in scaled),
        comment="".join(f"# {line}\n" for line in lines),
    )


def _scaled_object(lane: LaneTarget, prometheus_url: str, *, has_picker: bool) -> Object:
    market = scaled_market(lane.plan)
    planned, baseline = _planned(lane.plan), _baseline(lane.plan)
    suffix = "-spot" if market is Market.SPOT else ""
    is_woken = has_picker and scales_to_zero(lane)
    queries = (_query_at_zero(lane), _held_query(lane)) if is_woken else (_query(lane),)
    return {
        **lane.head("keda.sh/v1alpha1", "ScaledObject", suffix=suffix),
        "spec": {
            "scaleTargetRef": {"name": f"{lane.name}{suffix}"},
            "minReplicaCount": 0 if is_woken else _least(lane),
            "maxReplicaCount": max(lane.spec.replicas.max - baseline, planned, 1),
            # Without Prometheus as many as were planned, or as there are.
            "fallback": {"failureThreshold": 3, "replicas": planned, "behavior": "currentReplicasIfHigher"},
            "triggers": [_trigger(lane, query, prometheus_url) for query in queries],
        },
    }


def _trigger(lane: LaneTarget, query: str, prometheus_url: str) -> Object:
    metadata = {
        "serverAddress": prometheus_url,
        "query": query,
        "threshold": f"{_requests_each(lane.plan):.4g}",
        "activationThreshold": "0",
        # No series is no load of zero: nothing is scraped. As an error it leads to the fallback.
        "ignoreNullValues": "false",
    }
    return {"type": "prometheus", "metricType": "AverageValue", "metadata": metadata}


def _query(lane: LaneTarget) -> str:
    if not lane.request_gauges:
        raise ConfigError(
            f"lane {lane.spec.name}: engine {lane.engine} has no series of the requests that run and wait in it",
            hint="leave --with keda out, or name another engine with --engine",
        )
    # By their names in one selector, since an engine may show one of them before another (TGI does); a sum of two sums
    # would be nothing until both are there.
    names = "|".join(lane.request_gauges)
    of_lane = f'{_FLEET}="{lane.fleet}",{_LANE}="{lane.spec.name}"'
    demand = f'sum({{__name__=~"{names}",{of_lane}}})'
    baseline = _baseline(lane.plan)
    return f"clamp_min({demand} - {baseline * _requests_each(lane.plan):.4g}, 0)" if baseline else demand


def _query_at_zero(lane: LaneTarget) -> str:
    """Return the query of a lane that may be at zero: nothing where no engine is to be expected, and no value where one is.

    An engine that has just become ready may not be scraped yet, and of one that has just gone the picker's figure is older.
    """
    demand = _query(lane)
    gone = f"0 * max_over_time({demand}[{_UNSEEN}])"
    starting = f"min_over_time({_ready(lane)}[{_UNSEEN}]) == 0"
    return f"{demand} or {gone} or {starting}"


def _held_query(lane: LaneTarget) -> str:
    """Return how many requests a lane's picker holds; nothing where it never held one, and no value where it is not scraped."""
    held = " or ".join(f'sum({name}{{inference_pool="{lane.name}"}})' for name in _HELD)
    return f"{held} or 0 * {_ready(lane)}"


def _ready(lane: LaneTarget) -> str:
    return f'max({{__name__=~"{_READY}",name="{lane.name}"}})'


def _derivation(lane: LaneTarget, *, has_pickers: bool) -> tuple[str, ...]:
    """Return the lines that say where a lane's threshold comes from."""
    plan, each = lane.plan, _requests_each(lane.plan)
    baseline, throughput = _baseline(plan), plan.throughput
    peak = f"{plan.forecast.concurrency:.4g} run on one replica of {plan.replicas} at the planned {plan.rps:.4g} req/s"
    carries = f", which carries {throughput.rps:.4g} req/s with every promise kept" if throughput is not None else ""
    lines = [f"{lane.spec.name}: a replica is due {each:.4g} requests: {peak}{carries}; at most {plan.sequences_max}."]
    if baseline:
        lines.append(f"{lane.spec.name}: less {baseline * each:.4g}, those of {baseline} on demand beside it.")
    if scales_to_zero(lane):
        lines += _about_zero(lane, has_picker=has_pickers)
    return tuple(lines)


def _about_zero(lane: LaneTarget, *, has_picker: bool) -> tuple[str, ...]:
    """Return the lines that say whether a lane goes to zero, and what that takes."""
    name = lane.spec.name
    if not has_picker:
        return (
            f"{name}: one replica stays, though replicas.min is 0: where no engine runs none counts the request that would need it.",
            f"{name}: an endpoint picker before the engines would; `--with inference` or `--with llm-d` renders its pool.",
        )
    return (
        f"{name}: none is left once no request came for KEDA's cooldownPeriod (300 s); the next one waits in the flow control of",
        f"{name}: the picker {lane.name}-epp, and that starts the first. Prometheus has to scrape the picker, as its chart has its",
        f"{name}: operator do (inferenceExtension.monitoring.prometheus.enabled); where it does not, the planned count stays.",
    )


def _planned(lane_plan: LanePlan) -> int:
    return lane_plan.spot if scaled_market(lane_plan) is Market.SPOT else lane_plan.on_demand


def _baseline(lane_plan: LanePlan) -> int:
    """Return how many replicas of a lane KEDA does not scale."""
    return lane_plan.replicas - _planned(lane_plan)


def _least(lane: LaneTarget) -> int:
    """Return below what KEDA does not go: at least one engine has to be there to count the requests that come."""
    baseline = _baseline(lane.plan)
    return max(lane.spec.replicas.min - baseline, 0 if baseline else 1)


def _requests_each(lane_plan: LanePlan) -> float:
    """Return how many requests run on a replica at the rate it carries with every promise kept; at least one.

    Those at the planned peak, in proportion to the rate: nearer to saturation there would be more, so this scales early.
    """
    running, throughput = lane_plan.forecast.concurrency, lane_plan.throughput
    if throughput is not None and lane_plan.rps > 0:
        running *= throughput.rps / (lane_plan.rps / lane_plan.replicas)
    return min(max(running, 1.0), float(lane_plan.sequences_max))
