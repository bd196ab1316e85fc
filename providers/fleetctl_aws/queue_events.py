"""Reads a fleet's queue: what a message says is with the controller before anything else is done about it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleetctl.errors import CredentialsError, ProviderError
from fleetctl.model.node import NodeState
from fleetctl_aws import tags
from fleetctl_aws.faults import NoSuchResourceError
from fleetctl_aws.instances import instances_in, notice_tag
from fleetctl_aws.notices import InstanceEvent, read_event
from fleetctl_aws.slots import nodes_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from fleetctl.clock import Clock
    from fleetctl.model.node import Node
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.instance_notices import InstanceNotices
    from fleetctl_aws.notices import NoticeQueue

Object = dict[str, Any]
# A message ends the wait at once; a process that ends waits for no longer than this.
WAIT_S = 5
_LOOK_S = 1.0  # for a queue that is not there yet
# A message each, as many as come together; the rest of the connection's threads are for reading and launching.
_FOLLOW_UPS_MAX = 10
_ENDING = frozenset({"shutting-down", "terminated"})


class FollowUps:
    """Calls that follow a notice, a few at once, which no other notice waits for; `begin` raises what one of them met."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._fault: ProviderError | None = None

    async def begin(self, call: Coroutine[object, object, None]) -> None:
        """Have a call made; waits where too many are under way."""
        task = asyncio.create_task(self._made(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)  # by itself: two sources begin them, and wait at the same time
        while len(self._tasks) > _FOLLOW_UPS_MAX:
            await asyncio.wait([*self._tasks], return_when=asyncio.FIRST_COMPLETED)

    def check(self) -> None:
        """Raise ProviderError where one has failed since this was asked last."""
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    async def close(self) -> None:
        """Begin none any more; a message whose call is cut off comes again."""
        left = [*self._tasks]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _made(self, call: Coroutine[object, object, None]) -> None:
        try:
            await call
        except ProviderError as exc:
            self._fault = self._fault or exc


class QueueReader:
    """Reads one fleet's queue for one stream. `put` returns once the controller has taken a node."""

    def __init__(  # noqa: PLR0913  # what it works with, each named
        self,
        connection: AwsConnection,
        clock: Clock,
        *,
        queue: NoticeQueue,
        notices: InstanceNotices,
        owner: str,
        fleet: str,
        put: Callable[[Node], Awaitable[None]],
        follow_ups: FollowUps,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._queue = queue
        self._notices = notices
        self._owner = owner
        self._fleet = fleet
        self._put = put
        self._follow_ups = follow_ups
        self._url: str | None = None

    async def read(self) -> None:
        """Put in what the queue tells within 5 s, what takes a node first. Raises ProviderError.

        A fleet without running instances may have no queue yet, or none any more; that is looked for again. One that somebody has
        deleted under running instances is made again. Without the right to a queue it tells nothing; that any other right is
        lacking is raised.
        """
        try:
            messages = await self._messages()
        except CredentialsError:
            await self._clock.sleep(WAIT_S)
            return
        if self._url is not None:
            await self._take(self._url, [(each, read_event(each.get("Body", ""))) for each in messages])
        self._follow_ups.check()

    async def _messages(self) -> list[Object]:
        """Return what comes in within 5 s; nothing where there is no queue."""
        if self._url is None:
            self._url = await self._queue.url(self._owner, self._fleet)
        if self._url is None:
            if self._notices.has_any(self._owner, self._fleet):
                await self._queue.restore(self._owner, self._fleet)
            else:
                await self._clock.sleep(_LOOK_S)
            return []
        try:
            return await self._queue.receive(self._url, wait_s=WAIT_S)
        except NoSuchResourceError:
            self._url = None
            return []

    async def _take(self, url: str, messages: list[tuple[Object, InstanceEvent | None]]) -> None:
        for message, event in sorted(messages, key=_rank):
            nodes = await self._nodes_of(event) if event is not None else []
            for node in nodes:
                await self._put(node)
            noticed = nodes if event is not None and event.notice is not None else []
            await self._follow_ups.begin(self._settle(url, message, noticed))

    async def _settle(self, url: str, message: Object, noticed: Iterable[Node]) -> None:
        """Have a notice kept with its instances, then have its message not come again."""
        await asyncio.gather(*(keep(self._connection, node) for node in noticed))
        await self._queue.delete(url, message)

    async def _nodes_of(self, event: InstanceEvent) -> list[Node]:
        """Return the fleet's instances among those that an event names, as it says they are.

        A notice of one that a listing has shown running waits for no other call: the queue has all of the account's.
        """
        shown = {each: self._notices.nodes(self._owner, self._fleet, each) for each in event.instance_ids}
        found = [node for nodes in shown.values() for node in nodes] if event.notice is not None else []
        unlisted = [each for each, nodes in shown.items() if event.notice is None or not nodes]
        if unlisted:
            wanted = [
                {"Name": "instance-id", "Values": unlisted},
                *tags.filters(tags.of_fleet(self._owner, self._fleet)),
            ]
            described = await self._connection.read_all("ec2", "describe_instances", "Reservations", Filters=wanted)
            found += [n for each in instances_in(described) for n in nodes_of(each, now=self._clock.now())]
        return [self._notices.with_boot(as_event(node, event)) for node in found]


def as_event(node: Node, event: InstanceEvent) -> Node:
    """Return an instance as an event says that it is."""
    if event.notice is not None and node.state is not NodeState.GONE:
        # That it may be taken says nothing new of one that will be.
        node = node if node.notice is not None and node.notice.is_certain else replace(node, notice=event.notice)
    if event.state in _ENDING and node.state in (NodeState.STARTING, NodeState.RUNNING):
        return replace(node, state=NodeState.STOPPING)
    return node


async def keep(connection: AwsConnection, node: Node) -> None:
    """Have a notice in the instance's tags, where a controller that starts later finds it."""
    if node.notice is not None and node.state is not NodeState.GONE:
        mark = [{"Key": tags.NOTICE, "Value": notice_tag(node.notice)}]
        await connection.change("ec2", "create_tags", Resources=[node.machine_id], Tags=mark)


def _rank(message: tuple[Object, InstanceEvent | None]) -> int:
    """Return who goes first of the messages that came together: what takes a node, what may, anything else."""
    notice = message[1].notice if message[1] is not None else None
    return 2 if notice is None else int(not notice.is_certain)
