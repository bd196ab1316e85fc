"""The pod of an order, and the secret beside it: values in, manifests out."""

from __future__ import annotations

import base64
import math
import sys
from typing import TYPE_CHECKING, Any

from fleetctl import codec
from fleetctl.catalogue import kubernetes_nodes
from fleetctl.errors import ProviderError
from fleetctl.model.node import LEADER_HOST, NODE_RANK
from fleetctl_kubernetes.placement import labels_of, resource_of_offering
from fleetctl_kubernetes.probes import eviction_grace_s, probes_of
from fleetctl_kubernetes.settings import (
    IMAGE,
    LANE,
    ORDER,
    ORDER_VARIABLE,
    REPLICA,
    SERVES,
    fleet_labels,
    fleet_name,
    label_value,
    pod_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleetctl.model.node import NodeRequest
    from fleetctl_kubernetes.orders import PodOrder

Object = dict[str, Any]
POD_IP = "POD_IP"
# Kubernetes expands it in a container's command, as it does the names in model/node.py.
OWN_ADDRESS = f"$({POD_IP})"
PORT = 8000
_CLAIM = "gpus"  # within a pod
# What stands in commands, and what a container has it as: LeaderWorkerSet gives its pods the latter two.
_EXPANDED = {OWN_ADDRESS: OWN_ADDRESS, LEADER_HOST: "$(LWS_LEADER_ADDRESS)", NODE_RANK: "$(LWS_WORKER_INDEX)"}


def order_of(request: NodeRequest) -> PodOrder:
    """Return what is kept of an order in its pod."""
    from fleetctl_kubernetes.orders import PodOrder

    return PodOrder(
        token=request.token,
        owner=request.owner,
        fleet=request.fleet,
        replica_id=request.replica_id,
        market=request.market,
        offering=request.offering,
        port=request.port,
    )


def pod_of(
    request: NodeRequest, *, image: str, anchor: Object, secrets: tuple[str, ...], claim: str = "",
    pull_secrets: tuple[str, ...] = (),
) -> Object:  # fmt: skip
    """Return a request's pod. `image` is for engines that name none, `anchor` what it is owned by.

    `secrets` are the names of variables kept in its Secret, `pull_secrets` what its images are pulled with; `claim` is the template of the claim to its GPUs, and empty
    where the device plugin gives them.
    """
    labels = {
        **fleet_labels(request.owner, request.fleet),
        LANE: label_value(request.lane),
        REPLICA: label_value(request.replica_id),
        **SERVES,
    }
    volumes, mounts = kubernetes_nodes.volumes_of(request.container.mounts if request.container else ())
    # A claim says itself of which product its GPUs are; discovery's label need not be there.
    wanted = {
        name: value
        for name, value in labels_of(request.offering).items()
        if not (claim and name != kubernetes_nodes.ZONE)
    }
    gpus = resource_of_offering(request.offering) if request.gpu_count else ""
    claims = [{"name": _CLAIM, "resourceClaimTemplateName": claim}]
    spread_over = {name: labels[name] for name in labels if name != REPLICA and name not in SERVES}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(request.owner, request.token),
            "labels": labels,
            "annotations": {ORDER: codec.encode(order_of(request)).decode()},
            "ownerReferences": [reference_to(anchor)],
        },
        "spec": {
            # A node that ended never runs again: its replica is replaced by another, with another token.
            "restartPolicy": "Never",
            "serviceAccountName": fleet_name(request.owner, request.fleet),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": eviction_grace_s(request),
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "affinity": kubernetes_nodes.affinity(
                # A claim names whole devices itself.
                request.market,
                wanted,
                gpus="" if claim else gpus,
            ),
            "tolerations": kubernetes_nodes.tolerations(request.market, gpus=gpus),
            "topologySpreadConstraints": kubernetes_nodes.spread(spread_over),
            "containers": [{**_container(request, image, secrets, claim), "volumeMounts": mounts}],
            "volumes": volumes,
            **({"resourceClaims": claims} if claim else {}),
            **({"imagePullSecrets": [{"name": each} for each in pull_secrets]} if pull_secrets else {}),
        },
    }


def secret_of(request: NodeRequest, values: Mapping[str, str], pod: Object) -> Object:
    """Return the Secret of a pod's resolved variables; it goes with the pod."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": pod_name(request.owner, request.token),
            "labels": fleet_labels(request.owner, request.fleet),
            "ownerReferences": [{**reference_to(pod), "controller": False}],
        },
        "type": "Opaque",
        "data": {name: base64.b64encode(value.encode()).decode() for name, value in sorted(values.items())},
    }


def grace_period(grace_s: float) -> int:
    """Return a grace in whole seconds; 0 would take the pod off the list while its engine may still run."""
    return max(1, math.ceil(grace_s))


def _container(request: NodeRequest, image: str, secrets: tuple[str, ...], claim: str) -> Object:
    plain = [
        {"name": name, "value": literal(value)} for name, value in sorted(request.env.items()) if name not in secrets
    ]
    kept = {"name": pod_name(request.owner, request.token)}
    secret = [{"name": name, "valueFrom": {"secretKeyRef": {**kept, "key": name}}} for name in secrets]
    address = {"name": POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    order = {"name": ORDER_VARIABLE, "value": codec.encode(order_of(request)).decode().replace("$", "$$")}
    gpus = {resource_of_offering(request.offering): str(request.gpu_count)} if request.gpu_count else {}
    return {
        "name": "engine",
        **_command(request, image),
        "env": [address, order, *plain, *secret],
        "ports": [{"name": "http", "containerPort": request.port}],
        **probes_of(request),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"claims": [{"name": _CLAIM}]} if claim else {"limits": gpus},
        "securityContext": {"allowPrivilegeEscalation": False},
    }


def member_command(request: NodeRequest, leader: Object) -> Object:
    """Return the words of a group's further pods, as `_command` does those of the leader's container."""
    if request.container is not None:
        return {"args": _literals(request.container.member_args)}
    program, *arguments = request.member_argv
    return {**leader, "command": _literals(["python3" if program == sys.executable else program, *arguments])}


def _command(request: NodeRequest, image: str) -> Object:
    """Return the image and the words: in a publisher's image those after its entry point, else the command as it is."""
    container = request.container
    if container is not None:
        entrypoint: Object = {"command": _literals(container.entrypoint)} if container.entrypoint else {}
        return {"image": container.image, **entrypoint, "args": _literals(container.args)}
    if not image:
        raise ProviderError(
            f"{request.replica_id}: its engine names no container image",
            hint=f"name one that holds it: provider.image, or {IMAGE}",
        )
    program, *arguments = request.argv
    # An engine of this interpreter's packages is started by the image's interpreter.
    return {"image": image, "command": _literals(["python3" if program == sys.executable else program, *arguments])}


def literal(word: str) -> str:
    """Return a word that Kubernetes expands to this one: it reads $(NAME) as a variable and $$ as a dollar.

    Our own address is left to be expanded, and what only a group's own controller knows.
    """
    word = word.replace("$", "$$")
    for name, known_as in _EXPANDED.items():
        word = word.replace(f"${name}", known_as)
    return word


def _literals(argv: Iterable[str]) -> list[str]:
    return [literal(word) for word in argv]


def reference_to(owner: Object) -> Object:
    """Return that something goes with its owner; a controller, so that `kubectl drain` takes it for no naked pod."""
    return {
        "apiVersion": owner.get("apiVersion", "v1"),
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }
