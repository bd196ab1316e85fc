"""Calls to the pod that keeps a fleet: through the API server's proxy, or by a port-forward where only that is allowed."""

from __future__ import annotations

import base64
import http.client
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from fleetctl.catalogue.kubernetes_parts import TOKEN_FILE
from fleetctl.errors import CredentialsError, FleetctlError, ProviderError, UnavailableError
from fleetctl.model.gateway_process import TOKEN_HEADER
from fleetctl_kubernetes.connection import NotThereError
from fleetctl_kubernetes.port_forward import PortForward
from fleetctl_kubernetes.settings import selector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl_kubernetes.connection import ClusterConnection, Object

_NO_WAY = "it takes `get` and `create` of pods/proxy, or `create` of pods/portforward, and `get` of the fleet's Secret"


class PodCalls:
    """The way to one fleet's pod, found anew where it leads nowhere any more."""

    def __init__(
        self, connection: ClusterConnection, *, namespace: str, labels: Mapping[str, str], secret: str, port: int
    ) -> None:
        self._connection = connection
        self.namespace = namespace
        self._labels = dict(labels)
        self._secret = secret
        self._port = port
        self._pod = ""
        self._token = ""
        self._forward: PortForward | None = None
        self.is_allowed = True  # as far as was tried: whoever may neither way, or not read the token, may not

    def pods(self) -> list[Object]:
        """Return the pods that are not being deleted, the newest last. Raises ProviderError."""
        found = self._connection.call(
            "CoreV1Api", "list_namespaced_pod", self.namespace, label_selector=selector(self._labels)
        )
        living = [each for each in found["items"] if "deletionTimestamp" not in each["metadata"]]
        return sorted(living, key=lambda each: str(each["metadata"]["creationTimestamp"]))

    def call(self, method: str, path: str, query: Mapping[str, str], *, deadline_s: float) -> bytes:
        """Return the body of one answer of the pod's endpoint. Raises UnavailableError."""
        try:
            return self._called(method, path, query, deadline_s)
        except UnavailableError:
            self.close()
            raise
        except FleetctlError as exc:
            self.close()
            raise UnavailableError(f"the fleet's pod does not answer: {exc.message}", hint=exc.hint) from exc

    def forward(self, port: int) -> PortForward:
        """Return a port-forward, not open yet, to a port of the pod that is ready. Raises UnavailableError."""
        return PortForward(self._connection, self.namespace, self._found(), port)

    def close(self) -> None:
        """Forget the way; the next call looks for it."""
        self._pod, self._token = "", ""
        if self._forward is not None:
            self._forward.__exit__()
            self._forward = None

    def _called(self, method: str, path: str, query: Mapping[str, str], deadline_s: float) -> bytes:
        self._pod = self._pod or self._found()
        self._token = self._token or self._read_token()
        headers = {TOKEN_HEADER: self._token, "Accept": "*/*"}
        if self._forward is None:
            there = f"/api/v1/namespaces/{self.namespace}/pods/{self._pod}:{self._port}/proxy{path}"
            try:
                return self._connection.answer(method, there, query=query, headers=headers)
            except CredentialsError:
                self._forward = PortForward(self._connection, self.namespace, self._pod, self._port)
            try:
                self._forward.__enter__()
            except CredentialsError as exc:
                self.is_allowed = False
                raise UnavailableError(f"nobody may speak to pod {self._pod} from here", hint=_NO_WAY) from exc
        target = f"{path}?{urlencode(query)}" if query else path
        return _answer(self._forward.port, method, target, headers, deadline_s)

    def _found(self) -> str:
        """Return the name of the newest pod that runs, of those that are ready if any is. Raises UnavailableError."""
        running = [each for each in self.pods() if each.get("status", {}).get("phase") == "Running"]
        if not running:
            raise UnavailableError("no pod of the fleet's runs")
        return str(max(reversed(running), key=is_ready)["metadata"]["name"])

    def _read_token(self) -> str:
        try:
            found = self._connection.call("CoreV1Api", "read_namespaced_secret", self._secret, self.namespace)
            return base64.b64decode((found.get("data") or {})[TOKEN_FILE]).decode()
        except NotThereError as exc:
            raise UnavailableError(f"Secret {self._secret} in {self.namespace} is gone", hint="`up` writes it") from exc
        except KeyError as exc:
            raise UnavailableError(f"Secret {self._secret} in {self.namespace} has no token") from exc
        except CredentialsError as exc:
            self.is_allowed = False
            raise UnavailableError(exc.message, hint=_NO_WAY) from exc


def is_ready(pod: Object) -> bool:
    """Whether kubelet's probe was answered."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _answer(port: int, method: str, target: str, headers: Mapping[str, str], deadline_s: float) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=deadline_s)
    try:
        connection.request(method, target, headers={**headers, "connection": "close"})
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as exc:
        raise UnavailableError(f"the fleet's pod does not answer: {exc}") from exc
    finally:
        connection.close()
    if response.status >= 300:
        raise ProviderError(f"{response.status} {body[:200].decode(errors='replace')}")
    return body
