"""The demo's own fleet: the packaged quickstart under a name and on a port that are in nobody's way."""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace

from fleetctl.config.use_cases import QUICKSTART
from fleetctl.errors import LockHeldError
from fleetctl.model.profile import Profile
from fleetctl.operations.fleets import recorded
from fleetctl.operations.lifecycle import is_port_free
from fleetctl.operations.profiles import find_profile
from fleetctl.paths import FleetPaths
from fleetctl.state.locks import FileLock

_NAME = "demo"
_DEMOS_MAX = 9  # of one user at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """A demo's claim on its fleet. The lock goes with the process, so a killed demo blocks no later one."""

    profile: Profile
    lock: FileLock
    is_reused: bool  # an earlier demo left it up


def claim(*, port: int | None = None, may_reuse: bool) -> Demo:
    """Claim a fleet name no fleet and no other demo has, or with `may_reuse` one that an earlier demo left up.

    Raises LockHeldError when there are demos enough, UnavailableError when no port is free.
    """
    for number in range(1, _DEMOS_MAX + 1):
        name = _NAME if number == 1 else f"{_NAME}-{number}"
        paths = FleetPaths(fleet=name)
        paths.make()
        lock = FileLock(paths.runtime / "demo.lock", command="fleetctl demo")
        if not lock.try_acquire():
            continue
        left = recorded(name)
        if left is None:
            return Demo(profile=_profile(name, port), lock=lock, is_reused=False)
        if may_reuse:
            return Demo(profile=left.profile, lock=lock, is_reused=True)
        lock.release()
    raise LockHeldError(
        f"{_DEMOS_MAX} demo fleets are up already",
        hint=f"see them with `fleetctl ls`, take one down: fleetctl down {_NAME}",
    )


def _profile(name: str, port: int | None) -> Profile:
    profile = find_profile(QUICKSTART, fleet=name, port=port)
    if port is None and not is_port_free(profile.gateway.host, profile.gateway.port):
        profile = replace(profile, gateway=replace(profile.gateway, port=_free_port(profile.gateway.host)))
    return profile


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
