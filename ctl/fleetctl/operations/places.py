"""Whether this shell's credentials lead to where a fleet's nodes are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleetctl.controller.place import known_place, live_nodes, place_conflict
from fleetctl.errors import FleetctlError, ProviderError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl.operations.commands import holds_nodes

if TYPE_CHECKING:
    from fleetctl.model.node_place import NodePlace
    from fleetctl.model.profile import Profile
    from fleetctl.operations.site import Site

PLACE = "place"  # the finding's name: a failure refuses even an `up` that creates nothing


async def place_findings(site: Site, profile: Profile) -> tuple[Finding, ...]:
    """Return a failure where they lead elsewhere, a warning where that cannot be read, else nothing.

    An `up` from there would have the fleet kept from there: its controller starts with what this shell has.
    """
    fleet = profile.name
    if not holds_nodes(site, fleet) or (known := known_place(site.store, fleet)) is None:
        return ()
    try:
        conflict = await _conflict(site, profile, known)
    except FleetctlError as exc:
        hint = exc.hint or "whether nodes are found shows once the fleet is kept"
        detail = f"where these credentials lead is not known: {exc.message}"
        return (Finding(name=PLACE, verdict=Verdict.WARN, detail=detail, hint=hint),)
    if conflict is None:
        return ()
    hint = f"mend what leads there: {known.chosen_by}; or take the fleet down from where its nodes are seen"
    return (Finding(name=PLACE, verdict=Verdict.FAIL, detail=conflict.message, hint=hint),)


async def _conflict(site: Site, profile: Profile, known: NodePlace) -> FleetctlError | None:
    provider, fleet = site.provider_of(profile), profile.name
    places = provider.capabilities.places
    if places is None:
        return None
    try:
        async with asyncio.timeout(provider.pace.preflight_deadline_s):
            found = await places.place()
            nodes = live_nodes(site.store.replicas(fleet))
            return await place_conflict(provider, found, known, owner=site.store.owner, fleet=fleet, nodes=nodes)
    except TimeoutError as exc:
        raise ProviderError(f"{provider.name} did not say within {provider.pace.preflight_deadline_s:g} s") from exc
