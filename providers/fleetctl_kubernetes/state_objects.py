"""Objects of a shared state as ConfigMaps of one namespace; a write's condition is the resourceVersion that it replaces.

ConfigMaps, as every cluster has them and a Role of one namespace grants what they take; nothing in a state is secret. What
an object is now is asked for as metadata alone: its content, some 20 KB, is fetched where that has changed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, TypeVar
from urllib.parse import quote, unquote

from fleetctl.errors import (
    ConfigError,
    CredentialsError,
    ProviderError,
    QuotaError,
    StateDeniedError,
    StateError,
)
from fleetctl.object_stores.retrying import UnansweredError, until_answered
from fleetctl.ports.objects import OutdatedVersionError, StoredObject, UnconfirmedWriteError
from fleetctl_kubernetes.connection import (
    NOT_ALLOWED,
    ClusterConnection,
    ConflictError,
    NotThereError,
    Object,
    RejectedRequestError,
)
from fleetctl_kubernetes.lease_objects import LeaseObjects
from fleetctl_kubernetes.settings import MANAGED_BY, MANAGER, STATE, ClusterSettings, selector

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.ports.lease import Lease

T = TypeVar("T")

STATE_KEY = "fleetctl.dev/state-key"  # an annotation: its whole key
# A ConfigMap's values have a mebibyte together (MaxSecretSize of the API server's validation), a request to etcd 1.5.
OBJECT_BYTES_MAX = 1_000_000
_NO_PREFIX = "default"
_CONTENT = "object"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_LAWFUL_KEY = re.compile(r"[a-z0-9]([-a-z0-9/]{0,180}[a-z0-9])?")
_CALL_S_MAX = 10.0
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_MERGE = "application/merge-patch+json"
_FORM = "write kubernetes://NAMESPACE, kubernetes://CONTEXT/NAMESPACE/PREFIX, or kubernetes:///NAMESPACE/PREFIX"


def open_config_maps(place: str, deadline_s: float) -> ConfigMapObjects:
    """Return the objects in "NAMESPACE", "CONTEXT/NAMESPACE" or "CONTEXT/NAMESPACE/PREFIX"; an empty context is the current one.

    A context's own slashes are written %2F. Raises ConfigError; nothing is called yet.
    """
    context, namespace, prefix = state_place(place)
    settings = ClusterSettings.of_environment()
    settings = replace(settings, context=context or settings.context, namespace=namespace)
    return ConfigMapObjects(settings, prefix, deadline_s=deadline_s)


def state_place(place: str) -> tuple[str, str, str]:
    """Return context, namespace and prefix of such a place. Raises ConfigError."""
    parts = place.split("/")
    context, namespace, prefix = ("", *parts, "")[:3] if len(parts) == 1 else (*parts, "")[:3]
    if len(parts) > 3 or not _NAMESPACE.fullmatch(namespace) or (prefix and not _PREFIX.fullmatch(prefix)):
        raise ConfigError(f"kubernetes://{place} is no namespace of a cluster", hint=_FORM)
    return unquote(context), namespace, prefix


class ConfigMapObjects:
    """Implements ObjectStore; the client is loaded with the first call."""

    object_bytes_max = OBJECT_BYTES_MAX

    def __init__(self, settings: ClusterSettings, prefix: str, *, deadline_s: float) -> None:
        self._context = settings.context
        self._namespace = settings.namespace
        self._prefix = prefix
        self._deadline_s = deadline_s
        call_s = min(_CALL_S_MAX, max(1.0, deadline_s))
        self._connection = ClusterConnection(settings, timeout_s=(min(3.0, call_s), call_s))
        self._leases = LeaseObjects(self._connection, self._namespace, self.labels)
        self._path = f"/api/v1/namespaces/{self._namespace}/configmaps"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of everything that the state consists of."""
        return {MANAGED_BY: MANAGER, STATE: self._prefix or _NO_PREFIX}

    @property
    def location(self) -> str:
        """The URL of the objects."""
        context = quote(self._context, safe="")
        if not context and not self._prefix:
            return f"kubernetes://{self._namespace}"
        return f"kubernetes://{context}/{self._namespace}/{self._prefix}".rstrip("/")

    def get(self, key: str, *, known: StoredObject | None = None) -> StoredObject | None:
        """Return an object, or None; `known` itself where that is still what there is."""

        def read() -> StoredObject | None:
            if known is not None and known.version and self._version(self._read(key, _METADATA)) == known.version:
                return known
            found = self._read(key, "application/json")
            return None if found is None else StoredObject(data=self._content(found, key), version=_version_of(found))

        return self._trying(read)

    def put(self, key: str, data: bytes, *, replaces: str | None) -> str:
        """Write an object if its version is `replaces`; once."""
        try:
            return _version_of(self._create(key, data) if replaces is None else self._replace(key, data, replaces))
        except Exception as exc:  # noqa: BLE001  # sorted by what it is, and raised again
            try:
                self._translate(exc)
            except UnansweredError as passing:
                raise UnconfirmedWriteError(passing.message) from exc
            except _AbsentObjectError as missing:
                if replaces is None:
                    raise self._no_namespace(missing) from exc
                raise OutdatedVersionError(missing.message) from exc

    def delete(self, key: str) -> None:
        """Remove an object."""

        def remove() -> None:
            found = self._read(key, _METADATA)
            if found is None:
                return
            self._check_ours(found, key)
            body: Object = {"preconditions": {"uid": found["metadata"]["uid"]}}
            self._call("DELETE", self._at(key), body=body)

        try:
            self._trying(remove)
        except (_AbsentObjectError, OutdatedVersionError):
            return  # another has removed it meanwhile

    def list_keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so, sorted."""

        def read() -> tuple[str, ...]:
            query = {"labelSelector": selector(self.labels)}
            found = self._call("GET", self._path, accept=_METADATA_LIST, query=query)
            items = found.get("items") or ()
            return tuple((each["metadata"].get("annotations") or {}).get(STATE_KEY, "") for each in items)

        return tuple(sorted(key for key in self._trying(read) if key and key.startswith(prefix)))

    def show_lease(self, lease: Lease) -> None:
        """Show a lease as a Lease of the namespace."""
        try:
            self._leases.show(lease)
        except Exception as exc:  # noqa: BLE001  # sorted by what it is, and raised again
            self._translate(exc)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    # Single calls

    def _read(self, key: str, accept: str) -> Object | None:
        try:
            return self._call("GET", self._at(key), accept=accept)
        except NotThereError:
            return None

    def _create(self, key: str, data: bytes) -> Object:
        metadata = {
            "name": object_name(self._prefix, key),
            "labels": self.labels,
            "annotations": {STATE_KEY: key},
        }
        body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": _binary(data)}
        return self._call("POST", self._path, body=body, query={"fieldManager": MANAGER})

    def _replace(self, key: str, data: bytes, version: str) -> Object:
        # A merge patch that names a resourceVersion is refused (409) on any other; what others have put on it stays.
        body: Object = {"metadata": {"resourceVersion": version}, "binaryData": _binary(data)}
        return self._call("PATCH", self._at(key), body=body, query={"fieldManager": MANAGER}, content_type=_MERGE)

    def _call(  # what HTTP has
        self, method: str, path: str, *, accept: str = _METADATA, query: dict[str, str] | None = None,
        body: Object | None = None, content_type: str = "application/json",
    ) -> Object:  # fmt: skip
        headers = {"Accept": accept} if body is None else {"Accept": accept, "Content-Type": content_type}
        return self._connection.request(method, path, query=query or {}, headers=headers, body=body)

    def _at(self, key: str) -> str:
        return f"{self._path}/{object_name(self._prefix, key)}"

    # What was found

    @staticmethod
    def _version(found: Object | None) -> str:
        return _version_of(found) if found is not None else ""

    def _content(self, found: Object, key: str) -> bytes:
        self._check_ours(found, key)
        try:
            return base64.b64decode((found.get("binaryData") or {})[_CONTENT], validate=True)
        except (KeyError, binascii.Error) as exc:
            name = found["metadata"]["name"]
            raise StateError(
                f"ConfigMap {name} in {self._namespace} is damaged: it has no binaryData.{_CONTENT}",
                hint="bring it back from a backup of the cluster, or set the state aside",
            ) from exc

    def _check_ours(self, found: Object, key: str) -> None:
        """Return for an object of this state. Raises StateError for one that somebody else made under its name."""
        metadata = found["metadata"]
        is_ours = (metadata.get("labels") or {}).get(MANAGED_BY) == MANAGER
        if not is_ours or (metadata.get("annotations") or {}).get(STATE_KEY) != key:
            raise StateError(
                f"ConfigMap {metadata['name']} in {self._namespace} is somebody else's",
                hint="nothing of it was touched: rename it, or keep the state under another prefix",
            )

    # Errors

    def _trying(self, call: Callable[[], T]) -> T:
        """Make a call that changes nothing when made twice, until it is answered or the deadline is past."""
        return until_answered(
            call, translate=self._translate, deadline_s=self._deadline_s, location=self.location,
            hint="it is tried again; look at the API server with `kubectl get --raw /readyz`",
        )  # fmt: skip

    def _translate(self, exc: Exception) -> NoReturn:
        """Raise an error of the state for one of a call's."""
        match exc:
            case NotThereError():
                raise _AbsentObjectError(f"{self.location}: {exc.message}") from exc
            case ConflictError() if "resourcequotas" not in exc.message:  # which conflict with others that create now
                raise OutdatedVersionError(f"{self.location}: {exc.message}") from exc
            case CredentialsError() if "being terminated" in exc.message:
                raise StateError(
                    f"{self.location}: {exc.message}", hint="nothing can be kept in a namespace that is being deleted"
                ) from exc
            case CredentialsError():
                is_right = "forbidden" in exc.message or exc.message.startswith(NOT_ALLOWED)
                hint = _RIGHTS_HINT.format(self._namespace) if is_right else exc.hint
                raise StateDeniedError(f"{self.location}: {exc.message}", hint=hint) from exc
            case QuotaError():
                raise StateError(f"{self.location}: {exc.message}", hint=exc.hint) from exc
            case RejectedRequestError():
                raise StateError(f"{self.location}: {exc.message}", hint="see `fleetctl doctor`") from exc
            case ProviderError():
                raise UnansweredError(f"{self.location}: {exc.message}") from exc
            case _:
                raise exc

    def _no_namespace(self, missing: _AbsentObjectError) -> StateError:
        return StateError(missing.message, hint=f"kubectl create namespace {self._namespace}")


class _AbsentObjectError(StateError):
    """There is no such object."""


_RIGHTS_HINT = "it takes create, get, list, patch and delete of configmaps in {}"


def object_name(prefix: str, key: str) -> str:
    """Return the name of a key's ConfigMap: to be read where the key allows it, and no other key's."""
    head = f"fleetctl-state-{prefix}" if prefix else "fleetctl-state"
    if _LAWFUL_KEY.fullmatch(key) and "//" not in key and "-/" not in key and "/-" not in key:
        return f"{head}.{key.replace('/', '.')}"
    return f"{head}.sha256-{hashlib.sha256(key.encode()).hexdigest()[:40]}"


def _binary(data: bytes) -> dict[str, str]:
    return {_CONTENT: base64.b64encode(data).decode()}


def _version_of(found: Object) -> str:
    return str(found["metadata"]["resourceVersion"])
