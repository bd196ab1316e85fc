"""The objects of a fleet whose controller and gateways are kept in the cluster: applied, compared by a digest, deleted."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fleetctl.catalogue import kubernetes_parts as parts
from fleetctl.catalogue.kubernetes_rights import STATE_RIGHTS, UPKEEP_RIGHTS
from fleetctl.environment import ON_HEAD, ON_HOST, STATE_URL
from fleetctl.errors import ProviderError
from fleetctl.model.gateway_process import LIVEZ, READYZ
from fleetctl_kubernetes.connection import ConflictError, NotThereError
from fleetctl_kubernetes.gateway_objects import SECRETS_AT, GatewayObjects
from fleetctl_kubernetes.lane_objects import holds
from fleetctl_kubernetes.pod_states import PodTrouble, refusal
from fleetctl_kubernetes.settings import FLEET, HOST, MANAGED_BY, MANAGER, NAMESPACE, OWNER, label_value, selector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleetctl_kubernetes.connection import ClusterConnection

Object = dict[str, Any]
_APPLY = "application/apply-patch+yaml"
_DIGEST = "fleetctl.dev/applied"
_CONTROL_PORT = 9470


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlace:
    """Where a fleet's pods are, and what they are; on record with the fleet, so that every machine means the same."""

    namespace: str
    image: str
    account: str = ""  # that somebody else made; empty: one is made
    state_namespace: str
    state_prefix: str = ""
    port: int  # of the gateways
    gateways: int = 1  # pods of them
    prometheus: bool = False  # reads the gateways' figures
    pull_secrets: tuple[str, ...] = ()  # that nodes pull the image with
    tls_secret: str = ""  # that has the gateways' certificate; empty: clients are served in clear

    @property
    def control_port(self) -> int:
        """The port that commands ask the controller's pod at, and the controller those of the gateways."""
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
    _PlacedKind("NetworkPolicy", "NetworkingV1Api", "network_policy"),
    _PlacedKind("PodDisruptionBudget", "PolicyV1Api", "pod_disruption_budget"),
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
        """The labels that the Deployment finds the controller's pod by."""
        return {"app.kubernetes.io/name": "fleetctl", HOST: label_value(self._fleet), OWNER: label_value(self._owner)}

    @property
    def gateway_labels(self) -> dict[str, str]:
        """The labels that the Deployment, the Service and the controller find the gateways' pods by."""
        return {**self.pod_labels, "app.kubernetes.io/name": "fleetctl-gateway"}

    @property
    def gateways_name(self) -> str:
        """The name of what is of the gateways alone."""
        return f"{self.name}-gateway"

    def environment(self, namespace: str) -> bytes:
        """Return what the pod is given of `up`'s shell; empty: nothing is kept. Raises ProviderError."""
        found = self._found(_SECRET, self.name, namespace)
        return base64.b64decode(((found or {}).get("data") or {}).get(parts.ENVIRONMENT_FILE, ""))

    def keep_environment(self, place: PodPlace, content: bytes) -> None:
        """Have it in the fleet's Secret, and tokens of its own beside it, made once. Raises ProviderError."""
        self._ensure_tokens(place)
        self._apply(_SECRET, {**self._secret(place), "stringData": {parts.ENVIRONMENT_FILE: content.decode()}})

    def _ensure_tokens(self, place: PodPlace) -> None:
        """Have the token of commands and that of the gateways in the fleet's Secret; what is there stays."""
        found = self._found(_SECRET, self.name, place.namespace)
        has = (found or {}).get("data") or {}
        made = {
            name: secrets.token_urlsafe(32) for name in (parts.TOKEN_FILE, parts.GATEWAY_TOKEN_FILE) if name not in has
        }
        if not made:
            return
        body = {**self._secret(place), "stringData": made}
        with suppress(ConflictError):  # another machine made them just now
            if found is None:
                self._connection.call("CoreV1Api", "create_namespaced_secret", place.namespace, body, changes=True)
            else:
                body["metadata"] = {**body["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}
                self._connection.call(
                    "CoreV1Api", "patch_namespaced_secret", self.name, place.namespace, body,
                    changes=True, _content_type="application/merge-patch+json",
                )  # fmt: skip

    def _secret(self, place: PodPlace) -> Object:
        metadata = {"name": self.name, "namespace": place.namespace, "labels": self.labels}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}

    def is_applied(self, place: PodPlace) -> bool:
        """Whether the Deployments were applied with all else as it is to be, and are as they were applied. Raises ProviderError."""
        wanted = self._wanted(place)
        annotations: Mapping[str, str] = {}
        for body in (each for each in wanted if each["kind"] == _DEPLOYMENT.kind):
            found = self._found(_DEPLOYMENT, body["metadata"]["name"], place.namespace)
            if found is None or not holds(found, body):
                return False
            annotations = found["metadata"].get("annotations") or {}
        return annotations.get(_DIGEST) == _digest(wanted)  # the controller's, which is applied last

    def apply(self, place: PodPlace) -> None:
        """Have every object as it should be. Raises ProviderError, also where one of these names is somebody else's."""
        self.refuse_strangers(place)
        self._ensure_tokens(place)
        wanted = self._wanted(place)
        wanted[-1]["metadata"]["annotations"] = {_DIGEST: _digest(wanted)}
        for body in wanted:
            self._apply(_BY_NAME[body["kind"]], body)
        for body in self._of_earlier_names(place):
            self._delete(_BY_NAME[body["kind"]], body["metadata"]["name"], body["metadata"].get("namespace", ""))

    def refuse_strangers(self, place: PodPlace) -> None:
        """Raise ProviderError where one of the names is somebody else's."""
        for body in self._named(place):
            self._found(_BY_NAME[body["kind"]], body["metadata"]["name"], body["metadata"].get("namespace", ""))

    def of_gateways(self, place: PodPlace) -> list[tuple[Object, Object | None]]:
        """Return the Secret and the gateways' objects, each as it is to be and as it is; None: not there.

        Raises ProviderError, also where one is somebody else's.
        """
        return [
            (each, self._found(_BY_NAME[each["kind"]], each["metadata"]["name"], place.namespace))
            for each in (self._secret(place), *self._of_gateways(place))
        ]

    def controller_trouble(self, place: PodPlace) -> PodTrouble | None:
        """Return what of the controller's objects keeps a pod of it from being; None: nothing does. Raises ProviderError."""
        for kind in (_SECRET, _DEPLOYMENT):
            found = self._found(kind, self.name, place.namespace)
            if found is None:
                text = f"{kind.kind} {self.name} in {place.namespace} is gone"
                return PodTrouble(text=text, hint="`fleetctl up PROFILE` makes it again")
            if kind is _DEPLOYMENT:
                return refusal(found)
            if parts.ENVIRONMENT_FILE not in (found.get("data") or {}):
                text = f"Secret {self.name} in {place.namespace} lacks what the controller is started with ({parts.ENVIRONMENT_FILE})"
                return PodTrouble(
                    text=text, hint=f"`fleetctl up PROFILE` writes it again; `fleetctl down {self._fleet}` goes without"
                )
        return None

    def restore(self, body: Object, content: Mapping[str, bytes]) -> None:
        """Make one of these anew; `content` is the Secret's, by key. Raises ProviderError."""
        if body["kind"] != _SECRET.kind:
            self._apply(_BY_NAME[body["kind"]], body)
            return
        encoded = {name: base64.b64encode(value).decode() for name, value in content.items()}
        with suppress(ConflictError):  # an `up` has just made another
            self._connection.call(
                "CoreV1Api", "create_namespaced_secret", body["metadata"]["namespace"], {**body, "data": encoded},
                changes=True, field_manager=MANAGER,
            )  # fmt: skip

    def delete_pods(self, place: PodPlace) -> bool:
        """Have the Deployments deleted, their pods with them; return whether all are seen gone. Raises ProviderError."""
        left: list[Object] = []
        for name, labels in ((self.gateways_name, self.gateway_labels), (self.name, self.pod_labels)):
            self._delete(_DEPLOYMENT, name, place.namespace)
            found = self._connection.call(
                "CoreV1Api", "list_namespaced_pod", place.namespace, label_selector=selector(labels)
            )
            left += found.get("items") or []
        return not left

    def delete(self, place: PodPlace) -> None:
        """Have all the others deleted. Raises ProviderError."""
        bodies = [
            *self._of_earlier_names(place),
            *self._wanted(place),
            {"kind": "Secret", "metadata": {"name": self.name, "namespace": place.namespace}},
        ]
        for body in reversed(bodies):
            self._delete(_BY_NAME[body["kind"]], body["metadata"]["name"], body["metadata"].get("namespace", ""))

    def _named(self, place: PodPlace) -> list[Object]:
        """Return every object by kind and name."""
        return [*self._wanted(place), {"kind": "Secret", "metadata": self._metadata(self.name, place.namespace)}]

    def _wanted(self, place: PodPlace) -> list[Object]:
        """Return every object but the Secret, the Deployments last, of them the controller's."""
        deployment = parts.named(self._deployment(place), self._metadata(self.name, place.namespace))
        return [*([] if place.account else self._account(place)), *self._of_gateways(place), deployment]

    def _of_gateways(self, place: PodPlace) -> list[Object]:
        """Return what is of the gateways alone, their Deployment last."""
        gateways = GatewayObjects(
            fleet=self._fleet, secret=self.name, labels=self.gateway_labels,
            controller=self.pod_labels, port=place.port, control_port=place.control_port,
            prometheus=place.prometheus, tls_secret=place.tls_secret, pull_secrets=place.pull_secrets,
        )  # fmt: skip
        spec = parts.service_spec(self.gateway_labels, port=place.port, is_tls=bool(place.tls_secret))
        service = {"apiVersion": "v1", "kind": "Service", "spec": spec}
        of_gateways = self._metadata(self.gateways_name, place.namespace)
        return [
            *(parts.named(each, of_gateways) for each in (gateways.network_policy(), gateways.budget())),
            parts.named(service, self._metadata(self.name, place.namespace)),
            parts.named(
                gateways.deployment(place.image, replicas=place.gateways, annotations=self._of_token(place)),
                of_gateways,
            ),
        ]

    def _account(self, place: PodPlace) -> Iterator[Object]:
        """Yield the account and what it may do: in the fleet's namespace, in the state's, of the cluster."""
        # Neither part has a dot in it: fleet b-c of namespace a is not fleet c of a-b.
        here, of_cluster = place.namespace, f"{place.namespace}.{self.name}"
        shared = place.state_namespace == here
        rights = parts.role_rules((*parts.IN_NAMESPACE, *(STATE_RIGHTS if shared else ())))
        roles = [(here, self.name, [*rights, *self._own_rules()])]
        if not shared:
            roles.append((place.state_namespace, of_cluster, parts.role_rules(STATE_RIGHTS)))
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self._metadata(self.name, here)}
        for namespace, name, granted in roles:
            metadata = self._metadata(name, namespace)
            yield {"apiVersion": parts.RBAC, "kind": "Role", "metadata": metadata, "rules": granted}
            yield parts.named(parts.binding("RoleBinding", "Role", name, self.name, here), metadata)
        metadata = self._metadata(of_cluster, "")
        yield {"apiVersion": parts.RBAC, "kind": "ClusterRole", "metadata": metadata, "rules": parts.cluster_rules()}
        yield parts.named(parts.binding("ClusterRoleBinding", "ClusterRole", of_cluster, self.name, here), metadata)

    def _of_earlier_names(self, place: PodPlace) -> list[Object]:
        """Return, by kind and name, what fleets had that were placed before namespace and fleet were joined by a dot."""
        name, kinds = f"{place.namespace}-{self.name}", ("ClusterRole", "ClusterRoleBinding")
        found = [{"kind": kind, "metadata": self._metadata(name, "")} for kind in kinds]
        if place.state_namespace != place.namespace:
            found += [
                {"kind": kind, "metadata": self._metadata(name, place.state_namespace)}
                for kind in ("Role", "RoleBinding")
            ]
        return [] if place.account else found

    def _own_rules(self) -> Iterator[Object]:
        """Yield the rules by which the controller makes again what somebody deletes: for these names alone."""
        names = {"secrets": self.name, "deployments": self.gateways_name}
        for rule in parts.role_rules(UPKEEP_RIGHTS):
            yield {**rule, "resourceNames": [names[resource] for resource in rule["resources"]]}

    def _deployment(self, place: PodPlace) -> Object:
        variables = {
            ON_HEAD: "1", ON_HOST: "kubernetes", STATE_URL: place.state_url, NAMESPACE: place.namespace,
            parts.POD_SECRETS: SECRETS_AT, parts.POD_ADDRESS: "field:status.podIP", parts.POD_PORT: str(place.control_port),
            parts.POD_NAME: "field:metadata.name", parts.GATEWAY_SELECTOR: selector(self.gateway_labels), parts.CONTROL_PORT: str(place.control_port),
        }  # fmt: skip
        container = parts.container(
            place.image, ["python", "-m", "fleetctl.cli.pod", self._fleet], variables=variables, port=place.port,
            mounts=[
                {"name": "state", "mountPath": parts.HOME},
                {"name": "secrets", "mountPath": SECRETS_AT, "readOnly": True},
            ],
        )  # fmt: skip
        container["ports"] = [{"name": "control", "containerPort": place.control_port}]
        container["readinessProbe"] |= {"httpGet": {"path": READYZ, "port": "control"}}
        # What keeps the controller watches it: this is about that one alone.
        container["livenessProbe"] = {
            "httpGet": {"path": LIVEZ, "port": "control"}, "initialDelaySeconds": 15, "periodSeconds": 10,
            "timeoutSeconds": 5, "failureThreshold": 6,
        }  # fmt: skip
        return parts.deployment(
            container,
            selector=self.pod_labels,
            labels={"app.kubernetes.io/component": "controller", FLEET: label_value(self._fleet)},
            annotations=self._of_secrets(place),
            account=place.account or self.name,
            pull_secrets=place.pull_secrets,
            volumes=[
                {"name": "state", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "secrets", "secret": {"secretName": self.name, "defaultMode": 0o440}},
            ],
        )

    def _of_secrets(self, place: PodPlace) -> dict[str, str]:
        """Return what tells the pod's Secret from another: a new one is a new pod, whose processes read it as they start."""
        return {"fleetctl.dev/environment": _mark(self._data(place))}

    def _of_token(self, place: PodPlace) -> dict[str, str]:
        """Return what tells the gateways' token from another: kubelet follows a new Secret later than the controller's pod does."""
        return {"fleetctl.dev/gateway-token": _mark(self._data(place).get(parts.GATEWAY_TOKEN_FILE, ""))}

    def _data(self, place: PodPlace) -> dict[str, str]:
        return (self._found(_SECRET, self.name, place.namespace) or {}).get("data") or {}

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


def _mark(content: object) -> str:
    """Return a short digest of what has a token in it, which makes it unknown what was hashed."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _digest(wanted: list[Object]) -> str:
    kept = [{**each, "metadata": {**each["metadata"], "annotations": {}}} for each in wanted]
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:24]
