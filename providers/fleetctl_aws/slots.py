"""The slots of an instance that replicas share: each a part of its GPUs, a port and tags, which the instance follows itself.

A replica is placed on a running instance, and taken off it, by the instance's tags alone: it reads them from its own
metadata. So nobody has to get in, the instance needs no right, and what it should run is seen by whoever may list it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ProviderError
from fleetctl.model.node import NodeState
from fleetctl_aws import tags
from fleetctl_aws.faults import NoSuchResourceError
from fleetctl_aws.instances import STOPPED, instances_in, node_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleetctl.clock import Clock
    from fleetctl.model.node import Node, NodeRequest
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.given_up import GivenUp

    # Of an owner's fleet and an instance, by slot: the engines that it starts no more.
    GivenUpOf = Callable[[str, str, str], Mapping[int, GivenUp]]

Object = dict[str, Any]
_LIVING = ("pending", "running")
# The instance reads its tags every 5 s, and its systemd kills what has not ended 110 s after SIGTERM.
SLOT_ENDS_S = 120.0
_NONE: Mapping[int, GivenUp] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What an instance's tags say of one of its slots."""

    number: int
    token: str
    stopped_at: datetime | None = None

    def is_over(self, now: datetime, given_up: GivenUp | None) -> bool:
        """Whether nothing of a replica that was taken off it can be left."""
        if self.stopped_at is None:
            return False
        is_ended = given_up is not None and given_up.is_of(self.token)
        return is_ended or now >= self.stopped_at + timedelta(seconds=SLOT_ENDS_S)


def slots_of(instance: Object) -> list[Slot]:
    """Return the slots that were ever given to a replica, as they are now."""
    found = tags.tags_in(instance)
    numbers = [0, *sorted(_numbers(found))]
    return [
        Slot(
            number=number,
            token=found.get(tags.of_slot(tags.INTENT, number), ""),
            stopped_at=_instant(found.get(tags.of_slot(tags.STOPPED, number), "")),
        )
        for number in numbers
    ]


def nodes_of(instance: Object, *, now: datetime, given_up: Mapping[int, GivenUp] = _NONE) -> list[Node]:
    """Return the nodes on an instance: one, or one a slot. All that have not ended pay for it in equal parts.

    A slot is free as soon as it was stopped where its engine was given up: nothing is left there to end.
    """
    found, whole = tags.tags_in(instance), node_of(instance)
    size = int(found.get(tags.GPUS, "0") or 0)
    if not size:
        return [whole]
    slots = slots_of(instance)
    is_shared = any(slot.stopped_at is None for slot in slots)
    nodes = []
    for slot in slots:
        first = slot.number * size
        node = replace(
            whole,
            id=node_id(whole.id, slot.number),
            token=slot.token,
            replica_id=found.get(tags.of_slot(tags.REPLICA, slot.number), ""),
            port=whole.port + slot.number,
            gpu_indices=tuple(range(first, first + size)),
        )
        if slot.stopped_at is not None and whole.state in (NodeState.STARTING, NodeState.RUNNING):
            # Where nobody is left on it the machine itself is to end, and so is not over with the slot's time.
            is_over = is_shared and slot.is_over(now, given_up.get(slot.number))
            state = NodeState.GONE if is_over else NodeState.STOPPING
            node = replace(node, state=state, exit_reason=STOPPED if is_over else "", boot=None)
            node = replace(node, notice=None) if is_over else node
        nodes.append(node)
    paying = sum(node.state is not NodeState.GONE for node in nodes) or len(nodes)
    return [
        replace(node, machine_part=0.0 if node.state is NodeState.GONE and paying < len(nodes) else 1.0 / paying)
        for node in nodes
    ]


def node_id(instance_id: str, number: int) -> str:
    """Return the name of a slot's node: the first one's is the instance's."""
    return f"{instance_id}/{number}" if number else instance_id


def parse_node_id(text: str) -> tuple[str, int]:
    """Return the instance and the slot of a node."""
    instance_id, _, number = text.partition("/")
    return instance_id, int(number or 0)


