"""Plans a profile: what `plan`, `render` and `up` share."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

from fleetctl import os_signals
from fleetctl.catalogue.calibrations import calibrated
from fleetctl.catalogue.known import load_catalogue, resolve_model
from fleetctl.config.faults import placed
from fleetctl.config.profile import profile_hash
from fleetctl.config.trace_columns import read_columns
from fleetctl.core.model_names import models_by_name
from fleetctl.core.plan import NOTHING_GIVEN, RequestHints, RuleInputs, TracedRequests, make_plan, search_fleet
from fleetctl.engine_kit.flags import gpu_errors
from fleetctl.engine_kit.priorities import with_priorities
from fleetctl.engine_kit.serving import with_serving
from fleetctl.errors import (
    BudgetExceededError,
    ConfigError,
    FleetctlError,
    InfeasiblePlanError,
    NotFoundError,
    ProviderError,
    ThrottledError,
)
from fleetctl.model.catalogue import OfferList
from fleetctl.model.plan import Plan, Sizing
from fleetctl.operations.engine_options import InstalledOptions, installed_options, planned_argument_errors
from fleetctl.operations.gateway_tls import tls_errors
from fleetctl.operations.multi_node import layout_rules
from fleetctl.operations.profile_errors import keyring_errors, profile_errors
from fleetctl.operations.proof_figures import with_risks
from fleetctl.operations.rocm_builds import rocm_cautions
from fleetctl.ports.engine import visible_engine
from fleetctl.processors import usable_cpus
from fleetctl.solver import solve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from fleetctl.config.faults import ProfileSource
    from fleetctl.core.plan import FleetSearch
    from fleetctl.core.plan.layouts import LayoutRules
    from fleetctl.model.catalogue import Catalogue, ModelCard, Offering
    from fleetctl.model.profile import Profile
    from fleetctl.model.provider_setting import ProviderChoice
    from fleetctl.operations.site import Site
    from fleetctl.ports.provider import Provider

T = TypeVar("T")

NO_PROOF = "FLEETCTL_NO_PROOF"  # set to anything: no plan is simulated

_THROTTLED_S_MAX = 60.0
_THROTTLED_WAIT_S_MIN = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """A profile's plan, or everything that stands in the way of one."""

    plan: Plan | None
    errors: tuple[FleetctlError, ...]
    listed: tuple[str, ...] = ()  # why and which packaged list stood in for the provider; empty: that was asked


async def plan_profile(  # noqa: PLR0913  # the sizing's own inputs are three
    site: Site,
    profile: Profile,
    *,
    source: ProfileSource | None = None,
    is_for_files: bool = False,
    sizing: Sizing = Sizing.FULL,
    rule: RuleInputs = NOTHING_GIVEN,
    proves: bool = False,
    accepts_risk: bool = False,
    names_burst: bool = False,
    is_live_only: bool = False,
) -> Plan:
    """Return the plan for a profile, on what its provider sells now. The trace, if it names one, is read here.

    Where the provider cannot be asked, its packaged list is planned by, with a caution; not if `is_live_only`, when nodes
    are about to be created by the plan.

    `rule` are the prefill-only rule's own inputs; `source` says where messages are to
    find the profile's keys; `proves` has what was planned simulated, and replicas added or taken until it holds, and
    `accepts_risk` holds promises at the points of forecasts; `names_burst` has it simulated under ever burstier arrivals. Raises ConfigError, NotFoundError, InfeasiblePlanError, BudgetExceededError, ProviderError.
    """
    if sizing is Sizing.FULL and rule != NOTHING_GIVEN:
        raise ConfigError(
            "a service time, a price and a step to round up to are inputs of prefill-only sizing; full sizing computes "
            "the first, reads the second from the provider, and rounds nothing",
            hint="add --sizing prefill-only, or leave them out",
        )
    _check_positive("service time", rule.service_time_s)
    _check_positive("price", rule.price_usd_per_hour)
    found = await try_planning(
        site,
        profile,
        is_for_files=is_for_files,
        sizing=sizing,
        rule=rule,
        proves=proves,
        accepts_risk=accepts_risk,
        names_burst=names_burst,
        is_live_only=is_live_only,
    )
    if found.plan is None:
        raise placed(found.errors, source)
    return found.plan


