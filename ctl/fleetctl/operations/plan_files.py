"""Keeps plans in files, sealed: what was approved is what `up --plan` brings up, at what it costs now."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl import codec
from fleetctl.core.plan.lane_cost import machines_usd_per_hour
from fleetctl.core.plan.offers import priced
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.files import write_whole
from fleetctl.model.plan import Plan
from fleetctl.operations.planning import offerings_now

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.catalogue import Offering
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site

PLAN_VERSION = 2
_PLAN_BYTES_MAX = 4 * 1024 * 1024
_AGAIN = "plan again: fleetctl plan PROFILE --out FILE"


class _PlanFile(msgspec.Struct, frozen=True, kw_only=True):
    """A saved plan, with the version of its shape and the digest of its content."""

    version: int
    seal: str
    plan: Any


class _Header(msgspec.Struct, frozen=True):
    """What every version of the file begins with."""

    version: int


def save_plan(plan: Plan, path: Path) -> None:
    """Write a plan to a file, whole or not at all. Raises ConfigError when the place cannot be written."""
    content = codec.to_plain(plan)
    file = _PlanFile(version=PLAN_VERSION, seal=_seal(content), plan=content)
    raw = msgspec.json.format(codec.encode(file), indent=2) + b"\n"
    try:
        write_whole(path, raw, mode=0o644)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


def load_plan(path: Path) -> Plan:
    """Return a saved plan. Raises NotFoundError, and ConfigError for a damaged or edited file or another version's."""
    if not path.is_file():
        raise NotFoundError(f"no plan at {path}", hint="save one: fleetctl plan PROFILE --out FILE")
    try:
        if path.stat().st_size > _PLAN_BYTES_MAX:
            raise ConfigError(f"{path}: is too large to be a plan", hint=_AGAIN)
        return _unsealed(path, path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not a saved plan, or is damaged: {error}", hint=_AGAIN) from error


async def price_now(site: Site, profile: Profile, plan: Plan) -> Plan:
    """Return a saved plan at what its provider asks now; a cap is held against this, not against what the file says.

    Raises ConfigError where one of its offerings is no longer sold, and ProviderError.
    """
    on_offer = priced(await offerings_now(site, profile.provider_choice), profile.capacity)
    sold = {offering.key: offering for offering in on_offer}
    lanes = tuple(_priced(lane, sold) for lane in plan.lanes)
    cost = sum(lane.cost_usd_per_hour for lane in lanes) + plan.head_usd_per_hour
    factor = cost / plan.cost_usd_per_hour if plan.cost_usd_per_hour else 1.0
    return replace(
        plan, lanes=lanes, cost_usd_per_hour=cost, cost_usd_per_1m_tokens=plan.cost_usd_per_1m_tokens * factor
    )


def _priced(lane: LanePlan, sold: dict[str, Offering]) -> LanePlan:
    offering = _still_sold(lane.offering, sold)
    spot = _still_sold(lane.spot_offering, sold) if lane.spot_offering is not None else None
    mix = tuple(replace(each, offering=_still_sold(each.offering, sold)) for each in lane.mix)
    at_these = replace(lane, offering=offering, spot_offering=spot, mix=mix)
    cost = machines_usd_per_hour(at_these, on_demand=lane.on_demand, spot=lane.spot)
    factor = cost / lane.cost_usd_per_hour if lane.cost_usd_per_hour else 1.0
    return replace(
        lane,
        offering=offering,
        spot_offering=spot,
        mix=mix,
        cost_usd_per_hour=cost,
        cost_usd_per_1m_tokens=lane.cost_usd_per_1m_tokens * factor,
    )


def _still_sold(offering: Offering, sold: dict[str, Offering]) -> Offering:
    try:
        return sold[offering.key]
    except KeyError:
        raise ConfigError(f"the plan's offering {offering.key} is no longer sold", hint=_AGAIN) from None


def _unsealed(path: Path, raw: bytes) -> Plan:
    version = codec.decode(_Header, raw).version
    if version != PLAN_VERSION:
        raise ConfigError(
            f"{path}: was written in plan format {version}, and this fleetctl reads {PLAN_VERSION}", hint=_AGAIN
        )
    file = codec.decode(_PlanFile, raw)
    if file.seal != _seal(file.plan):
        raise ConfigError(
            f"{path}: was changed after it was saved: its seal does not fit what it says",
            hint=f"a plan is made, not edited: change the profile and {_AGAIN}",
        )
    return codec.from_plain(Plan, file.plan)


def _seal(content: object) -> str:
    """Return the sha256 of a plan's content as canonical JSON: keys sorted, nothing between them."""
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()