class Slots:
    """Places replicas on running instances, and takes them off."""

    def __init__(self, connection: AwsConnection, clock: Clock, *, given_up: GivenUpOf) -> None:
        self._connection = connection
        self._clock = clock
        self._given_up = given_up
        # What this process has written and listings may not show yet: instance -> slot -> whether it was given or taken.
        self._written: dict[str, dict[int, Slot]] = {}

    async def place(self, request: NodeRequest, *, template: str) -> Node:
        """Give a slot of a running instance to a replica, and return its node. Raises ProviderError where it may not be."""
        instance = await self._instance(request.machine_id)
        number = _number(request)
        self._check(request, instance, number, template)
        named = {
            tags.of_slot(tags.INTENT, number): request.token,
            tags.of_slot(tags.REPLICA, number): request.replica_id,
            tags.of_slot(tags.STOPPED, number): "",
        }
        # On record before it is asked for: should the answer be lost, nobody ends the instance meanwhile.
        self._note(request.machine_id, Slot(number=number, token=request.token))
        await self._connection.change("ec2", "create_tags", Resources=[request.machine_id], Tags=tags.tag_list(named))
        kept = [tag for tag in instance.get("Tags") or () if tag["Key"] not in named]
        placed = {**instance, "Tags": [*kept, *tags.tag_list(named)]}
        (node,) = (each for each in nodes_of(placed, now=self._clock.now()) if each.token == request.token)
        return node

    async def take(self, instance: Object, number: int) -> bool:
        """Have a slot's engine end; return whether another is left on the instance, which then goes on."""
        instance_id = instance["InstanceId"]
        slot = self._slots_now(instance).get(number)
        if slot is not None and slot.stopped_at is None:
            at = self._clock.now()
            mark = {tags.of_slot(tags.STOPPED, number): at.isoformat()}
            await self._connection.change("ec2", "create_tags", Resources=[instance_id], Tags=tags.tag_list(mark))
            self._note(instance_id, Slot(number=number, token=slot.token, stopped_at=at))
        # Once this is on record: of two that are taken off at the same time the later must know of the earlier.
        return any(each.number != number and each.stopped_at is None for each in self._slots_now(instance).values())

    def _slots_now(self, instance: Object) -> dict[int, Slot]:
        """Return an instance's slots as they were listed, or as this process has written them since."""
        now = {slot.number: slot for slot in slots_of(instance)}
        written = self._written.get(instance["InstanceId"], {})
        return now | {n: slot for n, slot in written.items() if _is_newer(slot, now.get(n))}

    def forget(self, instance_id: str) -> None:
        """Know nothing more of an instance that is to end."""
        self._written.pop(instance_id, None)

    def _note(self, instance_id: str, slot: Slot) -> None:
        self._written.setdefault(instance_id, {})[slot.number] = slot

    async def _instance(self, instance_id: str) -> Object:
        try:
            found = await self._connection.read("ec2", "describe_instances", InstanceIds=[instance_id])
        except NoSuchResourceError:
            found = {"Reservations": []}
        instances = instances_in(found["Reservations"])
        if not instances:
            raise ProviderError(f"instance {instance_id} is not there to place a replica on")
        return instances[0]

    def _check(self, request: NodeRequest, instance: Object, number: int, template: str) -> None:
        found = tags.tags_in(instance)
        what = f"instance {request.machine_id}"
        if found.get(tags.OWNER) != request.owner or found.get(tags.FLEET) != request.fleet:
            raise ProviderError(f"{what} is not of fleet {request.fleet}")
        if instance["State"]["Name"] not in _LIVING:
            raise ProviderError(f"{what} is {instance['State']['Name']}")
        if found.get(tags.TEMPLATE) != template:
            raise ProviderError(f"{what} was launched to run something else", hint="another instance is launched")
        held = next((slot for slot in slots_of(instance) if slot.number == number and slot.token), None)
        if held is None or held.token == request.token:
            return
        given_up = self._given_up(request.owner, request.fleet, request.machine_id)
        if not held.is_over(self._clock.now(), given_up.get(number)):
            raise ProviderError(f"GPUs {request.gpu_indices} of {what} are not free yet", hint="it is tried again")


def _number(request: NodeRequest) -> int:
    return request.gpu_indices[0] // len(request.gpu_indices)


def _numbers(found: dict[str, str]) -> list[int]:
    prefix = f"{tags.INTENT}-"
    return [int(key.removeprefix(prefix)) for key in found if key.startswith(prefix)]


def _is_newer(written: Slot, listed: Slot | None) -> bool:
    """Whether a listing is older than what was written: it shows another order, or one that is not stopped yet."""
    return listed is None or written.token != listed.token or listed.stopped_at is None


def _instant(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