async def try_planning(  # noqa: PLR0913  # as plan_profile
    site: Site,
    profile: Profile,
    *,
    is_for_files: bool = False,
    sizing: Sizing = Sizing.FULL,
    rule: RuleInputs = NOTHING_GIVEN,
    proves: bool = False,
    accepts_risk: bool = False,
    names_burst: bool = False,
    is_live_only: bool = False,
) -> Planning:
    """Return the plan, or every reason why there is none: what `validate` reports and `plan` and `up` refuse.

    `is_for_files` leaves out what only a fleet that runs here refuses.
    """
    try:
        catalogue = calibrated(load_catalogue(), profile.capacity.calibration)
    except FleetctlError as error:
        return Planning(plan=None, errors=tuple(error.parts))
    installed = _installed(site, profile)
    errors: list[FleetctlError] = [*profile_errors(site, profile, catalogue, installed)]
    if not is_for_files:
        errors += [*keyring_errors(profile), *tls_errors(profile, site.clock.now())]
    plan: Plan | None = None
    sold: OfferList | None = None
    try:
        head_usd_per_hour, caution = await _head_price(site, profile)
        sold = await (_sold_now if is_live_only else sold_or_listed)(site, profile)
        inputs = await _inputs(site, profile, catalogue, head_usd_per_hour, sold.offerings)
        if sizing is Sizing.FULL:
            searched = search_fleet(profile, **inputs, solve=solve, accepts_risk=accepts_risk)
            if proves and not errors and not os.environ.get(NO_PROOF):
                rows = inputs["trace_rows"]
                plan = _proved(searched, profile, rows, accepts_risk=accepts_risk, names_burst=names_burst)
            else:
                plan = with_risks(searched.plan(), profile, accepts_risk=accepts_risk)
        else:
            plan = make_plan(profile, **inputs, sizing=sizing, rule=rule)
        builds = rocm_cautions(profile, plan, lambda lane: site.engines(lane.engine))
        plan = replace(plan, cautions=(*plan.cautions, *sold.cautions, *filter(None, [caution]), *builds))
    except FleetctlError as error:
        known = {each.message for each in errors}  # a model or a provider that is not there stops the sizing too
        errors += [_with_cautions(part, sold) for part in error.parts if part.message not in known]
    if errors or plan is None:
        return Planning(plan=None, errors=tuple(errors))
    plan = with_serving(with_priorities(plan, profile, site.engines), profile, site.engines)
    refused = (*_gpu_errors(site, profile, plan), *planned_argument_errors(site, profile, plan, installed))
    listed = sold.cautions if sold is not None and not sold.is_live else ()
    return Planning(plan=None if refused else plan, errors=refused, listed=listed)


def _proved(
    searched: FleetSearch,
    profile: Profile,
    rows: TracedRequests | None,
    *,
    accepts_risk: bool,
    names_burst: bool,
) -> Plan:
    """Return the plan that a simulation shows to hold. Raises InfeasiblePlanError, BudgetExceededError."""
    # The simulator takes a quarter of a second to import, which whoever has no plan simulated is spared.
    from fleetctl.operations.breaking_burst import with_breaking_bursts
    from fleetctl.operations.proving import prove

    processes = usable_cpus()
    # It computes, for a minute perhaps, and gives the loop no chance to end it: Ctrl-C is raised right here.
    with os_signals.let_through():
        plan = prove(searched, rows, accepts_risk=accepts_risk, processes=processes)
        if not names_burst:
            return plan
        slowdown = {} if accepts_risk else searched.slowdowns()
        return with_breaking_bursts(plan, profile, rows, slowdown, processes=processes)


def _with_cautions(error: FleetctlError, sold: OfferList | None) -> FleetctlError:
    """Return an error whose hint says what is to be known of the offers by which no plan was found.

    That is capacity of which no replica can have any; and that a packaged list stood in for the provider, by whose own
    offers there may well be a plan, or one within the cap.
    """
    is_by_list = sold is not None and not sold.is_live
    is_its_doing = isinstance(error, InfeasiblePlanError) or (is_by_list and isinstance(error, BudgetExceededError))
    if sold is not None and is_its_doing:
        error.hint = "; ".join(filter(None, [error.hint, *sold.cautions]))
    return error


async def _head_price(site: Site, profile: Profile) -> tuple[float, str]:
    """Return the dollars an hour of the machine that controller and gateway have of their own, and what is to be said of it."""
    if profile.host_choice.is_local:
        return 0.0, ""
    provider = site.provider_of(profile)
    heads = provider.capabilities.heads
    if heads is None:
        return 0.0, ""  # refused elsewhere
    try:
        async with asyncio.timeout(provider.pace.offerings_deadline_s):
            return await heads.usd_per_hour(profile.host_choice.settings), ""
    except (ProviderError, TimeoutError) as exc:
        why = exc.message if isinstance(exc, ProviderError) else "the provider did not say"
        return 0.0, f"the head is in no figure and under no cap: {why}"


class _Inputs(TypedDict):
    """What both sizings are given."""

    model_card: ModelCard
    other_models: dict[str, ModelCard]
    catalogue: Catalogue
    offerings: tuple[Offering, ...]
    profile_hash: str
    trace_rows: TracedRequests | None
    whole_contexts: frozenset[str]
    emulated: frozenset[str]
    layouts: Mapping[str, LayoutRules]
    head_usd_per_hour: float


async def _inputs(
    site: Site, profile: Profile, catalogue: Catalogue, head_usd_per_hour: float, offerings: tuple[Offering, ...]
) -> _Inputs:
    return _Inputs(
        model_card=resolve_model(profile.model, catalogue),
        other_models={model.name: resolve_model(model, catalogue) for model in profile.other_models},
        catalogue=catalogue,
        offerings=offerings,
        profile_hash=profile_hash(profile),
        trace_rows=traced_requests(profile),
        whole_contexts=_whole_contexts(site, profile),
        emulated=emulated_lanes(site, profile),
        layouts=layout_rules(site, profile),
        head_usd_per_hour=head_usd_per_hour,
    )


