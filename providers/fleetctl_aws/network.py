"""Where in a VPC instances start, and the security group that only the gateway gets through."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ConfigError, ProviderError
from fleetctl_aws import tags
from fleetctl_aws.faults import NoSuchResourceError
from fleetctl_aws.settings import SOURCE, SUBNETS

if TYPE_CHECKING:
    from fleetctl.model.shared import SharedResource
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.settings import AwsSettings

Object = dict[str, Any]
PORT = 8000
PORT_LAST = 8015  # of an instance that as many replicas share as the largest has GPUs
NOTICE_PORT = 8016  # where an instance tells what its metadata say of its end
_ALREADY = "InvalidPermission.Duplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The VPC, and a subnet of it for each zone."""

    vpc: str
    cidr: str
    subnets: dict[str, str]  # zone -> subnet id


async def find_network(connection: AwsConnection, settings: AwsSettings) -> Network:
    """Return the subnets that were named, or the default VPC's. Raises ConfigError, ProviderError."""
    if settings.subnets:
        found = await connection.read_all("ec2", "describe_subnets", "Subnets", SubnetIds=list(settings.subnets))
    else:
        wanted = [{"Name": "default-for-az", "Values": ["true"]}]
        found = await connection.read_all("ec2", "describe_subnets", "Subnets", Filters=wanted)
    if not found:
        raise ConfigError(
            f"{connection.region} has no default VPC to start instances in", hint=f"name subnets in {SUBNETS}"
        )
    vpcs = sorted({subnet["VpcId"] for subnet in found})
    if len(vpcs) > 1:
        raise ConfigError(f"{SUBNETS} are of several VPCs: {', '.join(vpcs)}", hint="name subnets of one")
    (vpc,) = await connection.read_all("ec2", "describe_vpcs", "Vpcs", VpcIds=vpcs)
    roomiest = sorted(found, key=lambda subnet: int(subnet.get("AvailableIpAddressCount", 0)))
    subnets = {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in roomiest}
    return Network(vpc=vpcs[0], cidr=str(vpc.get("CidrBlock", "")), subnets=subnets)


def gateway_source(settings: AwsSettings, network: Network) -> str:
    """Return the security group or the addresses that the gateway comes from: those named, or this machine's in the VPC.

    Raises ConfigError where it is neither.
    """
    named = settings.gateway_source
    if named.startswith("sg-"):
        return named
    if named:
        try:
            return str(ipaddress.ip_network(named, strict=False))
        except ValueError as exc:
            raise ConfigError(
                f"{SOURCE} is {named!r}: neither a security group nor addresses", hint="sg-0123, or 10.0.3.7/32"
            ) from exc
    own = own_address()
    if own and network.cidr and ipaddress.ip_address(own) in ipaddress.ip_network(network.cidr):
        return f"{own}/32"
    raise ConfigError(
        f"this machine ({own or 'no address'}) is not in {network.vpc} ({network.cidr}), so no engine there could be reached",
        hint=f"run fleetctl in the VPC, or name in {SOURCE} the security group or the addresses that reach it (a VPN's)",
    )


