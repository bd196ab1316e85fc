"""The objects of a fleet's gateways as its controller keeps them: looked for by name, and made again from the place on record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.catalogue.kubernetes_parts import ENVIRONMENT_FILE, GATEWAY_TOKEN_FILE, TOKEN_FILE
from fleetctl.errors import FleetctlError, ProviderError
from fleetctl_kubernetes import placing
from fleetctl_kubernetes.connection import ClusterConnection
from fleetctl_kubernetes.gateway_pods import PodGatewayHost
from fleetctl_kubernetes.host_objects import HostObjects
from fleetctl_kubernetes.pod_states import refusal
from fleetctl_kubernetes.recent_warnings import RecentWarnings
from fleetctl_kubernetes.settings import ClusterSettings

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.clock import Clock
    from fleetctl.ports.store import StateStore
    from fleetctl_kubernetes.connection import Object
    from fleetctl_kubernetes.gateway_pods import GatewayPods
    from fleetctl_kubernetes.host_objects import PodPlace

_TIMEOUT_S = (2.0, 8.0)  # to connect, and for an answer
_KEPT = "objects"  # what a warning is about


class PlacedFleetObjects:
    """Those of one fleet, as they are reached from its controller's pod.

    What is there is left as it is, edited or not: an `up` of another version of fleetctl may have applied it.
    """

    def __init__(self, fleet: str, secrets: Path, clock: Clock) -> None:
        self._fleet = fleet
        self._secrets = secrets  # where the fleet's Secret is mounted: what was in it stays there when it is deleted
        self._connection = ClusterConnection(ClusterSettings.of_environment(), timeout_s=_TIMEOUT_S)
        self._warnings = RecentWarnings(clock)
        self._owner = ""
        self._place: PodPlace | None = None
        self._absent: list[Object] = []

    def read_place(self, store: StateStore) -> bool:
        """Take in where the fleet is placed, and whose it is; return whether it is anywhere."""
        self._owner, self._place = store.owner, placing.place_on_record(store, self._fleet)
        return self._place is not None

    def lacking(self) -> tuple[str, ...]:
        """Return what is not there, by kind and name. Raises ProviderError."""
        self._absent = []
        if self._place is not None:
            try:
                found = self._objects.of_gateways(self._place)
            except FleetctlError as exc:
                self._warn(f"Service, Deployment and policies of its gateways are not looked after: {exc.message}")
                raise
            self._absent = [wanted for wanted, there in found if there is None]
            for wanted, there in found:
                if there is not None and wanted["kind"] == "Deployment":
                    self._warn_of_deployment(wanted, there)
        return tuple(_named(each) for each in self._absent)

    def restore(self, lacking: tuple[str, ...]) -> None:
        """Make these anew. Raises FleetctlError of the first that cannot be made; the others are made all the same."""
        failures: list[FleetctlError] = []
        for body in (each for each in self._absent if _named(each) in lacking):
            try:
                self._objects.restore(body, self._mounted() if body["kind"] == "Secret" else {})
            except FleetctlError as exc:
                failures.append(exc)
                self._warn(f"{_named(body)} is gone, and cannot be made again: {exc.message}")
            else:
                self._warn(f"{_named(body)} was gone, and is made again")
        if failures:
            raise failures[0]

    def warnings(self) -> tuple[str, ...]:
        """Return what was so lately."""
        return self._warnings.of_fleet((self._owner, self._fleet))

    def _warn_of_deployment(self, wanted: Object, there: Object) -> None:
        """Say why it has fewer pods than it is to have: they are refused, or somebody has scaled it down."""
        if (refused := refusal(there)) is not None:
            self._warn(f"{refused.text}; {refused.hint}")
        count, meant = int(there["spec"].get("replicas", 1)), int(wanted["spec"]["replicas"])
        if count < meant:
            self._warn(f"{_named(wanted)} is scaled to {count} of {meant}: `fleetctl up` scales it back")

    @property
    def _objects(self) -> HostObjects:
        return HostObjects(self._connection, owner=self._owner, fleet=self._fleet)

    def _mounted(self) -> dict[str, bytes]:
        """Return what the Secret had. Raises ProviderError."""
        try:
            return {
                name: (self._secrets / name).read_bytes() for name in (TOKEN_FILE, GATEWAY_TOKEN_FILE, ENVIRONMENT_FILE)
            }
        except OSError as exc:
            raise ProviderError(
                f"what the Secret had cannot be read: {exc.strerror}", hint="`fleetctl up` makes another"
            ) from exc

    def _warn(self, message: str) -> None:
        self._warnings.say((self._owner, self._fleet), f"{_KEPT}/{message.partition(':')[0]}", message)


class PlacedGatewayHost(PodGatewayHost):
    """Implements GatewayHost, RemoteGateways and PlacedObjects."""

    def __init__(self, pods: GatewayPods, objects: PlacedFleetObjects) -> None:
        super().__init__(pods)
        self._objects = objects
        self.read_place = objects.read_place
        self.lacking = objects.lacking
        self.restore = objects.restore

    def warnings(self) -> tuple[str, ...]:
        """Return what was lacking lately, and why gateways' pods do not start."""
        return (*self._objects.warnings(), *self._pods.unstarted)


def _named(body: Object) -> str:
    return f"{body['kind']} {body['metadata']['name']}"