def _gpu_errors(site: Site, profile: Profile, plan: Plan) -> Iterator[ConfigError]:
    """Yield the extra arguments that are no user's on the GPUs which a plan found for a lane, and are where it has none."""
    for planned in plan.lanes:
        if not planned.offering.is_on_cpu:
            yield from gpu_errors(profile.lane(planned.lane), site.engines(planned.engine).capabilities)


def _installed(site: Site, profile: Profile) -> Mapping[tuple[str, str], InstalledOptions]:
    """Return the options of the engines here; none where a name is unknown, which is refused elsewhere."""
    try:
        return installed_options(site, profile)
    except NotFoundError:
        return {}


async def _sold_now(site: Site, profile: Profile) -> OfferList:
    """Return what a profile's provider sells now, by its own word alone. Raises ProviderError."""
    choice = profile.provider_choice
    provider = site.provider(choice)
    offerings = await what_is_sold(site, choice, provider, provider.offerings)
    capacity = provider.capabilities.left_out
    left_out = capacity.left_out if capacity is not None else ()
    return OfferList(offerings=offerings, source="the provider", cautions=left_out)


async def sold_or_listed(site: Site, profile: Profile) -> OfferList:
    """Return what a profile's provider sells now; what its packaged list has where it cannot be asked. Raises ProviderError."""
    lists = site.provider(profile.provider_choice).capabilities.offer_lists
    try:
        return await _sold_now(site, profile)
    except ProviderError:
        if lists is None:
            raise
        listed = await lists.offer_list()
        if listed.is_live or not listed.offerings:
            raise
    # Which zones sell a listed type nobody knows: those that the profile names are taken at its word.
    zones = profile.capacity.zones or ("",)
    sold = tuple(replace(each, zone=each.zone or zone) for each in listed.offerings for zone in zones)
    caution = f"planned by {listed.source}: `up` asks the provider itself, and may plan otherwise"
    return replace(listed, offerings=sold, cautions=(*listed.cautions, caution))


async def offerings_now(site: Site, choice: ProviderChoice) -> tuple[Offering, ...]:
    """Return what a provider sells now. Throttled, it is asked again as it says, for at most a minute in all.

    Raises ProviderError, which an answer that takes longer than the provider's own deadline is too.
    """
    provider = site.provider(choice)
    return await what_is_sold(site, choice, provider, provider.offerings)


async def what_is_sold(site: Site, choice: ProviderChoice, provider: Provider, call: Callable[[], Awaitable[T]]) -> T:
    """Return a provider's answer to this; as `offerings_now`."""
    started_s = site.clock.monotonic_s()
    while True:
        try:
            async with asyncio.timeout(provider.pace.offerings_deadline_s):
                return await call()
        except TimeoutError as exc:
            deadline_s = provider.pace.offerings_deadline_s
            raise ProviderError(f"provider {choice} did not say what it sells within {deadline_s:g} s") from exc
        except ThrottledError as exc:
            wait_s = max(_THROTTLED_WAIT_S_MIN, exc.retry_after_s)
            if site.clock.monotonic_s() + wait_s - started_s > _THROTTLED_S_MAX:
                raise
            await site.clock.sleep(wait_s)


def _whole_contexts(site: Site, profile: Profile) -> frozenset[str]:
    """Return the lanes whose engine, or the one that is played there, holds a whole context for each seat."""
    seen = {lane.name: visible_engine(site.engines, lane) for lane in profile.lanes}
    return frozenset(name for name, engine in seen.items() if engine.capabilities.reserves_context)


def emulated_lanes(site: Site, profile: Profile) -> frozenset[str]:
    """Return the lanes whose engines are emulated; an engine that is not installed is not."""
    found = []
    for lane in profile.lanes:
        with suppress(FleetctlError):  # what cannot be loaded is refused by its name elsewhere
            if site.engines(lane.engine).emulation(lane) is not None:
                found.append(lane.name)
    return frozenset(found)


def _check_positive(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < float("inf"):
        raise ConfigError(f"the {name} must be more than zero")


def traced_requests(profile: Profile) -> TracedRequests | None:
    """Return the requests of the profile's trace, to plan by; None: it names none. Raises ConfigError, NotFoundError."""
    if not profile.workload.trace:
        return None
    own = models_by_name(profile.models) if profile.other_models else {}
    found = read_columns(Path(profile.workload.trace), models=own)
    return TracedRequests(
        arrival_s=found.arrival_s,
        prompt_tokens=found.prompt_tokens,
        output_tokens=found.output_tokens,
        cached_tokens=found.cached_tokens,
        hints=[RequestHints(own.get(mark.model, ""), mark.lane, mark.stream, mark.batch) for mark in found.marks],
        hint_of=found.mark_of,
        peak_rps=found.peak_rps,
    )
