"""What EC2 tells of by itself: EventBridge's rule and the queue of a fleet, and what their messages mean."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ConfigError, CredentialsError, ProviderError
from fleetctl.model.node import Notice, NoticeKind
from fleetctl_aws import tags
from fleetctl_aws.faults import NoSuchResourceError
from fleetctl_aws.instances import NOTICE_S

if TYPE_CHECKING:
    from fleetctl.model.shared import SharedResource
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.settings import AwsSettings

Object = dict[str, Any]
_log = logging.getLogger("fleetctl_aws")
INTERRUPTION = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"
MAINTENANCE = "AWS Health Event"
EVENT_PATTERN = {
    "source": ["aws.ec2", "aws.health"],
    "detail-type": [INTERRUPTION, REBALANCE, STATE_CHANGE, MAINTENANCE],
}
# A notice that is older than this is over; a message that was not deleted is seen again after half a minute.
QUEUE_ATTRIBUTES = {"MessageRetentionPeriod": "300", "VisibilityTimeout": "30", "SqsManagedSseEnabled": "true"}
_TARGET = "queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEvent:
    """One message's content: what it says of these instances."""

    instance_ids: tuple[str, ...]
    notice: Notice | None = None
    state: str = ""  # as EC2 calls it; empty: it says nothing of that


