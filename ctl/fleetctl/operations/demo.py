"""The demo's own fleet: the packaged quickstart under a name and on a port that are in nobody's way."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.config.use_cases import QUICKSTART
from fleetctl.errors import LockHeldError, UnavailableError
from fleetctl.model.profile import Profile
from fleetctl.operations.profiles import find_profile

if TYPE_CHECKING:
    from fleetctl.operations.site import Site

_NAME = "demo"
_DEMOS_MAX = 9  # of one user at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """A demo's claim on its fleet. The claim goes with the process, so a killed demo blocks no later one."""

    profile: Profile
    claim: ExitStack  # closed when the demo is over
    is_reused: bool  # an earlier demo left it up


def claim_demo(site: Site, *, port: int | None = None, may_reuse: bool) -> Demo:
    """Claim a fleet name no fleet and no other demo has, or with `may_reuse` one that an earlier demo left up.

    Raises LockHeldError when there are demos enough, UnavailableError when no port is free.
    """
    for number in range(1, _DEMOS_MAX + 1):
        name = _NAME if number == 1 else f"{_NAME}-{number}"
        claim = ExitStack()
        try:
            claim.enter_context(site.host.exclusive(name, operation="demo", wait_s=0.0))
        except LockHeldError:
            continue  # another demo's
        earlier = site.store.fleet(name)
        if earlier is None:
            return Demo(profile=_profile(site, name, port), claim=claim, is_reused=False)
        if may_reuse:
            return Demo(profile=earlier.profile, claim=claim, is_reused=True)
        claim.close()
    raise LockHeldError(
        f"{_DEMOS_MAX} demo fleets are up already",
        hint=f"see them with `fleetctl ls`, take one down: fleetctl down {_NAME}",
    )


def _profile(site: Site, name: str, port: int | None) -> Profile:
    profile = find_profile(QUICKSTART, fleet=name, port=port)
    if port is not None:
        return profile
    try:
        site.host.check_port(profile.gateway.host, profile.gateway.port)
    except UnavailableError:
        return replace(profile, gateway=replace(profile.gateway, port=site.host.free_port(profile.gateway.host)))
    return profile
