"""What the API server says of our own rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl_kubernetes.connection import ClusterConnection


async def may(connection: ClusterConnection, verb: str, what: str, namespace: str, name: str = "") -> bool:
    """Whether we may do this to a RESOURCE, RESOURCE.GROUP or RESOURCE/PART; without a namespace, of the whole cluster."""
    kind, _, subresource = what.partition("/")
    resource, _, group = kind.partition(".")
    attributes = {
        "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace, "name": name,
    }  # fmt: skip
    review = {"spec": {"resourceAttributes": attributes}}
    answer = await connection.read("AuthorizationV1Api", "create_self_subject_access_review", review)
    return bool(answer.get("status", {}).get("allowed"))
