"""The published rule of thumb: count instances by prefill time alone. Reproduced exactly, and cautioned against.

instances = ceil(peak_rps / (utilisation / service_time_s)), with the utilisation read from the TTFT P99 promise. It
leaves out decode time, KV memory, interference and the tail, so it answers for a machine no single GPU is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from fleetctl.core.perf.frontend import FRONTEND_S, GATEWAY_S, NETWORK_S
from fleetctl.core.plan.assemble import LaneSizing, assemble, budget_items, with_error
from fleetctl.core.plan.instances import Instance, too_small
from fleetctl.core.plan.markets import Markets, split_markets
from fleetctl.core.plan.sizing import KV_FREE, Settings, choices, replica_model, size, worst_step_s
from fleetctl.errors import InfeasiblePlanError
from fleetctl.model.plan import Constraint, Forecast, LanePlan, ReplicaThroughput
from fleetctl.model.slo import LaneSlo, Metric
from fleetctl.units import format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.profile import LaneSpec, Profile

HOURS_PER_MONTH = 720
# The published ceilings on the utilisation of one server by TTFT P99 promise (200 ms 55 %, 300 ms 63 %, 400 ms 70 %, 500 ms
# 75 %), straight lines between; the ends are this project's own continuation.
TTFT_CEILINGS = ((0.1, 0.45), (0.2, 0.55), (0.3, 0.63), (0.4, 0.70), (0.5, 0.75), (2.0, 0.85))
UTILISATION_WITHOUT_TTFT = 0.75  # the table's last row: lanes that promise no TTFT
_CHUNK = 2048  # the rule says nothing of chunks: vLLM's default for online serving
FLEET_STEP = 10  # the published fleets round up: 58 instances became 60, 38 became 40

TTFT_FLOOR_S = NETWORK_S + GATEWAY_S + FRONTEND_S  # the way to the engine

# Published interference on one "instance": concurrency -> (TTFT P50, P99) in seconds.
INTERFERENCE = ((8, 0.045, 0.090), (16, 0.052, 0.160), (32, 0.068, 0.280), (64, 0.095, 0.480))


def ttft_ceiling(limit_s: float) -> float:
    """Return the published ceiling for a TTFT promise, interpolated; held at the ends."""
    if limit_s <= TTFT_CEILINGS[0][0]:
        return TTFT_CEILINGS[0][1]
    for (low_s, low), (high_s, high) in pairwise(TTFT_CEILINGS):
        if limit_s <= high_s:
            return low + (high - low) * (limit_s - low_s) / (high_s - low_s)
    return TTFT_CEILINGS[-1][1]


def instances_needed(peak_rps: float, *, service_time_s: float, utilisation: float) -> int:
    """Return ceil(peak_rps / (utilisation / service_time_s))."""
    # Rounded first: 1,000 x 0.04 / 0.8 must be 50, not 51 by the last bit of a float.
    return math.ceil(round(peak_rps * service_time_s / utilisation, 9))


def published_fleet(instances: int) -> int:
    """Return the fleet the published tables price: the next ten."""
    return rounded_up(instances, FLEET_STEP)


def rounded_up(instances: int, step: int) -> int:
    """Return the next multiple of `step`."""
    return math.ceil(instances / step) * step


def monthly_usd(instances: int, price_usd_per_hour: float) -> float:
    """Return the price of a 720-hour month."""
    return instances * price_usd_per_hour * HOURS_PER_MONTH


def mean_queue_wait_s(service_time_s: float, utilisation: float) -> float:
    """Return S * rho / (1 - rho): the mean wait of Little's law in an M/M/1 queue."""
    return service_time_s * utilisation / (1.0 - utilisation)


def queue_wait_s(service_time_s: float, utilisation: float, percentile: float) -> float:
    """Return the wait that this share of the requests of the same queue stays under: P(W > t) = rho exp(-(1 - rho) t / S)."""
    waiting = utilisation / (1.0 - percentile)
    return service_time_s / (1.0 - utilisation) * math.log(waiting) if waiting > 1.0 else 0.0


def published_interference(concurrency: float) -> tuple[float, float]:
    """Return (TTFT P50, P99) at this concurrency on one published "instance", interpolated; held at the ends."""
    if concurrency <= INTERFERENCE[0][0]:
        return INTERFERENCE[0][1:]
    for (low, low_50, low_99), (high, high_50, high_99) in pairwise(INTERFERENCE):
        if concurrency <= high:
            part = (concurrency - low) / (high - low)
            return low_50 + part * (high_50 - low_50), low_99 + part * (high_99 - low_99)
    return INTERFERENCE[-1][1:]


