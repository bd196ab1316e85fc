"""Plans a profile with keys changed, and along one key from tight to loose: what that costs beside the profile's own plan."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.config.document import read_document
from fleetctl.config.faults import ProfileSource
from fleetctl.config.profile import read_tree
from fleetctl.errors import ConfigError
from fleetctl.model.slo import Metric
from fleetctl.operations.planning import try_planning
from fleetctl.units import format_duration, parse_duration_s

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from fleetctl.model.plan import Plan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site

FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)  # of a limit, from tight to loose


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneDelta:
    """A lane's figures with keys changed, and beside them what the profile's own plan has."""

    lane: str
    replicas: int
    replicas_before: int
    cost_usd_per_hour: float
    cost_change_usd_per_hour: float
    ttft_p99_s: float  # forecast
    ttft_p99_change_s: float
    itl_p99_s: float  # forecast
    itl_p99_change_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What changed keys make of a plan."""

    changes: tuple[str, ...]  # "workload.peak_rps=40", as given
    cost_usd_per_hour: float
    cost_change_usd_per_hour: float
    lanes: tuple[LaneDelta, ...]  # those that both plans have


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One plan along the frontier."""

    factor: float  # of what the profile says
    values: tuple[str, ...]  # of the keys then
    replicas: int  # of all lanes; 0: there is no such plan
    cost_usd_per_hour: float
    cost_change_usd_per_hour: float  # beside the plan at factor 1; 0 where there is none
    ttft_p99_s: float  # forecast, the worst of the lanes that promise one
    refusal: str = ""  # why there is no such plan; then all figures are 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """Cost against tightness: the same fleet planned with limits from tight to loose."""

    keys: tuple[str, ...]  # that are scaled together
    points: tuple[FrontierPoint, ...]
    proof: str  # what was simulated of each; empty: all are the closed form's


def with_changes(source: ProfileSource, profile: Profile, changes: Sequence[str]) -> tuple[Profile, ProfileSource]:
    """Return a profile with `KEY=VALUE` changes, under its own name and port. Raises ConfigError with every fault."""
    tree = copy.deepcopy(dict(source.tree))
    for change in changes:
        path, value = _parsed(change)
        _put(tree, path, value, change)
    name = f"{source.name} with {', '.join(f'--set {each}' for each in changes)}"
    return _read(tree, name, source, profile)


def _parsed(change: str) -> tuple[tuple[str, ...], Any]:
    key, equals, text = change.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise ConfigError(
            f"--set {change}: is not KEY=VALUE", hint="a key as plans name it: --set lanes.short.slo.ttft.p99=300ms"
        )
    document = read_document(f"value: {text}")
    if document.faults or not isinstance(document.tree, dict):
        why = document.faults[0].message if document.faults else "is no value"
        raise ConfigError(f"--set {change}: {why}", hint="write the value as the profile would have it")
    return path, document.tree["value"]


def _put(tree: dict[str, Any], path: tuple[str, ...], value: object, change: str) -> None:
    section: Any = tree
    for number, name in enumerate(path[:-1]):
        if name not in section:
            section[name] = {}
        section = section[name]
        if not isinstance(section, dict):
            raise ConfigError(f"--set {change}: {'.'.join(path[: number + 1])} is no section")
    section[path[-1]] = value


def _read(tree: Mapping[str, Any], name: str, source: ProfileSource, profile: Profile) -> tuple[Profile, ProfileSource]:
    file = Path(source.name)
    changed = ProfileSource(name=name, lines=source.lines, tree=tree)
    found = read_tree(changed, base_dir=file.parent if file.is_file() else None).checked()
    port = profile.gateway.port if profile.gateway.port_is_given else found.gateway.port
    gateway = replace(found.gateway, port=port, port_is_given=profile.gateway.port_is_given)
    return replace(found, name=profile.name, gateway=gateway), changed


def what_if(changes: Sequence[str], before: Plan, after: Plan) -> WhatIf:
    """Return what a plan with changed keys has beside the profile's own."""
    known = {lane.lane: lane for lane in before.lanes}
    lanes = tuple(
        LaneDelta(
            lane=lane.lane,
            replicas=lane.replicas,
            replicas_before=own.replicas,
            cost_usd_per_hour=lane.cost_usd_per_hour,
            cost_change_usd_per_hour=lane.cost_usd_per_hour - own.cost_usd_per_hour,
            ttft_p99_s=lane.forecast.ttft_p99_s,
            ttft_p99_change_s=lane.forecast.ttft_p99_s - own.forecast.ttft_p99_s,
            itl_p99_s=lane.forecast.itl_p99_s,
            itl_p99_change_s=lane.forecast.itl_p99_s - own.forecast.itl_p99_s,
        )
        for lane in after.lanes
        if (own := known.get(lane.lane)) is not None
    )
    return WhatIf(
        changes=tuple(changes),
        cost_usd_per_hour=after.cost_usd_per_hour,
        cost_change_usd_per_hour=after.cost_usd_per_hour - before.cost_usd_per_hour,
        lanes=lanes,
    )


