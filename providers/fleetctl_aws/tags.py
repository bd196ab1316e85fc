"""The tags that say whose everything of ours is, and the names that follow from them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleetctl.model.node import NodeRequest

Object = dict[str, Any]
_PREFIX = "fleetctl:"
FLEET, OWNER, INTENT, EXPIRES, LANE, REPLICA, PORT, STOPPED, NOTICE, GPUS, TEMPLATE, BOOT = (
    _PREFIX + name
    for name in (
        "fleet", "owner", "intent", "expires", "lane", "replica", "port", "stopped", "notice", "gpus", "template", "boot",
    )
)  # fmt: skip

# Of heads, which are no nodes: whoever lists a fleet's nodes must not find its head among them.
HEAD, HEAD_OWNER, HEAD_TOKEN = (_PREFIX + name for name in ("head", "head-owner", "head-token"))


def of_fleet(owner: str, fleet: str) -> dict[str, str]:
    """Return the tags of everything that a fleet owns."""
    return {OWNER: owner, FLEET: fleet}


def of_order(request: NodeRequest, *, expiry_s: float, template: str, boot: str = "") -> dict[str, str]:
    """Return the tags of an order's instance, the same however often it is sent: AWS compares what a client token is sent with.

    `fleetctl:expires` counts from the instance's boot until it is renewed with an instant.
    """
    return {
        **of_fleet(request.owner, request.fleet),
        INTENT: request.token,
        EXPIRES: f"boot+{expiry_s:.0f}s",
        LANE: request.lane,
        REPLICA: request.replica_id,
        PORT: str(request.port),
        # How many GPUs each replica has of a machine that several share; 0: one has it alone.
        GPUS: str(len(request.gpu_indices)),
        TEMPLATE: template,
        "Name": f"{request.fleet}/{request.replica_id}",
        # Where what it does at its boot is, where that is not in its template.
        **({BOOT: boot} if boot else {}),
    }


def of_slot(key: str, number: int) -> str:
    """Return the tag of one slot of a machine that replicas share; the first one's are an unshared instance's."""
    return f"{key}-{number}" if number else key


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as EC2 takes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tags_in(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of an instance, a volume, a security group, a template."""
    return {str(tag["Key"]): str(tag["Value"]) for tag in item.get("Tags") or ()}


def filters(tags: Mapping[str, str | Iterable[str]]) -> list[Object]:
    """Return filters for exactly these tags; several values of one mean any of them."""
    return [
        {"Name": f"tag:{key}", "Values": [value] if isinstance(value, str) else sorted(value)}
        for key, value in tags.items()
    ]  # fmt: skip


def is_owned(item: Mapping[str, Any], owner: str) -> bool:
    """Whether something is this store's by its tags."""
    return tags_in(item).get(OWNER) == owner


def fleet_name(owner: str, fleet: str) -> str:
    """Return the name of what a fleet's instances share."""
    return f"fleetctl-{hashlib.sha256(f'{owner}/{fleet}'.encode()).hexdigest()[:16]}"


def client_token(owner: str, token: str) -> str:
    """Return the client token of an order, which AWS launches once.

    An order's token is an intent's for one attempt at one set of offerings: the next attempt is another intent.
    """
    return f"fleetctl-{hashlib.sha256(f'{owner}/{token}'.encode()).hexdigest()[:48]}"