def concurrency_within(ttft_p99_s: float) -> int:
    """Return the highest concurrency whose published TTFT P99 is within the promise; at least 1."""
    fitting = [c for c in range(1, INTERFERENCE[-1][0] + 1) if published_interference(c)[1] <= ttft_p99_s + 1e-12]
    return max(fitting, default=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleInputs:
    """What the rule is given where the step model and the offering are not to say it."""

    service_time_s: float | None = None  # of one request on one instance; None: the step model's prefill
    price_usd_per_hour: float | None = None  # of one instance; None: the offering's
    round_up: int = 1  # to so many instances, as the published fleets are to tens


NOTHING_GIVEN = RuleInputs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The rule applied to one lane on one instance."""

    instance: Instance
    service_time_s: float
    utilisation: float  # the ceiling its promise allows
    rps: float

    @property
    def instances(self) -> int:
        """Return the published count."""
        return instances_needed(self.rps, service_time_s=self.service_time_s, utilisation=self.utilisation)

    @property
    def instance_rps(self) -> float:
        """Return what the rule believes one instance serves."""
        return self.utilisation / self.service_time_s


def prefill_only_lane(  # the rule's own inputs
    lane: LaneSpec,
    profile: Profile,
    demand: LaneDemand,
    found: Sequence[Instance],
    inputs: RuleInputs,
) -> tuple[LanePlan, str]:
    """Return the rule's answer for a lane, and the caution that says what one such instance can really do."""
    fitting = [instance for instance in found if _settings(lane, instance, demand)]
    if not fitting:
        raise too_small(lane, found)
    # The rule's instance is one GPU; of a model that none holds it is as few as do.
    fewest = min(_gpus(instance) for instance in fitting)
    rules = [_rule(lane, instance, demand, inputs.service_time_s) for instance in fitting if _gpus(instance) == fewest]
    rule = min(rules, key=_cost_and_key)
    needed = rounded_up(max(1, rule.instances), inputs.round_up)
    if needed > lane.replicas.max:
        raise InfeasiblePlanError(
            f"lane {lane.name}: prefill-only sizing asks for {needed} replicas, and replicas.max is {lane.replicas.max}",
            hint=f"set lanes.{lane.name}.replicas.max to {needed} or more",
            key=("lanes", lane.name, "replicas", "max"),
        )
    markets = split_markets(
        lane,
        rule.instance,
        profile.capacity.on_demand,
        needed=needed,
        demand=demand,
        knee_rps=1.0 / rule.service_time_s,
        has_spare=False,  # the published count, whichever way its instances are bought
    )
    cost = markets.cost_usd_per_hour(rule.instance)
    if inputs.price_usd_per_hour is not None:
        cost = markets.replicas * rule.instance.node_count * inputs.price_usd_per_hour
    answer = _lane_sizing(lane, demand, rule, markets, cost)
    return assemble(lane, profile, demand, answer), _caution(lane, demand, rule, answer.forecast)


def _gpus(instance: Instance) -> int:
    return instance.layout.gpus * instance.node_count


def _cost_and_key(rule: Rule) -> tuple[float, str]:
    offering = rule.instance.cheapest
    return rule.instance.machines(rule.instances) * offering.price_usd_per_hour, offering.key


def _rule(lane: LaneSpec, instance: Instance, demand: LaneDemand, service_time_s: float | None) -> Rule:
    promised = lane.slo.strictest(Metric.TTFT)
    prompt = round(demand.prompt.mean)
    return Rule(
        instance=instance,
        service_time_s=service_time_s or instance.step.prefill_s(prompt, round(prompt * demand.prefix_hit)),
        utilisation=ttft_ceiling(promised.limit_s) if promised else UTILISATION_WITHOUT_TTFT,
        rps=demand.rps,
    )


def _settings(lane: LaneSpec, instance: Instance, demand: LaneDemand) -> Settings | None:
    """Return launch settings with the published batch: the concurrency whose TTFT P99 is within the promise."""
    promised = lane.slo.strictest(Metric.TTFT)
    seqs = concurrency_within(promised.limit_s) if promised else INTERFERENCE[-1][0]
    launch = replace(
        lane.launch,
        max_num_batched_tokens=lane.launch.max_num_batched_tokens or _CHUNK,
        max_num_seqs=lane.launch.max_num_seqs or seqs,
    )
    # Promises are left out: the rule does not look at them, and must not fail by them.
    return next(iter(choices(replace(lane, slo=LaneSlo(targets=()), launch=launch), instance, demand)), None)


def _lane_sizing(
    lane: LaneSpec, demand: LaneDemand, rule: Rule, markets: Markets, cost_usd_per_hour: float
) -> LaneSizing:
    settings = _settings(lane, rule.instance, demand)
    if settings is None:
        raise AssertionError("only instances with settings are compared")
    return LaneSizing(
        instance=rule.instance,
        settings=settings,
        markets=markets,
        cost_usd_per_hour=cost_usd_per_hour,
        budget=budget_items(
            lane,
            {
                "queue": mean_queue_wait_s(rule.service_time_s, rule.utilisation),
                "prefill": rule.service_time_s,
            },
        ),
        constraint=Constraint.UTILISATION if rule.instances >= lane.replicas.min else Constraint.MINIMUM,
        bound_by="workload.peak_rps" if rule.instances >= lane.replicas.min else f"lanes.{lane.name}.replicas.min",
        forecast=_forecast(demand, rule, settings, markets.replicas),
        reasons=(
            _formula(rule, markets.replicas, cost_usd_per_hour / max(1, markets.replicas)),
            _wait(rule),
            markets.reason,
        ),
        throughput=ReplicaThroughput(rps=rule.instance_rps, prompt_share=1.0, output_share=0.0),
    )


def _formula(rule: Rule, replicas: int, price_usd_per_hour: float) -> str:
    fleet = published_fleet(rule.instances)
    formula = (
        f"ceil({rule.rps:.6g} rps / ({rule.utilisation:.3g} / {format_duration(rule.service_time_s)})) "
        f"= {rule.instances}"
    )
    if replicas == fleet:
        return formula if fleet == rule.instances else f"{formula}, rounded up to {fleet} as the published fleets are"
    month = format_usd(monthly_usd(fleet, price_usd_per_hour))
    return f"{formula}; published fleets round up to {fleet}, {month} a month: --round-up {FLEET_STEP}"


def _wait(rule: Rule) -> str:
    wait_s = mean_queue_wait_s(rule.service_time_s, rule.utilisation)
    return f"mean queue wait by Little's law at this utilisation: {format_duration(wait_s)}"


def _forecast(demand: LaneDemand, rule: Rule, settings: Settings, replicas: int) -> Forecast:
    """Return what the rule's own queue makes of TTFT; it says nothing of gaps, so those are the fullest step its batch would take."""
    load = min(demand.rps / replicas * rule.service_time_s, 0.999)
    p50_s, p99_s = (
        TTFT_FLOOR_S + rule.service_time_s + queue_wait_s(rule.service_time_s, load, q) for q in (0.5, 0.99)
    )
    gap_s = worst_step_s(replica_model(rule.instance, demand, settings), settings.running_max)
    return with_error(
        rule.instance.gpu,
        ttft_p50_s=p50_s,
        ttft_p99_s=p99_s,
        itl_p99_s=gap_s,
        e2e_p99_s=p99_s + demand.output.quantile(0.99) * gap_s,
        utilisation=load,
        concurrency=demand.rps / replicas * rule.service_time_s,
        knee_rps=replicas / rule.service_time_s,
    )


def _caution(lane: LaneSpec, demand: LaneDemand, rule: Rule, forecast: Forecast) -> str:
    """Say with numbers what the rule leaves out for this very lane."""
    label = rule.instance.label
    promised = lane.slo.strictest(Metric.TTFT)
    tail = ""
    if promised is not None and forecast.ttft_p99_s > promised.limit_s:
        tail = (
            f"at {forecast.utilisation:.0%} its own queue has a TTFT P99 of {format_duration(forecast.ttft_p99_s)}, and "
            f"{format_duration(promised.limit_s)} is promised; "
        )
    claim = (
        f"lane {lane.name}: prefill-only sizing counts prompts alone: no decode time, KV memory, interference or tail. "
        f"It lets one {label} serve {rule.instance_rps:.3g} rps, that is "
        f"{rule.instance_rps * demand.output.mean:,.0f} output tokens/s with at least "
        f"{rule.instance_rps * demand.output.mean * _step_floor_s(rule, demand):.0f} sequences resident; {tail}"
    )
    result = size(lane, rule.instance, demand)
    if result is None:
        return claim + f"by the full model no number of {label} keeps this lane's promises"
    replica = result.state.replica
    fitting = math.floor(result.settings.kv_tokens * (1 - KV_FREE) / replica.held_tokens)
    return claim + (
        f"its KV cache holds {fitting}, it saturates at {replica.knee_rps:.3g} rps, and the full model asks for "
        f"{result.needed} replicas. Use --sizing full."
    )


def _step_floor_s(rule: Rule, demand: LaneDemand) -> float:
    return rule.instance.step.decode_step_s(1, demand.prompt.mean)