async def frontier(  # a profile, what is scaled, and how each point is planned
    site: Site,
    profile: Profile,
    source: ProfileSource,
    key: str,
    *,
    proves: bool,
    accepts_risk: bool,
) -> Frontier:
    """Return the plans with `key` at each of `FACTORS`; without one, all of the lanes' TTFT limits together.

    Raises ConfigError for a key that is not given, or is neither a duration nor a number.
    """
    paths = _paths(source.tree, key)
    given = {path: _scalable(source.tree, path) for path in paths}
    found = [each async for each in _plans(site, profile, source, given, proves=proves, accepts_risk=accepts_risk)]
    own = next((plan.cost_usd_per_hour for factor, _, plan, _ in found if factor == 1.0 and plan is not None), None)
    promised = frozenset(lane.name for lane in profile.lanes if lane.slo.strictest(Metric.TTFT) is not None)
    return Frontier(
        keys=tuple(".".join(path) for path in paths),
        points=tuple(_point(factor, values, plan, why, own, promised) for factor, values, plan, why in found),
        proof=next((plan.proof for _, _, plan, _ in found if plan is not None and plan.proof), ""),
    )


_Planned = tuple[float, tuple[str, ...], "Plan | None", str]


async def _plans(
    site: Site,
    profile: Profile,
    source: ProfileSource,
    given: Mapping[tuple[str, ...], float | str],
    *,
    proves: bool,
    accepts_risk: bool,
) -> AsyncIterator[_Planned]:
    for factor in FACTORS:
        tree = copy.deepcopy(dict(source.tree))
        values = {path: _scaled(value, factor) for path, value in given.items()}
        for path, value in values.items():
            _put(tree, path, value, ".".join(path))
        shown = tuple(str(value) for value in values.values())
        try:
            changed, _ = _read(tree, f"{source.name} at {factor:g} of it", source, profile)
        except ConfigError as error:
            yield factor, shown, None, error.message
            continue
        planned = await try_planning(site, changed, is_for_files=True, proves=proves, accepts_risk=accepts_risk)
        yield factor, shown, planned.plan, "; ".join(error.message for error in planned.errors)


def _point(  # one of `_plans`, the cost at factor 1, and the lanes that promise a TTFT
    factor: float, values: tuple[str, ...], plan: Plan | None, why: str, own: float | None, promised: frozenset[str]
) -> FrontierPoint:
    if plan is None:
        return FrontierPoint(
            factor=factor, values=values, replicas=0, cost_usd_per_hour=0.0, cost_change_usd_per_hour=0.0,
            ttft_p99_s=0.0, refusal=why,
        )  # fmt: skip
    return FrontierPoint(
        factor=factor,
        values=values,
        replicas=sum(lane.replicas for lane in plan.lanes),
        cost_usd_per_hour=plan.cost_usd_per_hour,
        cost_change_usd_per_hour=plan.cost_usd_per_hour - own if own is not None else 0.0,
        ttft_p99_s=max(lane.forecast.ttft_p99_s for lane in plan.lanes if lane.lane in promised or not promised),
    )


def _paths(tree: Mapping[str, Any], key: str) -> tuple[tuple[str, ...], ...]:
    if key:
        return (tuple(key.split(".")),)
    lanes = tree.get("lanes")
    found = tuple(
        ("lanes", name, "slo", "ttft", percentile)
        for name, lane in (lanes.items() if isinstance(lanes, dict) else ())
        for percentile in _section(_section(lane, "slo"), "ttft")
    )
    if not found:
        raise ConfigError("no lane of the profile promises a TTFT", hint="name a key: --frontier-key workload.peak_rps")
    return found


def _section(tree: object, name: str) -> Mapping[str, Any]:
    value = tree.get(name) if isinstance(tree, dict) else None
    return value if isinstance(value, dict) else {}


def _scalable(tree: Mapping[str, Any], path: tuple[str, ...]) -> float | str:
    """Return what the profile says of a key, if it can be scaled."""
    value: object = tree
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    try:
        parse_duration_s(value if isinstance(value, str) else "")
    except ConfigError:
        what = "is not given in the profile" if value is None else f"is {value}, neither a duration nor a number"
        raise ConfigError(
            f"--frontier-key {'.'.join(path)}: {what}", hint="such as lanes.short.slo.itl.p99 or workload.peak_rps"
        ) from None
    return str(value)


def _scaled(value: float | str, factor: float) -> float | str:
    if isinstance(value, str):
        return format_duration(parse_duration_s(value) * factor)
    scaled = value * factor
    return int(scaled) if isinstance(value, int) and scaled == int(scaled) else scaled
