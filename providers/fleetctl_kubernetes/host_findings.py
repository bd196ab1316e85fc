"""What would keep a fleet's controller and gateway from being placed in a cluster; nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.catalogue.kubernetes_rights import HOST_ACCOUNT_RIGHTS, HOST_CLUSTER_RIGHTS, HOST_RIGHTS, HOST_WAYS
from fleetctl.errors import FleetctlError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_kubernetes import placing
from fleetctl_kubernetes.host_objects import HostObjects
from fleetctl_kubernetes.reviews import may_now

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.ports.host import HostPlace
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.host_objects import PodPlace

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Of the pod's own view: a gateway on this machine's port, and policies that take this machine for the engines' client.
_OF_HERE = ("gateway", "network policy")


def host_findings(place: HostPlace, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the provider's findings that hold from the pod as well, and those on the pod."""
    kept = tuple(each for each in found if each.name not in _OF_HERE)
    try:
        connection = placing.connection_of(place)
        return (*kept, *_findings(place, connection))
    except FleetctlError as exc:
        return (*kept, _failed("host", exc.message, exc.hint))


def _findings(place: HostPlace, connection: ClusterConnection) -> Iterator[Finding]:
    if place.record.provider.name != "kubernetes":
        hint = "write `provider: kubernetes`, or leave `host` out"
        yield _failed(
            "host", f"provider {place.record.provider.name} starts no pods: a pod cannot keep its nodes", hint
        )
        return
    if outside := [name for name in ("kubeconfig", "context") if place.record.provider.settings.get(name)]:
        hint = f"leave {' and '.join(outside)} out of the profile: KUBECONFIG and FLEETCTL_KUBE_CONTEXT say it for a machine"
        yield _failed("host", f"provider.{outside[0]} is of a machine outside, and the pod has its account", hint)
    if place.record.address in _LOOPBACK:
        hint = "write `gateway: {host: 0.0.0.0, api_keys: [env:NAME]}` in the profile"
        yield _failed(
            "gateway", f"it listens on {place.record.address}, where nothing outside its pod reaches it", hint
        )
    wanted = placing.wanted_place(place, connection)
    HostObjects(connection, owner=place.store.owner, fleet=place.fleet).refuse_strangers(wanted)
    state, url = placing.state_connection()
    here, there = (each.client().configuration.host for each in (connection, state))
    if here != there:
        hint = "keep the state in the cluster of the fleet (docs/shared-state.md)"
        yield _failed("state", f"{url} is at {there}, and the fleet's pod will be at {here}", hint)
    detail = (
        f"controller and {_counted(wanted.gateways)} in {wanted.namespace}, each in a pod of its own, from {wanted.image}; "
        "engines are reached from these alone"
    )
    yield Finding(name="host", verdict=Verdict.OK, detail=detail)
    if not place.record.provider.settings.get("namespace"):
        hint = (
            "write `provider: {kind: kubernetes, namespace: NAME}`: replicas' logs are looked for in each machine's own"
        )
        detail = f"{wanted.namespace}, by this machine's variables or context, which another's may not agree with"
        yield Finding(name="namespace of all", verdict=Verdict.WARN, detail=detail, hint=hint)
    yield _rights(connection, wanted)
    yield _ways(connection, wanted.namespace)


def _rights(connection: ClusterConnection, wanted: PodPlace) -> Finding:
    of_namespace = (*HOST_RIGHTS, *(() if wanted.account else HOST_ACCOUNT_RIGHTS))
    lacking = [f"{verb} {what}" for verb, what in of_namespace if not may_now(connection, verb, what, wanted.namespace)]
    if not wanted.account:
        lacking += [
            f"{verb} {what} (cluster)" for verb, what in HOST_CLUSTER_RIGHTS if not may_now(connection, verb, what, "")
        ]
    if lacking:
        hint = "have them granted, or have somebody make the account: host.service_account (docs/kubernetes.md)"
        return _failed("host rights", f"not allowed: {', '.join(lacking)}", hint)
    return Finding(name="host rights", verdict=Verdict.OK, detail="all that placing controller and gateway takes")


def _ways(connection: ClusterConnection, namespace: str) -> Finding:
    allowed = [f"{verb} {what}" for verb, what in HOST_WAYS if may_now(connection, verb, what, namespace)]
    if not allowed:
        hint = f"have one of them granted: {', '.join(f'{verb} {what}' for verb, what in HOST_WAYS)}"
        detail = "none: commands see what is on record, and what they write takes effect with the next tick"
        return Finding(name="way to the pod", verdict=Verdict.WARN, detail=detail, hint=hint)
    return Finding(name="way to the pod", verdict=Verdict.OK, detail=", ".join(allowed))


def _counted(gateways: int) -> str:
    return "gateway" if gateways == 1 else f"{gateways} gateways"


def _failed(name: str, detail: str, hint: str) -> Finding:
    return Finding(name=name, verdict=Verdict.FAIL, detail=detail, hint=hint or "see docs/kubernetes.md")
