"""Explains a plan key by key: each value, where it comes from, and what follows from it; and what a little more would buy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleetctl.config.profile_keys import written_keys
from fleetctl.core.explanation.effect import KeyQuery
from fleetctl.core.explanation.registry import EXPLANATIONS
from fleetctl.model.plan import Sizing
from fleetctl.model.profile import ReplicaBounds
from fleetctl.model.slo import Metric
from fleetctl.operations.planning import try_planning
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from fleetctl.config.faults import ProfileSource
    from fleetctl.config.profile_keys import WrittenKey
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import LaneSpec, Profile
    from fleetctl.operations.site import Site

_LANES = "lanes"
TTFT_MORE_S = 0.1  # what a looser promise is looked at with


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedKey:
    """One key of a profile, its value, and what follows from it."""

    key: str
    lane: str  # empty: of the whole fleet
    value: str
    source: str  # "chat.yaml:12", "capacity.spot, chat.yaml:45", or an origin: "default", "derived", "engine", ...
    file: str  # where the value stands; empty: in no file
    line: int  # in it; 0: in none
    effect: str
    is_given: bool
    is_planned: bool  # a figure of the plan follows from it
    is_binding: bool  # it set a lane's number of replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The same profile, one thing of one lane changed: what that costs or saves, and what it does to the lane."""

    lane: str
    change: str  # "1 replica more", "ttft P99 400ms"
    replicas: int  # of the lane then
    cost_usd_per_hour: float  # of all lanes then
    cost_change_usd_per_hour: float
    ttft_p99_s: float  # forecast
    ttft_p99_change_s: float
    refusal: str = ""  # why there is no such plan; then all figures are 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExplanation:
    """What is behind a plan."""

    keys: tuple[ExplainedKey, ...]
    alternatives: tuple[Alternative, ...]


async def explain_plan(
    site: Site, profile: Profile, plan: Plan, source: ProfileSource, *, accepts_risk: bool = False
) -> PlanExplanation:
    """Return each key of the profile that plays a part, in the language's order, and what changes nearby would do.

    The alternatives are planned, and proved, as the profile was; of prefill-only sizing there are none. Raises as `plan_profile`.
    """
    return PlanExplanation(
        keys=explain_keys(profile, plan, source),
        alternatives=tuple([each async for each in _alternatives(site, profile, plan, accepts_risk=accepts_risk)]),
    )


def explain_keys(profile: Profile, plan: Plan, source: ProfileSource) -> tuple[ExplainedKey, ...]:
    """Return each key that is given, or whose default plays a part."""
    lanes = ["", *(lane.name for lane in profile.lanes)]
    return tuple(sorted(_explained(profile, plan, source), key=lambda key: lanes.index(key.lane)))


def _explained(profile: Profile, plan: Plan, source: ProfileSource) -> Iterator[ExplainedKey]:
    for key in written_keys(source.tree):
        path = tuple(map(str, key.path))
        query = KeyQuery(profile=profile, plan=plan, path=path, is_given=key.is_given)
        effect = EXPLANATIONS[key.schema.pattern](query)
        if effect is None:
            continue
        given_by_option = _by_option(profile, key, source.tree)
        inherited = tuple(effect.inherits.split(".")) if effect.inherits and not key.is_given else ()
        stands = key.path if key.is_given else inherited if inherited in source.lines else ()
        place = f"{source.name}:{source.line_of(stands)}" if stands else effect.origin.value
        yield ExplainedKey(
            key=key.name,
            lane=path[1] if path[0] == _LANES else "",
            value=given_by_option
            or (_spelled(key.value) if key.is_given else effect.value or _spelled(key.schema.default)),
            source="option" if given_by_option else f"{effect.inherits}, {place}" if inherited else place,
            file=source.name if stands else "",
            line=source.line_of(stands) if stands else 0,
            effect=effect.text or key.schema.description,
            is_given=key.is_given,
            is_planned=effect.is_planned,
            is_binding=effect.is_binding,
        )


def _by_option(profile: Profile, key: WrittenKey, tree: Mapping[str, Any]) -> str:
    """Return the value that an option of the command, or of the fleet's `up`, has put in this key's place; empty: none."""
    if key.path == ("gateway", "port") and profile.gateway.port_is_given:
        return str(profile.gateway.port)
    return profile.name if key.path == ("name",) and profile.name != tree.get("name") else ""


def _spelled(value: object) -> str:
    """Return a value as YAML has it on one line, without the outermost brackets."""
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_inner(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(_inner(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _inner(value: object) -> str:
    """Return a value that stands in a section or a list, whose own entries must not run into those beside it."""
    text = _spelled(value)
    if isinstance(value, dict):
        return f"{{{text}}}"
    return f"[{text}]" if isinstance(value, list) else text


async def _alternatives(site: Site, profile: Profile, plan: Plan, *, accepts_risk: bool) -> AsyncIterator[Alternative]:
    if plan.sizing is not Sizing.FULL:
        return
    for lane in profile.lanes:
        planned = plan.lane(lane.name)
        if planned.offering.is_on_cpu:  # nothing is forecast of it, so nobody knows what more would buy
            continue
        for change, changed in _changes(lane, planned):
            lanes = tuple(changed if each is lane else each for each in profile.lanes)
            found = await try_planning(
                site,
                replace(profile, lanes=lanes),
                is_for_files=True,
                proves=bool(plan.proof),
                accepts_risk=accepts_risk,
            )
            yield _alternative(plan, planned, change, found.plan, [error.message for error in found.errors])


def _changes(lane: LaneSpec, planned: LanePlan) -> Iterator[tuple[str, LaneSpec]]:
    more = planned.replicas + 1
    bounds = ReplicaBounds(min=more, max=max(more, lane.replicas.max))
    yield "1 replica more", replace(lane, replicas=bounds)
    strictest = lane.slo.strictest(Metric.TTFT)
    if strictest is not None:
        looser = replace(strictest, limit_s=strictest.limit_s + TTFT_MORE_S)
        targets = tuple(looser if target == strictest else target for target in lane.slo.targets)
        yield f"{looser.name} {format_duration(looser.limit_s)}", replace(lane, slo=replace(lane.slo, targets=targets))


def _alternative(plan: Plan, planned: LanePlan, change: str, other: Plan | None, refusals: list[str]) -> Alternative:
    if other is None:
        return Alternative(
            lane=planned.lane, change=change, replicas=0, cost_usd_per_hour=0.0, cost_change_usd_per_hour=0.0,
            ttft_p99_s=0.0, ttft_p99_change_s=0.0, refusal="; ".join(refusals),
        )  # fmt: skip
    lane = other.lane(planned.lane)
    return Alternative(
        lane=planned.lane,
        change=change,
        replicas=lane.replicas,
        cost_usd_per_hour=other.cost_usd_per_hour,
        cost_change_usd_per_hour=other.cost_usd_per_hour - plan.cost_usd_per_hour,
        ttft_p99_s=lane.forecast.ttft_p99_s,
        ttft_p99_change_s=lane.forecast.ttft_p99_s - planned.forecast.ttft_p99_s,
    )
