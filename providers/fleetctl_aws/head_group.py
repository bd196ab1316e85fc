"""A head's own security group: ssh, and the gateway where it is meant for others, from where the profile says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.errors import ProviderError
from fleetctl.model.head import SSH_PORT
from fleetctl_aws import tags
from fleetctl_aws.faults import NoSuchResourceError
from fleetctl_aws.head_settings import open_to
from fleetctl_aws.network import find_group

if TYPE_CHECKING:
    from fleetctl.model.head import HeadRecord
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.network import Network
    from fleetctl_aws.settings import AwsSettings

Object = dict[str, Any]
_ALREADY = ("InvalidPermission.Duplicate", "InvalidGroup.Duplicate")


class HeadGroups:
    """The security groups of fleets' heads; a fleet's heads have the same one, so that engines know it for good."""

    def __init__(self, connection: AwsConnection, settings: AwsSettings) -> None:
        self._connection = connection
        self._settings = settings

    async def ensure(self, order: HeadRecord, network: Network) -> str:
        """Return its id, made now if it is not there; its rules are added where they lack. One that the profile names stays as it is."""
        if named := str(order.settings.get("security_group", "")):
            return str((await find_group(self._connection, self._settings, named))["GroupId"])
        group = await self._find(order)
        if group is None:
            group = await self._made(order, network)
        for rule in rules(order, network.cidr):
            if not _has(group, rule):
                await self._changed("authorize_security_group_ingress", GroupId=group["GroupId"], IpPermissions=[rule])
        return str(group["GroupId"])

    async def remove(self, order: HeadRecord) -> None:
        """Delete it, if it is ours and the profile names no other."""
        if order.settings.get("security_group"):
            return
        group = await self._find(order)
        if group is None:
            return
        try:
            await self._connection.change("ec2", "delete_security_group", GroupId=group["GroupId"])
        except NoSuchResourceError:
            return

    async def _made(self, order: HeadRecord, network: Network) -> Object:
        named = tags.tag_list({tags.HEAD_OWNER: order.owner, tags.HEAD: order.fleet})
        await self._changed(
            "create_security_group", GroupName=group_name(order), VpcId=network.vpc,
            Description=f"the head of fleetctl fleet {order.fleet}",
            TagSpecifications=[{"ResourceType": "security-group", "Tags": named}],
        )  # fmt: skip
        found = await self._find(order)
        if found is None:
            raise ProviderError(f"security group {group_name(order)} is not shown yet", hint="run the command again")
        return found

    async def _changed(self, operation: str, **parameters: object) -> None:
        try:
            await self._connection.change("ec2", operation, **parameters)
        except ProviderError as exc:
            if not any(code in exc.message for code in _ALREADY):
                raise

    async def _find(self, order: HeadRecord) -> Object | None:
        wanted = [{"Name": "group-name", "Values": [group_name(order)]}]
        found = await self._connection.read_all("ec2", "describe_security_groups", "SecurityGroups", Filters=wanted)
        for group in found:
            if tags.tags_in(group).get(tags.HEAD_OWNER) != order.owner:
                raise ProviderError(
                    f"security group {group['GroupId']} has our name and somebody else's tags",
                    hint="nothing of it was touched: rename it, or give it back its tags",
                )
        return found[0] if found else None


def group_name(order: HeadRecord) -> str:
    """Return the name of a fleet's group."""
    return f"{tags.fleet_name(order.owner, order.fleet)}-head"


def rules(order: HeadRecord, vpc_cidr: str) -> list[Object]:
    """Return what may come in: ssh, and the gateway where it listens beyond loopback, from the VPC or from `open_to`."""
    sources = open_to(order.settings)
    ports = [SSH_PORT, order.gateway_port] if order.gateway_is_public else [SSH_PORT]
    return [_rule(port, source) for port in ports for source in (sources or (vpc_cidr,))]


def _rule(port: int, source: str) -> Object:
    rule: Object = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port}
    return rule | ({"Ipv6Ranges": [{"CidrIpv6": source}]} if ":" in source else {"IpRanges": [{"CidrIp": source}]})


def _has(group: Object, rule: Object) -> bool:
    wanted = {
        each.get("CidrIp") or each.get("CidrIpv6") for key in ("IpRanges", "Ipv6Ranges") for each in rule.get(key, ())
    }
    for found in group.get("IpPermissions") or ():
        if (found.get("FromPort"), found.get("ToPort")) == (rule["FromPort"], rule["ToPort"]):
            there = {
                each.get("CidrIp") or each.get("CidrIpv6")
                for key in ("IpRanges", "Ipv6Ranges")
                for each in found.get(key) or ()
            }
            if wanted <= there:
                return True
    return False
