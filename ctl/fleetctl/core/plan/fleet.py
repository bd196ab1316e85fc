"""Plans a whole fleet: what the closed form finds, with as many replicas as a proof asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from fleetctl.core.dispersion import UNKNOWN_DISPERSION, is_burst_known
from fleetctl.core.plan.assemble import usd_per_1m_tokens
from fleetctl.core.plan.caps import over_caps
from fleetctl.core.plan.checks import workflow_targets
from fleetctl.core.plan.joint import choose_together
from fleetctl.core.plan.lane import lane_plan
from fleetctl.core.plan.offers import limit_errors, offer_errors, priced, with_own_gpus
from fleetctl.core.plan.on_cpu import cpu_cautions
from fleetctl.core.plan.options import Option
from fleetctl.core.plan.prefill_only import NOTHING_GIVEN, RuleInputs, prefill_only_lane
from fleetctl.core.plan.proven import ProvenCount, fewest_provable, proven_option
from fleetctl.core.plan.search import Supply, lane_instances, lane_options, search_lanes
from fleetctl.core.plan.tiers import tier_cautions
from fleetctl.core.plan.workflows import with_workflows, workflow_cautions
from fleetctl.core.plan.workload import LaneDemand, lane_demands
from fleetctl.core.ttft_budget import for_planning
from fleetctl.errors import joined
from fleetctl.model.plan import LanePlan, Plan, Sizing
from fleetctl.model.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fleetctl.core.plan.layouts import LayoutRules
    from fleetctl.core.plan.program import Solve
    from fleetctl.core.plan.traced import TracedRequest
    from fleetctl.model.catalogue import Catalogue, ModelCard, Offering

_NOTHING_PROVEN: Mapping[str, ProvenCount] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSearch:
    """What the closed form finds for every lane of a profile."""

    profile: Profile
    profile_hash: str
    supply: Supply
    demands: dict[str, LaneDemand]
    chosen: tuple[Option, ...]
    unknown_gpus: dict[str, str]  # that only the provider knows: what is to be said of each

    def plan(self, proven: Mapping[str, ProvenCount] = _NOTHING_PROVEN) -> Plan:
        """Return the plan, where a proof has found a lane's count with that.

        Raises InfeasiblePlanError where a lane may not have so many, BudgetExceededError.
        """
        profile = self.profile
        head = self.supply.head_usd_per_hour
        chosen = self.chosen
        if proven:  # with other counts the lanes share out what is limited anew; each keeps its kind of replica
            counted = [[proven_option(profile, option, proven.get(option.lane.name))] for option in chosen]
            chosen = choose_together(profile.capacity, counted, head_usd_per_hour=head, solve=self.supply.solve)
        cost = math.fsum(o.cost_usd_per_hour for o in chosen)
        if over := tuple(over_caps(profile, cost + head, sum(o.nodes for o in chosen), head_usd_per_hour=head)):
            raise joined(over)
        lanes = tuple(_lane_plan(profile, option, self.supply) for option in chosen)
        cautions = (
            *cpu_cautions(lanes),
            *_cautions(profile, self.demands),
            *_of_unknown(lanes, self.unknown_gpus),
            *workflow_cautions(profile),
            *_unkept_by_tier(profile, chosen),
        )
        return _plan(
            profile,
            lanes,
            self.demands,
            self.supply,
            profile_hash=self.profile_hash,
            sizing=Sizing.FULL,
            cautions=cautions,
        )

    def without(self, lane: str) -> FleetSearch:
        """Return what is found without the kind of replica that was chosen for a lane. Raises as `search_fleet`."""
        kind = next(option.result.instance.alike for option in self.chosen if option.lane.name == lane)
        known = self.supply.passed_over
        supply = replace(self.supply, passed_over={**known, lane: known.get(lane, frozenset()) | {kind}})
        return replace(self, supply=supply, chosen=search_lanes(self.profile, self.demands, supply))

    def slowdowns(self) -> dict[str, float]:
        """Return by lane how many times longer engines' steps may take than forecast; 1 of emulated ones."""
        return {option.lane.name: option.result.instance.margin.step for option in self.chosen}

    def fewest(self) -> dict[str, int]:
        """Return by lane the fewest replicas that a proof may come down to."""
        return {option.lane.name: fewest_provable(option) for option in self.chosen}


