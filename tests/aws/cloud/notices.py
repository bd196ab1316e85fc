"""What EC2 says through EventBridge: the exact event, through the rules that match it, to their queues."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from moto.core.utils import iso_8601_datetime_without_milliseconds, utcnow
from moto.events.models import events_backends
from moto.sqs.models import sqs_backends

from tests.aws.cloud.account import ACCOUNT

if TYPE_CHECKING:
    import random

    from tests.aws.cloud.account import LaunchRecord

_PRINCIPAL = "events.amazonaws.com"
# The states EC2 tells of: https://docs.aws.amazon.com/eventbridge/latest/ref/events-ref-ec2.html
_STATES = ("pending", "running", "shutting-down", "terminated", "stopping", "stopped")


class EventBus:
    """Delivers events; what a queue's policy does not admit is dropped without a word, as EventBridge does."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.counts: Counter[str] = Counter()

    def state_change(self, record: LaunchRecord, state: str) -> None:
        if state in _STATES:
            self.publish(
                record, "EC2 Instance State-change Notification", {"instance-id": record.instance.id, "state": state}
            )

    def interruption(self, record: LaunchRecord, *, age_s: float = 0.0) -> None:
        """Tell of one that was given `age_s` ago, as where the event was held up on its way."""
        detail = {"instance-id": record.instance.id, "instance-action": "terminate"}
        self.publish(record, "EC2 Spot Instance Interruption Warning", detail, age_s=age_s)

    def rebalance(self, record: LaunchRecord) -> None:
        self.publish(record, "EC2 Instance Rebalance Recommendation", {"instance-id": record.instance.id})

    def publish(self, record: LaunchRecord, detail_type: str, detail: dict[str, Any], *, age_s: float = 0.0) -> None:
        """Send an event of an instance to every queue that a rule sends it to."""
        zone = record.instance.placement.zone
        # Interruptions name the zone where other events name the region and the account.
        of_zone = detail_type == "EC2 Spot Instance Interruption Warning"
        where = f"{zone}:" if of_zone else f"{record.region}:{ACCOUNT}"
        event: Any = {
            "version": "0",
            "id": str(UUID(int=self._dice.getrandbits(128), version=4)),
            "detail-type": detail_type,
            "source": "aws.ec2",
            "account": ACCOUNT,
            "time": iso_8601_datetime_without_milliseconds(utcnow() - timedelta(seconds=age_s)),
            "region": record.region,
            "resources": [f"arn:aws:ec2:{where.rstrip(':')}:instance/{record.instance.id}"],
            "detail": detail,
        }
        self.counts["published"] += 1
        for bus in events_backends[ACCOUNT][record.region].event_buses.values():
            for rule in bus.rules.values():
                if bus.name == "default" and rule.state == "ENABLED" and rule.event_pattern.matches_event(event):
                    self._send(rule, event, record.region)

    def _send(self, rule: Any, event: dict[str, Any], region: str) -> None:
        for target in rule.targets:
            _, _, name = target["Arn"].rpartition(":")
            queues = sqs_backends[ACCOUNT][region].queues
            if ":sqs:" in target["Arn"] and name in queues and _admits(queues[name].policy, target["Arn"], rule.arn):
                sqs_backends[ACCOUNT][region].send_message(queue_name=name, message_body=json.dumps(event))
                self.counts["delivered"] += 1
            else:
                self.counts["dropped"] += 1


def _admits(policy: str | None, queue_arn: str, rule_arn: str) -> bool:
    """Whether a queue's policy lets EventBridge send to it for a rule."""
    for statement in json.loads(policy or "{}").get("Statement", []):
        services = statement.get("Principal", {})
        services = services.get("Service", []) if isinstance(services, dict) else services
        actions = _listed(statement.get("Action", []))
        source = statement.get("Condition", {}).get("ArnEquals", {}).get("aws:SourceArn")
        if (
            statement.get("Effect") == "Allow"
            and _PRINCIPAL in _listed(services)
            and any(each.lower() in ("sqs:sendmessage", "sqs:*") for each in actions)
            and any(each in ("*", queue_arn) for each in _listed(statement.get("Resource", [])))
            and (source is None or rule_arn in _listed(source))
        ):
            return True
    return False


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
