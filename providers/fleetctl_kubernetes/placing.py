"""Where the pod of a fleet goes, by its profile, this machine's environment and what is on record."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.environment import STATE_URL
from fleetctl.errors import ConfigError
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl_kubernetes.connection import ClusterConnection
from fleetctl_kubernetes.host_objects import PodPlace
from fleetctl_kubernetes.settings import IMAGE, ClusterSettings
from fleetctl_kubernetes.state_objects import state_place

if TYPE_CHECKING:
    from fleetctl.model.provider_setting import SettingValue
    from fleetctl.ports.host import HostPlace
    from fleetctl.ports.store import StateStore

_SCHEME = "kubernetes://"
_KEY = "pod"
# To connect, and for an answer: a status that comes later than this is none.
_TIMEOUT_S = (2.0, 8.0)


def connection_of(place: HostPlace) -> ClusterConnection:
    """Return the connection to the cluster of a fleet's nodes, as this machine reaches it."""
    settings = ClusterSettings.of_environment().changed_by(place.record.provider.settings)
    recorded = recorded_place(place)
    if recorded is not None:
        settings = replace(settings, namespace=recorded.namespace)
    return ClusterConnection(settings, timeout_s=_TIMEOUT_S)


def recorded_place(place: HostPlace) -> PodPlace | None:
    """Return where the fleet's pod is by the state; None: it was never placed, or is cleaned up."""
    return place_on_record(place.store, place.fleet)


def place_on_record(store: StateStore, fleet: str) -> PodPlace | None:
    """Return the same of a fleet of this state."""
    found = store.find_record(Collection.HEADS, _KEY, fleet=fleet)
    return found.value_as(PodPlace) if found is not None else None


def wanted_place(place: HostPlace, connection: ClusterConnection) -> PodPlace:
    """Return where the pod is to be: the namespace as it was first, the image as the profile says, else as it was first.

    Raises ConfigError for what no pod could be run from.
    """
    before, given, provider = recorded_place(place), place.record.choice.settings, place.record.provider.settings
    image = str(given.get("image", "")) or (before.image if before is not None else os.environ.get(IMAGE, ""))
    if not image:
        raise ConfigError(
            "no image to run controller and gateway from",
            hint=f"build one from the Containerfile, and name it: host.image, or {IMAGE}",
            key=("host", "image"),
        )
    _, namespace, prefix = state_place(_state().removeprefix(_SCHEME))
    return PodPlace(
        namespace=before.namespace if before is not None else connection.namespace,
        image=image,
        account=str(given.get("service_account", "")),
        state_namespace=namespace,
        state_prefix=prefix,
        port=place.record.port,
        gateways=place.record.gateways,
        prometheus=bool(provider.get("prometheus", False)),
        pull_secrets=_texts(given.get("image_pull_secrets")) or _texts(provider.get("image_pull_secrets")),
        tls_secret=place.record.tls.secret if place.record.tls is not None else "",
    )


def keep_place(place: HostPlace, wanted: PodPlace) -> None:
    """Put it on record, where it is another than before."""
    if recorded_place(place) != wanted:
        now = place.clock.now()
        place.store.put_record(StoredRecord.of(Collection.HEADS, _KEY, wanted, at=now, fleet=place.fleet))


def forget_place(place: HostPlace) -> None:
    """Remove the record: nothing of the pod is left."""
    place.store.remove_record(Collection.HEADS, _KEY, fleet=place.fleet)


def state_connection() -> tuple[ClusterConnection, str]:
    """Return the connection to the cluster that the state is in, and its URL. Raises ConfigError where it is in none."""
    context, namespace, _ = state_place(_state().removeprefix(_SCHEME))
    settings = ClusterSettings.of_environment()
    return ClusterConnection(replace(settings, context=context or settings.context, namespace=namespace)), _state()


def _texts(given: SettingValue | None) -> tuple[str, ...]:
    return given if isinstance(given, tuple) else ()


def _state() -> str:
    url = os.environ.get(STATE_URL, "")
    if not url.startswith(_SCHEME):
        where = f"is at {url}" if url else "is this machine's own file"
        raise ConfigError(
            f"the state {where}, which the fleet's pod does not read",
            hint=f"export {STATE_URL}=kubernetes://NAMESPACE (docs/shared-state.md)",
        )
    return url
