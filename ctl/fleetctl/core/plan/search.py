"""Searches, in closed form, the instances that together carry all lanes at the least cost within the caps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from fleetctl.core.plan.caps import COST_KEY, over_caps
from fleetctl.core.plan.infeasible import out_of_reach, too_many
from fleetctl.core.plan.instances import Instance, instances, too_small
from fleetctl.core.plan.layouts import ONE_STAGE, LayoutRules
from fleetctl.core.plan.lengths import too_long
from fleetctl.core.plan.markets import Markets, split_markets
from fleetctl.core.plan.offers import offerings_for
from fleetctl.core.plan.one_machine import GpuDemand, lacking_gpus
from fleetctl.core.plan.sizing import SizingResult, holds_longest, size
from fleetctl.core.plan.workflows import without_workflows
from fleetctl.core.plan.workload import LaneDemand
from fleetctl.errors import BudgetExceededError, FleetctlError, InfeasiblePlanError, joined
from fleetctl.model.catalogue import Catalogue, ModelCard, Offering
from fleetctl.model.profile import LaneSpec, Profile
from fleetctl.model.slo import Metric
from fleetctl.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPTIONS_MAX = 6  # per lane: the cheapest, and those with fewer nodes
_CENT: Final = 0.01  # what costs less than this less is no way out


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """What planning may choose from."""

    card: ModelCard
    other_models: Mapping[str, ModelCard]  # of the models after the first, by name
    catalogue: Catalogue
    offerings: tuple[Offering, ...]
    emulated: frozenset[str] = frozenset()  # lanes whose engines are
    whole_contexts: frozenset[str] = frozenset()  # lanes whose engines hold one for each seat
    layouts: Mapping[str, LayoutRules] = field(default_factory=dict)  # by lane; without: one stage, one rank
    head_usd_per_hour: float = 0.0  # of the machine that controller and gateway have of their own
    accepts_risk: bool = False  # promises are held at the points of forecasts, not at their upper ends

    def card_of(self, lane: LaneSpec) -> ModelCard:
        """Return the shape of the model that a lane serves."""
        return self.other_models.get(lane.model, self.card)

    def for_lane(self, lane: LaneSpec) -> tuple[Offering, ...]:
        """Return what a lane may run on."""
        return offerings_for(self.offerings, is_emulated=lane.name in self.emulated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to carry a lane."""

    lane: LaneSpec
    demand: LaneDemand
    result: SizingResult
    markets: Markets
    cost_usd_per_hour: float
    others: tuple[SizingResult, ...] = ()  # the same nodes' other layouts

    @property
    def nodes(self) -> int:
        """Return the machines it takes."""
        return self.markets.machines(self.result.instance)

    @property
    def gpus(self) -> int:
        """Return the GPUs it takes."""
        return self.markets.replicas * self.result.instance.node_count * self.result.instance.layout.gpus


def search_lanes(profile: Profile, demands: dict[str, LaneDemand], supply: Supply) -> tuple[Option, ...]:
    """Return every lane's option in the cheapest combination within the caps. Raises what stands in the way, all of it."""
    found = [lane_options(profile, lane, demands[lane.name], supply) for lane in profile.lanes]
    errors = [error for _, error in found if error is not None]
    if unheld := too_long(profile, demands):
        errors.append(unheld)
    if not all(options for options, _ in found):
        raise joined(errors)
    best = _cheapest(profile, [options for options, _ in found])
    head = supply.head_usd_per_hour
    over = over_caps(profile, _cost(best) + head, sum(o.nodes for o in best), head_usd_per_hour=head)
    errors += [_with_workflow(error, profile, best, supply) for error in over]
    if errors:
        raise joined(errors)
    return best


def _cost(chosen: Sequence[Option]) -> float:
    return math.fsum(option.cost_usd_per_hour for option in chosen)


def _with_workflow(
    error: BudgetExceededError, profile: Profile, best: Sequence[Option], supply: Supply
) -> BudgetExceededError:
    """Add to the cost cap's error the workflow promises without which the plan would cost least, and that cost."""
    if error.key != COST_KEY:
        return error
    cheapest, cost, head = None, _cost(best), supply.head_usd_per_hour
    for promises, number, demand in without_workflows([option.demand for option in best]):
        options, _ = lane_options(profile, best[number].lane, demand, supply)
        instead = [*best[:number], *options[:1], *best[number + 1 :]]
        if options and _cost(instead) < cost - _CENT:
            cheapest, cost = promises, _cost(instead)
    if cheapest is None:
        return error
    hint = f"{error.hint}, {cheapest} first"
    return BudgetExceededError(
        f"{error.message}; without {cheapest} it costs {format_usd(cost + head)}", hint=hint, key=error.key
    )