class NoticeQueue:
    """A fleet's queue of EC2's events, which hold all of the account's instances."""

    def __init__(self, connection: AwsConnection, settings: AwsSettings) -> None:
        self._connection = connection
        self._settings = settings

    async def url(self, owner: str, fleet: str) -> str | None:
        """Return where the queue is reached; None: it was not prepared, or is torn down."""
        name = self._settings.queue or queue_name(owner, fleet)
        try:
            found = await self._connection.read("sqs", "get_queue_url", QueueName=name)
        except NoSuchResourceError:
            return None
        return str(found["QueueUrl"])

    async def prepare(self, resource: SharedResource) -> None:
        """Have queue and rule there; where they may not be made, nothing: instances tell their notices themselves.

        One that the profile names is made by somebody else. Raises ConfigError where it is not there.
        """
        if self._settings.queue:
            if await self.url(resource.owner, resource.fleet) is None:
                raise ConfigError(
                    f"there is no queue {self._settings.queue} in {self._connection.region}",
                    hint="make it (fleetctl render --target cloudformation), or leave provider.queue out of the profile",
                )
            return
        try:
            await self._make(resource.owner, resource.fleet)
        except CredentialsError as exc:
            _log.warning("no queue of EC2's events: %s; instances tell their notices themselves", exc.message)

    async def restore(self, owner: str, fleet: str) -> None:
        """Have queue and rule there again under a fleet whose queue was deleted. Raises ProviderError where that cannot be."""
        if self._settings.queue:
            raise ProviderError(
                f"the queue {self._settings.queue} is gone from {self._connection.region}",
                hint="whoever made it has to make it again; until then instances tell their notices themselves",
            )
        await self._make(owner, fleet)
        _log.warning("the queue of EC2's events of fleet %s was deleted by somebody, and is made again", fleet)

    async def _make(self, owner: str, fleet: str) -> None:
        """Have them there, and the rule alone allowed to send to the queue."""
        name, named = queue_name(owner, fleet), tags.of_fleet(owner, fleet)
        made = await self._connection.change(
            "sqs", "create_queue", QueueName=name, Attributes=QUEUE_ATTRIBUTES, tags=named
        )
        url = str(made["QueueUrl"])
        found = await self._connection.read("sqs", "get_queue_attributes", QueueUrl=url, AttributeNames=["QueueArn"])
        arn = str(found["Attributes"]["QueueArn"])
        rule = await self._connection.change(
            "events", "put_rule", Name=name, EventPattern=json.dumps(EVENT_PATTERN), State="ENABLED",
            Description=f"fleetctl fleet {fleet}: what EC2 says of its instances", Tags=tags.tag_list(named),
        )  # fmt: skip
        policy = json.dumps(_policy(arn, str(rule["RuleArn"])))
        await self._connection.change("sqs", "set_queue_attributes", QueueUrl=url, Attributes={"Policy": policy})
        put = await self._connection.change("events", "put_targets", Rule=name, Targets=[{"Id": _TARGET, "Arn": arn}])
        if put.get("FailedEntryCount"):
            raise ProviderError(f"EventBridge did not take the queue {name}: {put.get('FailedEntries')}")

    async def teardown(self, resource: SharedResource) -> None:
        """Remove the rule, then the queue; who may not see them has made none, and what the profile names stays."""
        if self._settings.queue:
            return
        try:
            await self._remove(resource)
        except CredentialsError as exc:
            _log.warning("whether there is a queue of EC2's events is not known: %s", exc.message)

    async def _remove(self, resource: SharedResource) -> None:
        name = queue_name(resource.owner, resource.fleet)
        try:
            await self._connection.change("events", "remove_targets", Rule=name, Ids=[_TARGET])
            await self._connection.change("events", "delete_rule", Name=name)
        except NoSuchResourceError:
            pass  # it has gone, or never was
        url = await self.url(resource.owner, resource.fleet)
        if url is not None:
            await self._connection.change("sqs", "delete_queue", QueueUrl=url)

    async def receive(self, url: str, *, wait_s: int) -> list[Object]:
        """Return the messages there are, ten at most; waits for the first one."""
        found = await self._connection.read(
            "sqs", "receive_message", QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=wait_s
        )  # fmt: skip
        messages: list[Object] = found.get("Messages", [])
        return messages

    async def delete(self, url: str, message: Object) -> None:
        """Have a message not come again."""
        await self._connection.change("sqs", "delete_message", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def queue_name(owner: str, fleet: str) -> str:
    """Return the name of a fleet's queue, and of its rule."""
    return f"{tags.fleet_name(owner, fleet)}-events"


def read_event(body: str) -> InstanceEvent | None:
    """Return what a message says of instances; None for one that says nothing to us, or is none of EventBridge's."""
    try:
        event = json.loads(body)
        kind, detail, at = event["detail-type"], event["detail"], datetime.fromisoformat(event["time"])
        if kind == MAINTENANCE:
            return _maintenance(detail)
        instance_id = (str(detail["instance-id"]),)
    except (ValueError, KeyError, TypeError):
        return None
    if kind == INTERRUPTION:
        deadline = at + timedelta(seconds=NOTICE_S)
        notice = Notice(kind=NoticeKind.INTERRUPTION, deadline=deadline, is_certain=True)
        return InstanceEvent(instance_ids=instance_id, notice=notice)
    if kind == REBALANCE:
        notice = Notice(kind=NoticeKind.REBALANCE, deadline=None, is_certain=False)
        return InstanceEvent(instance_ids=instance_id, notice=notice)
    if kind == STATE_CHANGE:
        return InstanceEvent(instance_ids=instance_id, state=str(detail.get("state", "")))
    return None


def _maintenance(detail: Object) -> InstanceEvent | None:
    if detail.get("service") != "EC2" or detail.get("eventTypeCategory") != "scheduledChange":
        return None
    ids = tuple(str(each["entityValue"]) for each in detail.get("affectedEntities") or () if each.get("entityValue"))
    notice = Notice(kind=NoticeKind.MAINTENANCE, deadline=None, is_certain=False)
    return InstanceEvent(instance_ids=ids, notice=notice) if ids else None


def _policy(queue_arn: str, rule_arn: str) -> Object:
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "events.amazonaws.com"},
                "Action": "sqs:SendMessage",
                "Resource": queue_arn,
                "Condition": {"ArnEquals": {"aws:SourceArn": rule_arn}},
            }
        ],
    }