def own_address() -> str:
    """Return this machine's address towards the network; empty where it has none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


class SecurityGroups:
    """A fleet's security group: in from the gateway to the engines' ports and the notices', out as it is by default."""

    def __init__(self, connection: AwsConnection, settings: AwsSettings) -> None:
        self._connection = connection
        self._settings = settings

    async def find(self, owner: str, fleet: str) -> Object | None:
        """Return a fleet's group; None: it was not prepared, or is torn down. Raises ProviderError for a stranger's.

        One that the profile names is somebody else's doing, and is returned as it is. Raises ConfigError where it is not there.
        """
        if self._settings.security_group:
            return await find_group(self._connection, self._settings, self._settings.security_group)
        wanted = [{"Name": "group-name", "Values": [tags.fleet_name(owner, fleet)]}]
        found = await self._connection.read_all("ec2", "describe_security_groups", "SecurityGroups", Filters=wanted)
        for group in found:
            if not tags.is_owned(group, owner):
                raise ProviderError(
                    f"security group {group['GroupId']} has our name and somebody else's tags",
                    hint="nothing of it was touched: rename it, or give it back its tags",
                )
        return found[0] if found else None

    async def prepare(self, resource: SharedResource) -> None:
        """Have it there with its one rule, which is set right where it differs."""
        if self._settings.security_group:
            await self.find(resource.owner, resource.fleet)
            return
        network = await find_network(self._connection, self._settings)
        source = gateway_source(self._settings, network)
        group = await self.find(resource.owner, resource.fleet)
        if group is None:
            named = tags.of_fleet(resource.owner, resource.fleet)
            made = await self._connection.change(
                "ec2", "create_security_group", GroupName=tags.fleet_name(resource.owner, resource.fleet),
                Description=f"engines of fleetctl fleet {resource.fleet}", VpcId=network.vpc,
                TagSpecifications=[{"ResourceType": "security-group", "Tags": tags.tag_list(named)}],
            )  # fmt: skip
            group = {"GroupId": made["GroupId"], "IpPermissions": []}
        rule = _rule(source)
        others = [each for each in group.get("IpPermissions") or () if not _is_alike(each, rule)]
        if others:
            await self._connection.change(
                "ec2", "revoke_security_group_ingress", GroupId=group["GroupId"], IpPermissions=others
            )  # fmt: skip
        if len(others) == len(group.get("IpPermissions") or ()):
            await self._allow(group["GroupId"], rule)

    async def teardown(self, resource: SharedResource) -> None:
        """Delete it, if it is ours and the profile names no other; refused by AWS while an instance that ends still has it, and then tried again."""
        if self._settings.security_group:
            return
        group = await self.find(resource.owner, resource.fleet)
        if group is None:
            return
        try:
            await self._connection.change("ec2", "delete_security_group", GroupId=group["GroupId"])
        except NoSuchResourceError:
            return

    async def _allow(self, group_id: str, rule: Object) -> None:
        try:
            await self._connection.change(
                "ec2", "authorize_security_group_ingress", GroupId=group_id, IpPermissions=[rule]
            )  # fmt: skip
        except ProviderError as exc:
            if _ALREADY not in exc.message:
                raise


async def find_group(connection: AwsConnection, settings: AwsSettings, named: str) -> Object:
    """Return the security group of an id or a name, in the VPC of the subnets. Raises ConfigError where there is not one."""
    network = await find_network(connection, settings)
    key = "group-id" if re.fullmatch(r"sg-[0-9a-f]+", named) else "group-name"
    wanted = [{"Name": key, "Values": [named]}, {"Name": "vpc-id", "Values": [network.vpc]}]
    found = await connection.read_all("ec2", "describe_security_groups", "SecurityGroups", Filters=wanted)
    if len(found) != 1:
        raise ConfigError(
            f"there is no security group {named} in {network.vpc}",
            hint="make it (fleetctl render --target cloudformation), or leave security_group out of the profile",
        )
    return found[0]


def _rule(source: str) -> Object:
    rule: Object = {"IpProtocol": "tcp", "FromPort": PORT, "ToPort": NOTICE_PORT}
    if source.startswith("sg-"):
        return rule | {"UserIdGroupPairs": [{"GroupId": source}]}
    if ":" in source:
        return rule | {"Ipv6Ranges": [{"CidrIpv6": source}]}
    return rule | {"IpRanges": [{"CidrIp": source}]}


def _is_alike(found: Object, rule: Object) -> bool:
    return _essence(found) == _essence(rule)


def _essence(rule: Object) -> tuple[object, ...]:
    sources = {
        *(each["CidrIp"] for each in rule.get("IpRanges") or ()),
        *(each["CidrIpv6"] for each in rule.get("Ipv6Ranges") or ()),
        *(each["GroupId"] for each in rule.get("UserIdGroupPairs") or ()),
        *(each["PrefixListId"] for each in rule.get("PrefixListIds") or ()),
    }
    return (rule.get("IpProtocol"), rule.get("FromPort"), rule.get("ToPort"), sorted(sources))