def lane_options(
    profile: Profile, lane: LaneSpec, demand: LaneDemand, supply: Supply
) -> tuple[list[Option], FleetctlError | None]:
    """Return the ways to carry a lane worth comparing, cheapest first, and why they are not the lane's to take.

    A lane whose bound is too low has its options beside the error, so that the caps are held against them too.
    """
    try:
        found = lane_instances(profile, lane, demand, supply)
    except InfeasiblePlanError as error:
        return [], error
    guests_itl_s = _guests_itl_s(profile, lane)
    results = [s for one in found if (s := size(lane, one, demand, guests_itl_s=guests_itl_s)) is not None]
    if not results:
        fitting = [i for i in found if i.kv_tokens(gpu_memory_utilization=1.0, max_num_batched_tokens=0) > 0]
        return [], out_of_reach(lane, fitting, demand) if fitting else too_small(lane, found)
    within = [s for s in results if s.needed <= lane.replicas.max]
    options = [priced_option(profile, lane, demand, one, _alike(one, results)) for one in within or results]
    ranked = sorted(
        options, key=lambda o: (o.cost_usd_per_hour, _free_gpus(o), o.nodes, o.result.instance.ranks, _key(o))
    )
    return _worthwhile(ranked), None if within else too_many(lane, results, demand)


def _alike(one: SizingResult, results: Sequence[SizingResult]) -> tuple[SizingResult, ...]:
    """Return the other layouts on the same type of node."""
    return tuple(
        other for other in results if other is not one and other.instance.cheapest.key == one.instance.cheapest.key
    )


def lane_instances(profile: Profile, lane: LaneSpec, demand: LaneDemand, supply: Supply) -> tuple[Instance, ...]:
    """Return every node type, by every layout, that a lane may use. Raises InfeasiblePlanError when there is none."""
    return instances(
        lane,
        lane.own_model(profile.model_of(lane)),
        supply.card_of(lane),
        capacity=profile.capacity,
        catalogue=supply.catalogue,
        offerings=supply.for_lane(lane),
        reserves_context=lane.name in supply.whole_contexts,
        has_margin=not supply.accepts_risk and lane.name not in supply.emulated,
        rules=supply.layouts.get(lane.name, ONE_STAGE),
        fits=partial(holds_longest, lane, demand),
    )


def _guests_itl_s(profile: Profile, lane: LaneSpec) -> float | None:
    """Return the strictest ITL of the other lanes that this one lends to. None: there is none."""
    if not lane.lends:
        return None
    guests = [
        other
        for other in profile.lanes
        if other is not lane and other.engine == lane.engine and other.model == lane.model
    ]
    limits = [promised.limit_s for other in guests if (promised := other.slo.strictest(Metric.ITL)) is not None]
    return min(limits, default=None)


def priced_option(
    profile: Profile, lane: LaneSpec, demand: LaneDemand, one: SizingResult, others: tuple[SizingResult, ...]
) -> Option:
    """Return one way to carry a lane: how its replicas are bought, and what they cost."""
    policy, knee = profile.capacity.on_demand, one.knee_rps
    markets = split_markets(lane, one.instance, policy, needed=one.needed, demand=demand, knee_rps=knee)
    cost = markets.cost_usd_per_hour(one.instance)
    return Option(lane=lane, demand=demand, result=one, markets=markets, cost_usd_per_hour=cost, others=others)


def _worthwhile(options: list[Option]) -> list[Option]:
    """Keep the cheapest, and dearer ones only where they need fewer nodes."""
    kept: list[Option] = []
    for option in options:
        if not kept or option.nodes < kept[-1].nodes:
            kept.append(option)
    return kept[:_OPTIONS_MAX]


def _key(option: Option) -> str:
    return option.result.instance.cheapest.key


def _cheapest(profile: Profile, options: list[list[Option]]) -> tuple[Option, ...]:
    """Return the cheapest combination whose nodes fit the cap, or that of the fewest nodes where none does.

    Raises InfeasiblePlanError where every one takes more GPUs than the machine has that they share.
    """
    ranked = sorted(
        itertools.product(*options),
        key=lambda c: (math.fsum(o.cost_usd_per_hour for o in c), sum(map(_free_gpus, c)), [_key(o) for o in c]),
    )
    lacks = [lacking_gpus(map(_gpu_demand, c)) for c in ranked]
    if lacks[0] is not None and all(lack is not None for lack in lacks):
        raise lacks[0]
    ranked = [c for c, lack in zip(ranked, lacks, strict=True) if lack is None]
    fitting = [c for c in ranked if sum(o.nodes for o in c) <= profile.capacity.max_nodes]
    return fitting[0] if fitting else min(ranked, key=lambda c: sum(o.nodes for o in c))


def _gpu_demand(option: Option) -> GpuDemand:
    instance, replicas = option.result.instance, option.markets.replicas
    gpus_each = instance.layout.gpus * instance.node_count
    return GpuDemand(lane=option.lane.name, offering=instance.cheapest, replicas=replicas, gpus_each=gpus_each)


def _free_gpus(option: Option) -> int:
    """Return the GPUs an option takes where they cost nothing: then it is they that are saved."""
    return 0 if option.cost_usd_per_hour else option.gpus
