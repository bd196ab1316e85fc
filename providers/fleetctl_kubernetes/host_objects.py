"""The objects of a fleet whose controller and gateway are kept in the cluster: applied, compared by a digest, deleted."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.catalogue import kubernetes_parts as parts
from fleetctl.catalogue.kubernetes_rights import STATE_RIGHTS
from fleetctl.environment import ON_HEAD, STATE_URL
from fleetctl.errors import ProviderError
from fleetctl_kubernetes.connection import ConflictError, NotThereError
from fleetctl_kubernetes.lane_objects import holds
from fleetctl_kubernetes.settings import FLEET, HOST, MANAGED_BY, MANAGER, NAMESPACE, OWNER, label_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleetctl_kubernetes.connection import ClusterConnection

Object = dict[str, Any]
_APPLY = "application/apply-patch+yaml"
_DIGEST = "fleetctl.dev/applied"
_SECRETS_AT = "/etc/fleetctl"
_CONTROL_PORT = 9470


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlace:
    """Where a fleet's pod is, and what it is; on record with the fleet, so that every machine means the same."""

    namespace: str
    image: str
    account: str = ""  # that somebody else made; empty: one is made
    state_namespace: str
    state_prefix: str = ""
    port: int  # of the gateway

    @property
    def control_port(self) -> int:
        """The port that commands ask the pod at."""
        return _CONTROL_PORT if self.port != _CONTROL_PORT else _CONTROL_PORT + 1

    @property
    def state_url(self) -> str:
        """The state's URL as it is in the pod: of the cluster that it is in."""
        return f"kubernetes:///{self.state_namespace}/{self.state_prefix}".rstrip("/")


class _PlacedKind(NamedTuple):
    kind: str
    api: str  # the client's class
    verb: str  # what its methods end in
    is_namespaced: bool = True


_SECRET = _PlacedKind("Secret", "CoreV1Api", "secret")
_DEPLOYMENT = _PlacedKind("Deployment", "AppsV1Api", "deployment")
# In the order in which they are applied; deleted in the other.
_KINDS = (
    _PlacedKind("ServiceAccount", "CoreV1Api", "service_account"),
    _PlacedKind("ClusterRole", "RbacAuthorizationV1Api", "cluster_role", is_namespaced=False),
    _PlacedKind("ClusterRoleBinding", "RbacAuthorizationV1Api", "cluster_role_binding", is_namespaced=False),
    _PlacedKind("Role", "RbacAuthorizationV1Api", "role"),
    _PlacedKind("RoleBinding", "RbacAuthorizationV1Api", "role_binding"),
    _SECRET,
    _PlacedKind("Service", "CoreV1Api", "service"),
    _DEPLOYMENT,
)
_BY_NAME = {each.kind: each for each in _KINDS}


