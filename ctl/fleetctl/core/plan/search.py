"""Searches, in closed form, the instances that together carry all lanes at the least cost within the caps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from fleetctl.core.plan.candidates import LaneCandidates
from fleetctl.core.plan.caps import COST_KEY, over_caps
from fleetctl.core.plan.infeasible import out_of_reach, too_many
from fleetctl.core.plan.instances import Instance, instances, too_small
from fleetctl.core.plan.joint import choose_promising, choose_together
from fleetctl.core.plan.layouts import ONE_STAGE, LayoutRules
from fleetctl.core.plan.lengths import too_long
from fleetctl.core.plan.offers import offerings_for
from fleetctl.core.plan.program import Solve
from fleetctl.core.plan.sizing import holds_longest
from fleetctl.core.plan.workflows import without_workflows
from fleetctl.errors import BudgetExceededError, FleetctlError, InfeasiblePlanError, joined
from fleetctl.model.catalogue import Catalogue, ModelCard, Offering
from fleetctl.model.slo import Metric
from fleetctl.units import format_usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.plan.options import Option
    from fleetctl.core.plan.workload import LaneDemand
    from fleetctl.model.profile import LaneSpec, Profile


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
    solve: Solve | None = (
        None  # of integer programs; None: where lanes share limits their options are compared one by one
    )
    accepts_risk: bool = False  # promises are held at the points of forecasts, not at their upper ends
    passed_over: Mapping[str, frozenset[tuple[object, ...]]] = field(default_factory=dict)  # by lane, as Instance.alike

    def card_of(self, lane: LaneSpec) -> ModelCard:
        """Return the shape of the model that a lane serves."""
        return self.other_models.get(lane.model, self.card)

    def for_lane(self, lane: LaneSpec) -> tuple[Offering, ...]:
        """Return what a lane may run on."""
        return offerings_for(self.offerings, is_emulated=lane.name in self.emulated)


def search_lanes(profile: Profile, demands: dict[str, LaneDemand], supply: Supply) -> tuple[Option, ...]:
    """Return every lane's option in the cheapest combination within the caps. Raises what stands in the way, all of it.

    All kinds of replica are sized only where the promising ones do not decide it: a cap binds, or something stands in the way.
    """
    lanes = [_candidates(profile, lane, demands[lane.name], supply) for lane in profile.lanes]
    head, unheld = supply.head_usd_per_hour, too_long(profile, demands)
    errors: list[FleetctlError] = [unheld] if unheld else []
    best = choose_promising(
        profile.capacity,
        [each.promising() if isinstance(each, LaneCandidates) else () for each in lanes],
        head_usd_per_hour=head,
        solve=supply.solve,
    )
    if best is None:
        found = [_all_options(each) for each in lanes]
        errors = [error for _, error in found if error is not None] + errors
        if not all(options for options, _ in found):
            raise joined(errors)
        best = choose_together(
            profile.capacity, [options for options, _ in found], head_usd_per_hour=head, solve=supply.solve
        )
    over = over_caps(profile, _cost(best) + head, sum(o.nodes for o in best), head_usd_per_hour=head)
    errors += [_with_workflow(error, profile, best, supply) for error in over]
    if errors:
        raise joined(errors)
    known = [each for each in lanes if isinstance(each, LaneCandidates)]
    return tuple(each.with_layouts(option) for each, option in zip(known, best, strict=True))


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
    return _all_options(_candidates(profile, lane, demand, supply))


def _candidates(
    profile: Profile, lane: LaneSpec, demand: LaneDemand, supply: Supply
) -> LaneCandidates | InfeasiblePlanError:
    """Return a lane's kinds of replica, or why it has none."""
    try:
        found = lane_instances(profile, lane, demand, supply)
    except InfeasiblePlanError as error:
        return error
    passed_over = supply.passed_over.get(lane.name, frozenset())
    left = tuple(one for one in found if one.alike not in passed_over)
    if not left:
        return InfeasiblePlanError(f"lane {lane.name}: no other kind of replica is on offer", key=("lanes", lane.name))
    return LaneCandidates(profile, lane, demand, left, guests_itl_s=_guests_itl_s(profile, lane))


def _all_options(candidates: LaneCandidates | InfeasiblePlanError) -> tuple[list[Option], FleetctlError | None]:
    if isinstance(candidates, InfeasiblePlanError):
        return [], candidates
    lane, demand, found = candidates.lane, candidates.demand, candidates.found
    results = candidates.sizings()
    if not results:
        fitting = [i for i in found if i.kv_tokens(gpu_memory_utilization=1.0, max_num_batched_tokens=0) > 0]
        return [], out_of_reach(lane, fitting, demand) if fitting else too_small(lane, found)
    within = [one for one in results if one.needed <= lane.replicas.max]
    return candidates.options(within or results), None if within else too_many(lane, results, demand)


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
