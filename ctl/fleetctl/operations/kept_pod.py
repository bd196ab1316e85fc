"""What the pod of a fleet does whose host is the cluster: it keeps controller and gateway by the state, and answers commands."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fleetctl.catalogue.kubernetes_parts import ENVIRONMENT_FILE, POD_ADDRESS, POD_PORT, POD_SECRETS, TOKEN_FILE
from fleetctl.codec import decode
from fleetctl.environment import FleetEnvironment, controller_environment
from fleetctl.errors import FleetctlError, StateError
from fleetctl.operations.control_endpoint import ControlEndpoint
from fleetctl.operations.staying import keep, leave

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleetctl.operations.site import Site

_log = logging.getLogger("fleetctl.pod")
# A round starts a controller and waits for its first word at most so long, and asks the state with its own deadline.
_STILL_S = 120.0
_LEAVE_S = 12.0
_LOOPBACK = "127.0.0.1"  # where a port-forward ends
_DECLARED = ("FLEETCTL_*", "KUBECONFIG", "KUBERNETES_SERVICE_*")


def keep_pod(site: Site, fleet: str, *, environ: Mapping[str, str], waits: Callable[[float], bool]) -> None:
    """Keep the fleet until `waits(seconds)` returns that we are to go; answer commands meanwhile.

    The pod's environment says where, and in which directory the fleet's variables and the token of its commands lie.
    """
    secrets = Path(environ[POD_SECRETS])
    upkeep = _PodUpkeep(site, fleet, secrets, environ, waits)
    endpoint = ControlEndpoint(site, fleet, token=secrets / TOKEN_FILE, is_alive=upkeep.is_turning)
    endpoint.start((environ[POD_ADDRESS], _LOOPBACK), int(environ[POD_PORT]))
    try:
        keep(site, fleet, waits=upkeep)
        leave(site, fleet, within_s=_LEAVE_S)
    finally:
        endpoint.close()


class _PodUpkeep:
    """Waits between two looks at the fleet, and keeps its environment meanwhile."""

    def __init__(
        self, site: Site, fleet: str, secrets: Path, environ: Mapping[str, str], waits: Callable[[float], bool]
    ) -> None:
        self._site = site
        self._fleet = fleet
        self._secrets = secrets
        self._own = controller_environment(environ, declared=_DECLARED)
        self._waits = waits
        self._turned_s = site.clock.monotonic_s()
        self._kept: FleetEnvironment | None = None

    def __call__(self, seconds: float) -> bool:
        """Return whether we are to go, after that long; no controller is started without what it is to be started with."""
        while True:
            self._turned_s = self._site.clock.monotonic_s()
            try:
                self._keep_environment()
            except FleetctlError as exc:
                _log.error("%s", exc.message)  # tried again with the next look
            if self._waits(seconds):
                return True
            if self._kept is not None:
                return False

    def is_turning(self) -> bool:
        """Whether the last look at the fleet was not long ago."""
        return self._site.clock.monotonic_s() - self._turned_s < _STILL_S

    def _keep_environment(self) -> None:
        """Have what `up` recorded on this machine, with the pod's own settings."""
        path = self._secrets / ENVIRONMENT_FILE
        try:
            sent = decode(FleetEnvironment, path.read_bytes())
        except (OSError, msgspec.MsgspecError) as exc:
            raise StateError(f"the environment of {self._fleet} cannot be read", hint="`up` writes it anew") from exc
        kept = FleetEnvironment(inherited={**self._own, **sent.inherited}, variables=sent.variables)
        if kept != self._kept:
            self._site.host.keep_environment(self._fleet, kept)
            self._kept = kept
