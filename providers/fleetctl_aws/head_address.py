"""An address that stays: an Elastic IP that somebody else has allocated leads to a fleet's head, whichever machine that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.errors import ConfigError, ProviderError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_aws import tags
from fleetctl_aws.faults import NoSuchResourceError
from fleetctl_aws.head_settings import is_public
from fleetctl_aws.instances import instances_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.head import HeadRecord
    from fleetctl.model.provider_setting import SettingValue
    from fleetctl_aws.connection import AwsConnection

_NAME = "head's address"
_KEY = ("host", "elastic_ip")


class HeadAddress:
    """Associates the Elastic IP of `host.elastic_ip` with heads; it is neither allocated nor released here."""

    def __init__(self, connection: AwsConnection) -> None:
        self._connection = connection

    async def take(self, order: HeadRecord, machine_id: str) -> str:
        """Have it lead to an order's machine, and return it; empty: none is named. Idempotent.

        It is taken over from another head of the same fleet and from nobody else. Raises ConfigError, ProviderError.
        """
        named = str(order.settings.get("elastic_ip", ""))
        if not named:
            return ""
        found = await self._found(named)
        holder = str(found.get("InstanceId") or "")
        if holder == machine_id:
            return str(found["PublicIp"])
        if found.get("AssociationId") and not await self._is_ours(holder, order):
            raise ConfigError(
                f"host.elastic_ip: {named} leads to {_holder(found)}, which is no head of {order.fleet}",
                hint="name another one, or disassociate it first",
                key=_KEY,
            )
        await self._connection.change(
            "ec2", "associate_address", AllocationId=named, InstanceId=machine_id, AllowReassociation=True
        )
        return str(found["PublicIp"])

    async def finding(self, given: Mapping[str, SettingValue]) -> Finding | None:
        """Return what would keep a head from having it; None: none is named."""
        named = str(given.get("elastic_ip", ""))
        if not named:
            return None
        try:
            found = await self._found(named)
            holder = str(found.get("InstanceId") or "")
            is_foreign = bool(found.get("AssociationId")) and not await self._is_ours(holder, None)
        except ConfigError as exc:
            return Finding(name=_NAME, verdict=Verdict.FAIL, detail=exc.message, hint=exc.hint)
        except ProviderError as exc:
            hint = "allow ec2:DescribeAddresses, and the head's role ec2:AssociateAddress too"
            return Finding(name=_NAME, verdict=Verdict.WARN, detail=f"{named}: {exc.message}", hint=hint)
        if is_foreign:
            detail = f"{named} ({found['PublicIp']}) leads to {_holder(found)}, which is no head"
            hint = "name another one in host.elastic_ip, or disassociate it first"
            return Finding(name=_NAME, verdict=Verdict.FAIL, detail=detail, hint=hint)
        detail = f"{found['PublicIp']} ({named})"
        if not is_public(given):
            hint = "name in host.open_to from where it is to be reached"
            return Finding(name=_NAME, verdict=Verdict.WARN, detail=f"{detail} lets nobody in", hint=hint)
        return Finding(name=_NAME, verdict=Verdict.OK, detail=detail)

    async def _found(self, named: str) -> dict[str, Any]:
        try:
            answer = await self._connection.read("ec2", "describe_addresses", AllocationIds=[named])
            return dict(answer["Addresses"][0])
        except (NoSuchResourceError, IndexError) as exc:
            raise ConfigError(
                f"host.elastic_ip: there is no {named} in {self._connection.region}",
                hint="`aws ec2 allocate-address` makes one, and names it",
                key=_KEY,
            ) from exc

    async def _is_ours(self, instance_id: str, order: HeadRecord | None) -> bool:
        """Whether an instance is a head of an order's fleet; without an order, any fleet's."""
        if not instance_id:
            return False
        owned: Mapping[str, str] = {tags.HEAD_OWNER: order.owner, tags.HEAD: order.fleet} if order is not None else {}
        found = await self._connection.read_all(
            "ec2", "describe_instances", "Reservations",
            Filters=[{"Name": "instance-id", "Values": [instance_id]}, *tags.filters(owned)],
        )  # fmt: skip
        return any(
            order is not None or tags.HEAD in {each["Key"] for each in instance.get("Tags", ())}
            for instance in instances_in(found)
        )


def _holder(found: Mapping[str, Any]) -> str:
    return str(found.get("InstanceId") or found.get("NetworkInterfaceId") or "something else")
