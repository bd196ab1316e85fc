"""Plans a profile, and keeps plans in files: what `plan`, `render` and `up` share."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fleetctl import codec
from fleetctl.catalogue.known import load_catalogue, resolve_model
from fleetctl.config.profile import profile_hash
from fleetctl.config.trace import read_rows
from fleetctl.core.plan import make_plan
from fleetctl.engine_kit.weights import check_precisions
from fleetctl.errors import ConfigError, NotFoundError, ProviderError, ThrottledError
from fleetctl.files import write_whole
from fleetctl.model.plan import Plan, Sizing
from fleetctl.operations.multi_node import check_multi_node

if TYPE_CHECKING:
    from fleetctl.core.plan import TraceRow
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site

PLAN_VERSION = 1
_THROTTLED_S_MAX = 60.0
_THROTTLED_WAIT_S_MIN = 0.1
_PLAN_BYTES_MAX = 4 * 1024 * 1024


class PlanFile(msgspec.Struct, frozen=True, kw_only=True):
    """A saved plan, with the version of its shape."""

    version: int
    plan: Plan


class _Header(msgspec.Struct, frozen=True):
    """What every version of the file begins with."""

    version: int


async def plan_profile(
    site: Site,
    profile: Profile,
    *,
    sizing: Sizing = Sizing.FULL,
    service_time_s: float | None = None,
    price_usd_per_hour: float | None = None,
) -> Plan:
    """Return the plan for a profile, on what its provider sells now. The trace, if it names one, is read here.

    `service_time_s` and `price_usd_per_hour` are the prefill-only rule's own inputs. Raises ConfigError,
    InfeasiblePlanError, BudgetExceededError, NotFoundError, ProviderError.
    """
    if sizing is Sizing.FULL and not (service_time_s is None and price_usd_per_hour is None):
        raise ConfigError(
            "a service time and a price are inputs of prefill-only sizing; full sizing computes the one and "
            "reads the other from the provider",
            hint="add --sizing prefill-only, or leave them out",
        )
    _check_positive("service time", service_time_s)
    _check_positive("price", price_usd_per_hour)
    check_multi_node(site, profile)
    catalogue = load_catalogue()
    plan = make_plan(
        profile,
        model_card=resolve_model(profile.model, catalogue),
        catalogue=catalogue,
        offerings=await offerings_now(site, profile.provider),
        profile_hash=profile_hash(profile),
        sizing=sizing,
        trace_rows=_trace_rows(profile),
        service_time_s=service_time_s,
        price_usd_per_hour=price_usd_per_hour,
    )
    for lane in plan.lanes:
        capabilities = site.engines(lane.engine).capabilities
        check_precisions(plan, lane.launch, capabilities, engine=lane.engine)
    return plan


async def offerings_now(site: Site, name: str) -> tuple[Offering, ...]:
    """Return what a provider sells now. Throttled, it is asked again as it says, for at most a minute in all.

    Raises ProviderError, which an answer that takes longer than the provider's own deadline is too.
    """
    provider, started_s = site.providers(name), site.clock.monotonic_s()
    while True:
        try:
            async with asyncio.timeout(provider.pace.offerings_deadline_s):
                return await provider.offerings()
        except TimeoutError as exc:
            deadline_s = provider.pace.offerings_deadline_s
            raise ProviderError(f"provider {name} did not say what it sells within {deadline_s:g} s") from exc
        except ThrottledError as exc:
            wait_s = max(_THROTTLED_WAIT_S_MIN, exc.retry_after_s)
            if site.clock.monotonic_s() + wait_s - started_s > _THROTTLED_S_MAX:
                raise
            await site.clock.sleep(wait_s)


def save_plan(plan: Plan, path: Path) -> None:
    """Write a plan to a file, whole or not at all. Raises ConfigError when the place cannot be written."""
    raw = msgspec.json.format(codec.encode(PlanFile(version=PLAN_VERSION, plan=plan)), indent=2) + b"\n"
    try:
        write_whole(path, raw, mode=0o644)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


def load_plan(path: Path) -> Plan:
    """Return a saved plan. Raises NotFoundError, and ConfigError for a damaged file or another version's."""
    if not path.is_file():
        raise NotFoundError(f"no plan at {path}", hint="save one: fleetctl plan PROFILE --out FILE")
    again = "plan again: fleetctl plan PROFILE --out FILE"
    try:
        if path.stat().st_size > _PLAN_BYTES_MAX:
            raise ConfigError(f"{path}: is too large to be a plan", hint=again)
        raw = path.read_bytes()
        version = codec.decode(_Header, raw).version
        if version != PLAN_VERSION:
            raise ConfigError(
                f"{path}: was written in plan format {version}, and this fleetctl reads {PLAN_VERSION}", hint=again
            )
        return codec.decode(PlanFile, raw).plan
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not a saved plan, or is damaged: {error}", hint=again) from error


def _check_positive(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < float("inf"):
        raise ConfigError(f"the {name} must be more than zero")


def _trace_rows(profile: Profile) -> list[TraceRow] | None:
    if not profile.workload.trace:
        return None
    return [(row.arrival_s, row.prompt_tokens, row.output_tokens) for row in read_rows(Path(profile.workload.trace))]