class HostObjects:
    """The objects of one fleet of one state."""

    def __init__(self, connection: ClusterConnection, *, owner: str, fleet: str) -> None:
        self._connection = connection
        self._owner = owner
        self._fleet = fleet
        self.name = f"{fleet}-fleetctl"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all of them; those of lanes' objects are others, since those come and go with pods."""
        return {MANAGED_BY: MANAGER, OWNER: label_value(self._owner), HOST: label_value(self._fleet)}

    @property
    def pod_labels(self) -> dict[str, str]:
        """The labels that the Deployment finds its pod by."""
        return {"app.kubernetes.io/name": "fleetctl", HOST: label_value(self._fleet), OWNER: label_value(self._owner)}

    def environment(self, place: PodPlace) -> bytes:
        """Return what the pod is given of `up`'s shell; empty: nothing is kept. Raises ProviderError."""
        found = self._found(_SECRET, self.name, place.namespace)
        return base64.b64decode(((found or {}).get("data") or {}).get(parts.ENVIRONMENT_FILE, ""))

    def keep_environment(self, place: PodPlace, content: bytes) -> None:
        """Have it in the fleet's Secret, and a token of its own beside it, made once. Raises ProviderError."""
        metadata = {"name": self.name, "namespace": place.namespace, "labels": self.labels}
        head: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        if self._found(_SECRET, self.name, place.namespace) is None:
            token = {parts.TOKEN_FILE: secrets.token_urlsafe(32)}
            with suppress(ConflictError):  # another machine made one just now
                self._connection.call(
                    "CoreV1Api",
                    "create_namespaced_secret",
                    place.namespace,
                    {**head, "stringData": token},
                    changes=True,
                )
        self._apply(_SECRET, {**head, "stringData": {parts.ENVIRONMENT_FILE: content.decode()}})

    def is_applied(self, place: PodPlace) -> bool:
        """Whether the Deployment was applied with all else as it is to be, and is as it was applied. Raises ProviderError."""
        found = self._found(_DEPLOYMENT, self.name, place.namespace)
        if found is None:
            return False
        wanted = self._wanted(place)
        annotations = found["metadata"].get("annotations") or {}
        return annotations.get(_DIGEST) == _digest(wanted) and holds(found, wanted[-1])

    def apply(self, place: PodPlace) -> None:
        """Have every object as it should be. Raises ProviderError, also where one of these names is somebody else's."""
        self.refuse_strangers(place)
        wanted = self._wanted(place)
        wanted[-1]["metadata"]["annotations"] = {_DIGEST: _digest(wanted)}
        for body in wanted:
            self._apply(_BY_NAME[body["kind"]], body)

    def refuse_strangers(self, place: PodPlace) -> None:
        """Raise ProviderError where one of the names is somebody else's."""
        for body in self._named(place):
            self._found(_BY_NAME[body["kind"]], body["metadata"]["name"], body["metadata"].get("namespace", ""))

    def delete_pod(self, place: PodPlace) -> bool:
        """Have the Deployment deleted, its pod with it; return whether both are seen gone. Raises ProviderError."""
        self._delete(_DEPLOYMENT, self.name, place.namespace)
        chosen = ",".join(f"{name}={value}" for name, value in self.pod_labels.items())
        found = self._connection.call("CoreV1Api", "list_namespaced_pod", place.namespace, label_selector=chosen)
        return not found.get("items")

    def delete(self, place: PodPlace) -> None:
        """Have all the others deleted. Raises ProviderError."""
        bodies = [
            *self._wanted(place),
            {"kind": "Secret", "metadata": {"name": self.name, "namespace": place.namespace}},
        ]
        for body in reversed(bodies):
            self._delete(_BY_NAME[body["kind"]], body["metadata"]["name"], body["metadata"].get("namespace", ""))

    def _named(self, place: PodPlace) -> list[Object]:
        """Return every object by kind and name."""
        return [*self._wanted(place), {"kind": "Secret", "metadata": self._metadata(self.name, place.namespace)}]

    def _wanted(self, place: PodPlace) -> list[Object]:
        """Return every object but the Secret, the Deployment last."""
        found = [*([] if place.account else self._account(place))]
        spec = parts.service_spec(self.pod_labels, port=place.port)
        found += [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": self._metadata(self.name, place.namespace),
                "spec": spec,
            },
            parts.named(self._deployment(place), self._metadata(self.name, place.namespace)),
        ]
        return found

    def _account(self, place: PodPlace) -> Iterator[Object]:
        """Yield the account and what it may do: in the fleet's namespace, in the state's, of the cluster."""
        here, of_cluster = place.namespace, f"{place.namespace}-{self.name}"
        shared = place.state_namespace == here
        rights = (*parts.IN_NAMESPACE, *(STATE_RIGHTS if shared else ()))
        roles = [(here, self.name, rights)]
        if not shared:
            roles.append((place.state_namespace, of_cluster, STATE_RIGHTS))
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self._metadata(self.name, here)}
        for namespace, name, granted in roles:
            metadata = self._metadata(name, namespace)
            yield {"apiVersion": parts.RBAC, "kind": "Role", "metadata": metadata, "rules": parts.role_rules(granted)}
            yield parts.named(parts.binding("RoleBinding", "Role", name, self.name, here), metadata)
        metadata = self._metadata(of_cluster, "")
        yield {"apiVersion": parts.RBAC, "kind": "ClusterRole", "metadata": metadata, "rules": parts.cluster_rules()}
        yield parts.named(parts.binding("ClusterRoleBinding", "ClusterRole", of_cluster, self.name, here), metadata)

    def _deployment(self, place: PodPlace) -> Object:
        variables = {
            ON_HEAD: "1", STATE_URL: place.state_url, NAMESPACE: place.namespace, parts.POD_SECRETS: _SECRETS_AT,
            parts.POD_ADDRESS: "field:status.podIP", parts.POD_PORT: str(place.control_port),
        }  # fmt: skip
        container = parts.container(
            place.image, ["python", "-m", "fleetctl.cli.pod", self._fleet], variables=variables, port=place.port,
            mounts=[
                {"name": "state", "mountPath": parts.HOME},
                {"name": "secrets", "mountPath": _SECRETS_AT, "readOnly": True},
            ],
        )  # fmt: skip
        container["ports"].append({"name": "control", "containerPort": place.control_port})
        # Controller and gateway watch each other, and what keeps them watches both: this is about that one alone.
        container["livenessProbe"] = {
            "httpGet": {"path": parts.LIVEZ, "port": "control"}, "initialDelaySeconds": 15, "periodSeconds": 10,
            "timeoutSeconds": 5, "failureThreshold": 6,
        }  # fmt: skip
        return parts.deployment(
            container,
            selector=self.pod_labels,
            labels={"app.kubernetes.io/component": "gateway", FLEET: label_value(self._fleet)},
            annotations=self._of_secrets(place),
            account=place.account or self.name,
            volumes=[
                {"name": "state", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "secrets", "secret": {"secretName": self.name, "defaultMode": 0o440}},
            ],
        )

    def _of_secrets(self, place: PodPlace) -> dict[str, str]:
        """Return what tells the pod's Secret from another: a new one is a new pod, whose processes read it as they start."""
        found = self._found(_SECRET, self.name, place.namespace) or {}
        content = json.dumps(found.get("data") or {}, sort_keys=True)  # its token makes what is hashed unknown
        return {"fleetctl.dev/environment": hashlib.sha256(content.encode()).hexdigest()[:16]}

    def _metadata(self, name: str, namespace: str) -> Object:
        return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": self.labels}

    def _found(self, kind: _PlacedKind, name: str, namespace: str) -> Object | None:
        """Return an object. Raises ProviderError where it is somebody else's."""
        try:
            found = self._connection.call(kind.api, _method("read", kind), name, *_place(kind, namespace))
        except NotThereError:
            return None
        labels: Mapping[str, str] = found["metadata"].get("labels") or {}
        if self.labels.items() - labels.items():
            where = f" in {namespace}" if namespace else ""
            raise ProviderError(
                f"{kind.kind} {name}{where} is somebody else's",
                hint="nothing of it was touched: remove it, or give the fleet another name",
            )
        return found

    def _apply(self, kind: _PlacedKind, body: Object) -> None:
        metadata = body["metadata"]
        place = _place(kind, metadata.get("namespace", ""))
        self._connection.call(
            kind.api, _method("patch", kind), metadata["name"], *place, body,
            changes=True, field_manager=MANAGER, force=True, _content_type=_APPLY,
        )  # fmt: skip

    def _delete(self, kind: _PlacedKind, name: str, namespace: str) -> None:
        try:
            found = self._found(kind, name, namespace)
        except ProviderError as exc:
            if "somebody else's" in exc.message:
                return  # it stays as it is
            raise
        if found is None or "deletionTimestamp" in found["metadata"]:
            return
        body = {"preconditions": {"uid": found["metadata"]["uid"]}, "propagationPolicy": "Background"}
        with suppress(NotThereError, ConflictError):  # it has gone meanwhile
            place = _place(kind, namespace)
            self._connection.call(kind.api, _method("delete", kind), name, *place, body=body, changes=True)


def _method(verb: str, kind: _PlacedKind) -> str:
    return f"{verb}_namespaced_{kind.verb}" if kind.is_namespaced else f"{verb}_{kind.verb}"


def _place(kind: _PlacedKind, namespace: str) -> tuple[str, ...]:
    return (namespace,) if kind.is_namespaced else ()


def _digest(wanted: list[Object]) -> str:
    kept = [{**each, "metadata": {**each["metadata"], "annotations": {}}} for each in wanted]
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:24]