def search_fleet(  # noqa: PLR0913  # the planning call of every face: inputs by name, all but five optional
    profile: Profile,
    *,
    model_card: ModelCard,
    other_models: Mapping[str, ModelCard] = MappingProxyType({}),
    catalogue: Catalogue,
    offerings: tuple[Offering, ...],
    profile_hash: str,
    trace_rows: Sequence[TracedRequest] | None = None,
    whole_contexts: frozenset[str] = frozenset(),
    emulated: frozenset[str] = frozenset(),
    layouts: Mapping[str, LayoutRules] = MappingProxyType({}),
    head_usd_per_hour: float = 0.0,
    solve: Solve | None = None,
    accepts_risk: bool = False,
) -> FleetSearch:
    """Return the cheapest instances that keep every promise within the caps; same input, same answer.

    Promises are held at the upper end of each forecast's interval, with `accepts_risk` at its point; of emulated engines,
    whose steps are the model's own, the point is both. `whole_contexts` names the lanes whose engines hold KV cache for
    the longest request in each seat, `emulated` those whose engines are; `other_models` are by name those of the models
    after the first, `layouts` by lane what its replicas may lie over; `head_usd_per_hour` counts in cost and cap; `solve`
    solves the integer program of lanes that share limits.

    Raises InfeasiblePlanError naming the nearest feasible promise, BudgetExceededError naming the cap that binds.
    """
    supply, unknown = _supply(
        profile,
        catalogue,
        offerings,
        Supply(
            card=model_card,
            other_models=other_models,
            catalogue=catalogue,
            offerings=offerings,
            whole_contexts=whole_contexts,
            emulated=emulated,
            layouts=layouts,
            solve=solve,
            accepts_risk=accepts_risk,
            head_usd_per_hour=head_usd_per_hour,
        ),
    )
    profile = for_planning(profile)
    demands = lane_demands(profile, trace_rows)
    chosen = search_lanes(profile, demands, supply)
    return FleetSearch(
        profile=profile, profile_hash=profile_hash, supply=supply, demands=demands, chosen=chosen, unknown_gpus=unknown
    )


def make_plan(  # noqa: PLR0913  # as search_fleet, and the rule of thumb's own two
    profile: Profile,
    *,
    model_card: ModelCard,
    other_models: Mapping[str, ModelCard] = MappingProxyType({}),
    catalogue: Catalogue,
    offerings: tuple[Offering, ...],
    profile_hash: str,
    sizing: Sizing = Sizing.FULL,
    trace_rows: Sequence[TracedRequest] | None = None,
    rule: RuleInputs = NOTHING_GIVEN,
    whole_contexts: frozenset[str] = frozenset(),
    emulated: frozenset[str] = frozenset(),
    layouts: Mapping[str, LayoutRules] = MappingProxyType({}),
    head_usd_per_hour: float = 0.0,
    solve: Solve | None = None,
    accepts_risk: bool = False,
) -> Plan:
    """Return what `search_fleet` finds as a plan that nothing has proven, or the published rule of thumb's.

    `rule` belongs to `Sizing.PREFILL_ONLY`. The published table is 0.040 s and
    $1.69 for 70B FP8 with 512-token prompts at 1,000 rps on H100; H200 is 0.70 / 27 s and $1.89. Raises as `search_fleet`.
    """
    if sizing is Sizing.FULL:
        return search_fleet(
            profile, model_card=model_card, other_models=other_models, catalogue=catalogue, offerings=offerings,
            profile_hash=profile_hash, trace_rows=trace_rows, whole_contexts=whole_contexts, emulated=emulated,
            layouts=layouts, head_usd_per_hour=head_usd_per_hour, solve=solve, accepts_risk=accepts_risk,
        ).plan()  # fmt: skip
    supply, _ = _supply(
        profile,
        catalogue,
        offerings,
        Supply(
            card=model_card, other_models=other_models, catalogue=catalogue, offerings=offerings,
            whole_contexts=whole_contexts, emulated=emulated, layouts=layouts, head_usd_per_hour=head_usd_per_hour,
        ),
    )  # fmt: skip
    # The rule's instance is one GPU, on whatever machine it is sold.
    supply = replace(supply, offerings=tuple(replace(each, is_shareable=True) for each in supply.offerings))
    profile = for_planning(profile)
    demands = lane_demands(profile, trace_rows)
    lanes, cautions = _prefill_only(profile, demands, supply, rule)
    cost, head = sum(p.cost_usd_per_hour for p in lanes), supply.head_usd_per_hour
    if over := tuple(over_caps(profile, cost + head, sum(p.nodes for p in lanes), head_usd_per_hour=head)):
        raise joined(over)
    return _plan(profile, lanes, demands, supply, profile_hash=profile_hash, sizing=sizing, cautions=cautions)


