"""What tiers, lanes and keys of one profile can get wrong together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from fleetctl.config.faults import ProfileFault
from fleetctl.config.fields import share_of
from fleetctl.model.slo import Metric
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.errors import KeyPath

_ROUNDING = 1e-9


def tier_faults(tiers: dict[str, Any], lanes: dict[str, Any], gateway: dict[str, Any]) -> Iterator[ProfileFault]:
    """Yield the faults between tiers and what refers to them. Reads the raw tree, faulty sections and all."""
    names = [str(name) for name in tiers]
    for name, lane in lanes.items():
        yield from _unknown(("lanes", name, "tier"), lane.get("tier"), names)
    given = gateway.get("api_keys")
    keys = given if isinstance(given, list) else []
    for index, key in enumerate(keys):
        if isinstance(key, dict):
            yield from _unknown(("gateway", "api_keys", index, "tier"), key.get("tier"), names)
    yield from _name_faults(keys)
    yield from _header_faults(gateway, keys, names)
    yield from _floor_faults(tiers)
    for name, tier in tiers.items():
        if isinstance(tier, dict):
            yield from _slo_faults(str(name), tier.get("slo"), lanes)
            yield from _budget_faults(str(name), tier.get("slo"), lanes)


def _unknown(path: KeyPath, tier: object, names: list[str]) -> Iterator[ProfileFault]:
    """Name a tier that the profile does not have."""
    if not isinstance(tier, str) or tier in names:
        return
    if not names:
        yield ProfileFault(path=path, message=f"there are no tiers; declare it: tiers: {{{tier}: {{weight: 1}}}}")
        return
    message = f"no tier is called {tier!r}{suggest(tier, names)}; tiers: {', '.join(names)}"
    yield ProfileFault(path=path, message=message)


def _budget_faults(name: str, slo: object, lanes: dict[str, Any]) -> Iterator[ProfileFault]:
    """Name a TTFT promise of a tier's own where a lane says what of its own passes before the gateway: that one has no such part."""
    if not isinstance(slo, dict) or "ttft" not in slo:
        return
    budgeted = [str(lane) for lane, section in lanes.items() if section.get("ttft_budget")]
    if budgeted:
        message = f"stands in place of the promise of lane {budgeted[0]}, whose ttft_budget takes a part of it; leave one of them out"
        yield ProfileFault(path=("tiers", name, "slo", "ttft"), message=message)


def _name_faults(keys: list[Any]) -> Iterator[ProfileFault]:
    """Name the keys that figures could not tell apart."""
    names = [key.get("name") if isinstance(key, dict) else None for key in keys]
    counts = Counter(name for name in names if isinstance(name, str))
    for index, name in enumerate(names):
        if isinstance(name, str) and counts[name] > 1 and name in names[:index]:
            message = f"another key is called {name!r}: their figures would be one; give each a name of its own"
            yield ProfileFault(path=("gateway", "api_keys", index, "name"), message=message)


def _header_faults(gateway: dict[str, Any], keys: list[Any], names: list[str]) -> Iterator[ProfileFault]:
    if gateway.get("tier_header") is not True:
        return
    path = ("gateway", "tier_header")
    if not names:
        yield ProfileFault(path=path, message="there are no tiers to choose from; declare them under tiers")
    elif not keys:
        message = "needs api_keys: without one, nothing says which tier a request may have; give each key its tier"
        yield ProfileFault(path=path, message=message)


def _floor_faults(tiers: dict[str, Any]) -> Iterator[ProfileFault]:
    floors = {str(name): _share(tier.get("floor")) for name, tier in tiers.items() if isinstance(tier, dict)}
    total = sum(floors.values())
    if total > 1.0 + _ROUNDING:
        parts = " + ".join(f"{name} {floor:.4g}" for name, floor in floors.items() if floor)
        message = f"their floors are {total:.4g} of a lane's tokens together ({parts}): no more than 1 can be had"
        yield ProfileFault(path=("tiers",), message=message)


def _share(value: object) -> float:
    """Return a share; 0 for what is none, which is a fault of its own."""
    try:
        return share_of(value)
    except ValueError:
        return 0.0


def _slo_faults(name: str, slo: object, lanes: dict[str, Any]) -> Iterator[ProfileFault]:
    """Name the promises to a tier that no lane measures."""
    if not isinstance(slo, dict) or not lanes:
        return
    promised = {key for lane in lanes.values() if isinstance(lane.get("slo"), dict) for key in lane["slo"]}
    for key in slo:
        if key in list(Metric) and key not in promised:
            message = f"no lane promises {key}, so nothing is held to it; promise it in a lane, or leave it out here"
            yield ProfileFault(path=("tiers", name, "slo", key), message=message)
