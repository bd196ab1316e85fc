"""Which cluster a connection leads to: told by its certificate authority, which every namespace has in a ConfigMap.

The right to read that is among those that a fleet needs anyway, and it is the same from a laptop, through a proxy and from
inside; addresses are not. https://kubernetes.io/docs/concepts/configuration/configmap and kube-controller-manager's
root-ca-cert-publisher.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
from typing import TYPE_CHECKING

from fleetctl.errors import CredentialsError
from fleetctl.model.node_place import NodePlace
from fleetctl_kubernetes.connection import NotThereError

if TYPE_CHECKING:
    from fleetctl_kubernetes.connection import ClusterConnection

_ROOT_CA = "kube-root-ca.crt"
_KEY = "ca.crt"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_CHOSEN_BY = "KUBECONFIG, its current context and that context's namespace, or provider.context and provider.namespace"


class AuthorityPlaces:
    """Implements ports.Places."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection

    async def place(self) -> NodePlace | None:
        """Return cluster and namespace; None where there is no such ConfigMap, or it may not be read.

        A bundle of several authorities, as there is while one is replaced, is known by any of them.
        """
        namespace = await asyncio.to_thread(lambda: self._connection.namespace)  # connecting reads files
        try:
            found = await self._connection.read("CoreV1Api", "read_namespaced_config_map", _ROOT_CA, namespace)
        except (NotThereError, CredentialsError):
            return None
        bundle = str((found.get("data") or {}).get(_KEY, ""))
        marks = [hashlib.sha256(ssl.PEM_cert_to_DER_cert(each)).hexdigest() for each in _CERTIFICATE.findall(bundle)]
        if not marks:
            return None
        return NodePlace(
            ids=tuple(f"{mark}/{namespace}" for mark in sorted(marks)),
            name=f"namespace {namespace} of the cluster at {self._connection.target().url}",
            chosen_by=_CHOSEN_BY,
        )
