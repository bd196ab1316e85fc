"""What the API server says of our own rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl_kubernetes.connection import ClusterConnection, Object

_REVIEW = "create_self_subject_access_review"


async def may(connection: ClusterConnection, verb: str, what: str, namespace: str, name: str = "") -> bool:
    """Whether we may do this to a RESOURCE, RESOURCE.GROUP or RESOURCE/PART; without a namespace, of the whole cluster."""
    answer = await connection.read("AuthorizationV1Api", _REVIEW, _question(verb, what, namespace, name))
    return _is_allowed(answer)


def may_now(connection: ClusterConnection, verb: str, what: str, namespace: str) -> bool:
    """Return the same where no event loop turns."""
    return _is_allowed(connection.call("AuthorizationV1Api", _REVIEW, _question(verb, what, namespace, "")))


def _question(verb: str, what: str, namespace: str, name: str) -> Object:
    kind, _, subresource = what.partition("/")
    resource, _, group = kind.partition(".")
    attributes = {
        "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace, "name": name,
    }  # fmt: skip
    return {"spec": {"resourceAttributes": attributes}}


def _is_allowed(answer: Object) -> bool:
    return bool(answer.get("status", {}).get("allowed"))
