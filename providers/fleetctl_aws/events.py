"""A fleet's instances as EC2 tells of them, and the renewal of the ends that they have set themselves."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fleetctl.errors import CredentialsError, ProviderError
from fleetctl.model.node import NodeState
from fleetctl_aws import tags
from fleetctl_aws.instances import expires_at, instances_in, notice_tag
from fleetctl_aws.notices import InstanceEvent, read_event
from fleetctl_aws.slots import nodes_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleetctl.clock import Clock
    from fleetctl.model.node import Node, Notice
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.instance_notices import InstanceNotices
    from fleetctl_aws.notices import NoticeQueue
    from fleetctl_aws.settings import AwsSettings

Object = dict[str, Any]
# A message ends the wait at once; a process that ends waits for no longer than this.
_WAIT_S = 5
_RENEWED_AT_ONCE = 200
_UNREAD_MAX = 1_000
_ENDING = frozenset({"shutting-down", "terminated"})
_LIVING = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]


class InstanceEvents:
    """Implements NodeEvents on a fleet's queue, and on what its instances tell of themselves.

    Whoever watches a fleet is its controller: it alone renews its instances, so that a listing by anybody keeps none alive.
    """

    def __init__(
        self,
        connection: AwsConnection,
        settings: AwsSettings,
        clock: Clock,
        *,
        queue: NoticeQueue,
        notices: InstanceNotices,
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._clock = clock
        self._queue = queue
        self._notices = notices
        self._renewed_s: dict[tuple[str, str], float] = {}

    async def watch(self, *, owner: str, fleet: str) -> AsyncIterator[Node]:
        """Yield the instances that messages speak of, or that speak of themselves. Raises ProviderError where queue or renewal fails.

        Without the right to a queue the instances' own word is all there is.
        """
        found: asyncio.Queue[Node | ProviderError] = asyncio.Queue(maxsize=1)
        sources = [
            asyncio.create_task(self._by_queue(owner, fleet, found)),
            asyncio.create_task(self._by_instances(owner, fleet, found)),
        ]
        try:
            while True:
                each = await found.get()
                if isinstance(each, ProviderError):
                    raise each
                yield each
                found.task_done()
        finally:
            for source in sources:
                source.cancel()
            await asyncio.gather(*sources, return_exceptions=True)

    async def _by_queue(self, owner: str, fleet: str, found: asyncio.Queue[Node | ProviderError]) -> None:
        """Put in what the queue tells, and what breaks it."""
        try:
            while True:
                await self._read_queue(owner, fleet, found)
        except ProviderError as exc:
            await found.put(exc)

    async def _read_queue(self, owner: str, fleet: str, found: asyncio.Queue[Node | ProviderError]) -> None:
        """Put in what the queue tells now, each message deleted once it was taken; and keep the instances' ends put off."""
        # Notices are not kept waiting by a renewal that fails; it is said once they are read.
        fault = await self._renewal_fault(owner, fleet)
        try:
            url = await self._queue.url(owner, fleet)
            messages = await self._queue.receive(url, wait_s=_WAIT_S) if url is not None else []
        except CredentialsError as exc:
            if fault is not None:
                raise fault from exc
            await self._clock.sleep(_WAIT_S)
            return
        if url is None:
            raise ProviderError(
                f"fleet {fleet} has no queue of EC2's events", hint="it is made before the fleet's first instance"
            )
        for message in messages:
            await self._take(message, owner, fleet, found)
            await self._queue.delete(url, message)
        if fault is not None:
            raise fault

    async def _take(self, message: Object, owner: str, fleet: str, found: asyncio.Queue[Node | ProviderError]) -> None:
        event = read_event(message.get("Body", ""))
        for node in await self._instances_of(event, owner, fleet) if event is not None else ():
            await found.put(node)
            await found.join()
            if event is not None and event.notice is not None:
                await self._keep(node)

    async def _by_instances(self, owner: str, fleet: str, found: asyncio.Queue[Node | ProviderError]) -> None:
        """Put in what instances tell of themselves."""
        unread: asyncio.Queue[tuple[str, Notice]] = asyncio.Queue(maxsize=_UNREAD_MAX)

        def on_notice(instance_id: str, notice: Notice) -> None:
            if not unread.full():  # what is left out is told again by the queue, or when the stream is opened anew
                unread.put_nowait((instance_id, notice))

        following = asyncio.create_task(self._notices.follow(owner, fleet, on_notice))
        try:
            while True:
                instance_id, notice = await unread.get()
                event = InstanceEvent(instance_ids=(instance_id,), notice=notice)
                nodes = [_as_event(node, event) for node in self._notices.nodes(owner, fleet, instance_id)]
                for node in nodes:
                    await found.put(node)
                for node in nodes[:1]:
                    await self._keep(node)
        except ProviderError as exc:
            await found.put(exc)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def renew(self, owner: str, fleet: str) -> None:
        """Put off the end of every living instance whose last quarter or more of its time is over."""
        wanted = tags.filters(tags.of_fleet(owner, fleet)) + _LIVING
        found = await self._connection.read_all("ec2", "describe_instances", "Reservations", Filters=wanted)
        now = self._clock.now()
        until, soon = (now + timedelta(seconds=self._settings.expiry_s * share) for share in (1.0, 0.75))
        due = [each["InstanceId"] for each in instances_in(found) if (expires_at(each) or now) < soon]
        for first in range(0, len(due), _RENEWED_AT_ONCE):
            await self._connection.change(
                "ec2", "create_tags", Resources=due[first : first + _RENEWED_AT_ONCE],
                Tags=[{"Key": tags.EXPIRES, "Value": until.isoformat(timespec="seconds")}],
            )  # fmt: skip

    async def _renewal_fault(self, owner: str, fleet: str) -> ProviderError | None:
        now_s = self._clock.monotonic_s()
        # An eighth, so that an instance has a quarter of its time when its turn comes, and two failures are no loss.
        if now_s - self._renewed_s.get((owner, fleet), float("-inf")) < self._settings.expiry_s / 8:
            return None
        try:
            await self.renew(owner, fleet)
        except ProviderError as exc:
            return exc
        self._renewed_s[owner, fleet] = now_s
        return None

    async def _instances_of(self, event: InstanceEvent, owner: str, fleet: str) -> list[Node]:
        """Return the fleet's instances among those that an event names, as it says they are."""
        wanted = [
            {"Name": "instance-id", "Values": list(event.instance_ids)},
            *tags.filters(tags.of_fleet(owner, fleet)),
        ]
        found = await self._connection.read_all("ec2", "describe_instances", "Reservations", Filters=wanted)
        nodes = [n for each in instances_in(found) for n in nodes_of(each, now=self._clock.now())]
        return [_as_event(node, event) for node in nodes]

    async def _keep(self, node: Node) -> None:
        """Have a notice in the instance's tags, where a controller that starts later finds it."""
        if node.notice is not None and node.state is not NodeState.GONE:
            mark = [{"Key": tags.NOTICE, "Value": notice_tag(node.notice)}]
            await self._connection.change("ec2", "create_tags", Resources=[node.machine_id], Tags=mark)


def _as_event(node: Node, event: InstanceEvent) -> Node:
    if event.notice is not None and node.state is not NodeState.GONE:
        # That it may be taken says nothing new of one that will be.
        node = node if node.notice is not None and node.notice.is_certain else replace(node, notice=event.notice)
    if event.state in _ENDING and node.state in (NodeState.STARTING, NodeState.RUNNING):
        return replace(node, state=NodeState.STOPPING)
    return node
