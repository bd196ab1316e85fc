"""A fleet's instances as EC2 tells of them, and the renewal of the ends that they have set themselves."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.errors import ProviderError
from fleetctl_aws import tags
from fleetctl_aws.instances import expires_at, instances_in
from fleetctl_aws.notices import InstanceEvent
from fleetctl_aws.queue_events import FollowUps, QueueReader, as_event, keep

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleetctl.clock import Clock
    from fleetctl.model.node import Node, Notice
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.instance_notices import InstanceNotices
    from fleetctl_aws.notices import NoticeQueue
    from fleetctl_aws.settings import AwsSettings

_RENEWED_AT_ONCE = 200
_UNREAD_MAX = 1_000
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
        follow_ups = FollowUps()
        sources = [
            asyncio.create_task(self._by_queue(owner, fleet, found, follow_ups)),
            asyncio.create_task(self._by_instances(owner, fleet, found, follow_ups)),
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
            await follow_ups.close()

    async def _by_queue(
        self, owner: str, fleet: str, found: asyncio.Queue[Node | ProviderError], follow_ups: FollowUps
    ) -> None:
        """Put in what the queue tells, and what breaks it; and keep the instances' ends put off."""

        async def put(node: Node) -> None:
            await found.put(node)
            await found.join()

        reader = QueueReader(
            self._connection, self._clock, queue=self._queue, notices=self._notices, owner=owner, fleet=fleet,
            put=put, follow_ups=follow_ups,
        )  # fmt: skip
        # Notices are not kept waiting by a renewal, nor by one that fails; that is said once they are read.
        renewing = asyncio.create_task(self._renewal_fault(owner, fleet))
        try:
            while True:
                await reader.read()
                if renewing.done():
                    if (fault := renewing.result()) is not None:
                        raise fault
                    renewing = asyncio.create_task(self._renewal_fault(owner, fleet))
        except ProviderError as exc:
            # Who hears of it opens the stream anew: a queue that fails at once would otherwise cut every renewal off, and instances
            # that nobody renews end themselves.
            await asyncio.wait([renewing])
            await found.put(exc)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _by_instances(
        self, owner: str, fleet: str, found: asyncio.Queue[Node | ProviderError], follow_ups: FollowUps
    ) -> None:
        """Put in what instances tell of themselves."""
        unread: asyncio.Queue[tuple[str, Notice | None]] = asyncio.Queue(maxsize=_UNREAD_MAX)

        def on_news(instance_id: str, notice: Notice | None) -> None:
            if not unread.full():  # what is left out is told again by the queue, or when the stream is opened anew
                unread.put_nowait((instance_id, notice))

        following = asyncio.create_task(self._notices.follow(owner, fleet, on_news))
        try:
            while True:
                instance_id, notice = await unread.get()
                event = InstanceEvent(instance_ids=(instance_id,), notice=notice)
                shown = self._notices.nodes(owner, fleet, instance_id)
                nodes = [self._notices.with_boot(as_event(node, event)) for node in shown]
                for node in nodes:
                    await found.put(node)
                for node in nodes[:1]:
                    await follow_ups.begin(keep(self._connection, node))
                follow_ups.check()
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