def _supply(
    profile: Profile, catalogue: Catalogue, offerings: tuple[Offering, ...], supply: Supply
) -> tuple[Supply, dict[str, str]]:
    """Return the supply at the profile's prices with the provider's own GPUs, and what is to be said of those."""
    catalogue, unknown = with_own_gpus(catalogue, offerings)
    supply = replace(supply, catalogue=catalogue, offerings=priced(offerings, profile.capacity))
    on_offer = {offering.key: offering for lane in profile.lanes for offering in supply.for_lane(lane)}
    absent = (
        *offer_errors(profile.capacity, catalogue, tuple(on_offer.values())),
        *limit_errors(profile.capacity, offerings),
    )
    if absent:
        raise joined(absent)
    return supply, unknown


def _plan(  # noqa: PLR0913  # assembles what make_plan found
    profile: Profile,
    lanes: tuple[LanePlan, ...],
    demands: dict[str, LaneDemand],
    supply: Supply,
    *,
    profile_hash: str,
    sizing: Sizing,
    cautions: tuple[str, ...],
) -> Plan:
    lanes = tuple(_with_card(plan, profile, supply) for plan in lanes)
    cost = math.fsum([supply.head_usd_per_hour, *(plan.cost_usd_per_hour for plan in lanes)])
    gpus = {plan.gpu for plan in lanes}
    return Plan(
        fleet=profile.name,
        profile_hash=profile_hash,
        sizing=sizing,
        lanes=lanes,
        cost_usd_per_hour=cost,
        cost_usd_per_1m_tokens=usd_per_1m_tokens(cost, math.fsum(d.tokens_per_s for d in demands.values())),
        gpu_spec=lanes[0].gpu_spec if len(gpus) == 1 else None,
        model_card=supply.card,
        cautions=cautions,
        head_usd_per_hour=supply.head_usd_per_hour,
    )


def _prefill_only(
    profile: Profile,
    demands: dict[str, LaneDemand],
    supply: Supply,
    rule: RuleInputs,
) -> tuple[tuple[LanePlan, ...], tuple[str, ...]]:
    answers = [
        prefill_only_lane(
            lane,
            profile,
            demands[lane.name],
            lane_instances(profile, lane, demands[lane.name], supply),
            rule,
        )
        for lane in profile.lanes
    ]
    return tuple(plan for plan, _ in answers), tuple(caution for _, caution in answers)


def _with_card(plan: LanePlan, profile: Profile, supply: Supply) -> LanePlan:
    card = supply.other_models.get(profile.lane(plan.lane).model)
    return plan if card is None else replace(plan, model_card=card)


def _lane_plan(profile: Profile, option: Option, supply: Supply) -> LanePlan:
    """Return a lane's plan; what its workflows cost is what the lane would take without them."""
    plan = lane_plan(profile, option)
    if not workflow_targets(option.demand):
        return plan
    alone, _ = lane_options(profile, option.lane, replace(option.demand, workflows=()), supply)
    without = alone[0] if alone else None
    return with_workflows(
        plan,
        option.demand,
        option.result.at(option.markets.replicas),
        replicas_without=without.markets.replicas if without else 0,
        usd_per_hour_without=without.cost_usd_per_hour if without else 0.0,
    )


def _unkept_by_tier(profile: Profile, chosen: Sequence[Option]) -> Iterator[str]:
    for option in chosen if profile.tiers else ():
        yield from tier_cautions(profile, option.lane, option.result.at(option.markets.replicas))


def _of_unknown(lanes: Sequence[LanePlan], unknown: dict[str, str]) -> list[str]:
    """Return what is to be said of GPUs that only the provider knows, and that a plan is made on."""
    return [unknown[gpu] for gpu in dict.fromkeys(lane.gpu for lane in lanes) if gpu in unknown]


def _cautions(profile: Profile, demands: dict[str, LaneDemand]) -> tuple[str, ...]:
    idle = [name for name, demand in demands.items() if demand.rps == 0]
    found = [f"lane {name} has no share of the workload: it gets the profile's minimum" for name in idle]
    workload = profile.workload
    if workload.burst_cv is not None and workload.burst_cv < 1.0:
        found.append(f"burst_cv {workload.burst_cv:g} is smoother than Poisson: real traffic rarely is")
    if not is_burst_known(workload):
        found.append(
            "nothing says how bursty arrivals are (workload.dispersion_1s and dispersion_10s, burst_cv, or a trace): planned "
            f"with {UNKNOWN_DISPERSION:g} times Poisson's variance; burstier traffic takes more"
        )
    return tuple(found)
