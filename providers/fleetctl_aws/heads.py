"""Heads on EC2: one small instance for a fleet's controller and gateway, on demand, found by tags that no node has."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, Any

from fleetctl.errors import CapacityError, ConfigError, ProviderError
from fleetctl.model.head import CERTIFICATE, SSH_PORT, Head, HeadState
from fleetctl.model.pinned_image import PinnedImage
from fleetctl_aws import tags
from fleetctl_aws.faults import LAUNCHED_AND_GONE, NoSuchResourceError, ParameterMismatchError
from fleetctl_aws.head_address import HeadAddress
from fleetctl_aws.head_group import HeadGroups
from fleetctl_aws.head_preflight import judge_head
from fleetctl_aws.head_settings import DEFAULT_AMI, DEFAULT_TYPE, is_public
from fleetctl_aws.head_user_data import head_user_data, program_key, programs_prefix, state_place
from fleetctl_aws.instances import instances_in
from fleetctl_aws.launch_templates import LaunchTemplates
from fleetctl_aws.network import find_network
from fleetctl_aws.prices import disk_usd_per_hour, price_of_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleetctl.model.head import HeadRecord
    from fleetctl.model.preflight import Finding
    from fleetctl.model.provider_setting import SettingValue
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.settings import AwsSettings

Object = dict[str, Any]
_DISK_GB = 20
_SECRETS = "/fleetctl-heads"
_ENDPOINT = "AWS_ENDPOINT_URL"
_STATES = {
    "pending": HeadState.STARTING, "running": HeadState.RUNNING, "stopping": HeadState.STOPPED, "stopped": HeadState.STOPPED,
    # What shuts down may still act; its lease is fenced by the next head's, as everywhere.
    "shutting-down": HeadState.ENDED, "terminated": HeadState.ENDED,
}  # fmt: skip
_ALREADY = "ParameterAlreadyExists"


class AwsHeads:
    """Implements Heads."""

    def __init__(self, connection: AwsConnection, settings: AwsSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._groups = HeadGroups(connection, settings)

    async def image(self, settings: Mapping[str, SettingValue], kept: PinnedImage | None) -> PinnedImage:
        """Return what is kept, or the id under the parameter; also where the kept image was deregistered, as old ones are."""
        source, images = str(settings.get("ami") or DEFAULT_AMI), LaunchTemplates(self._connection, self._settings)
        if kept is not None and kept.source == source:
            with contextlib.suppress(ConfigError):
                await images.image(kept.id)
                return kept
        found, _ = await images.image(source)
        return PinnedImage(source=source, id=found)

    async def keep_program(self, order: HeadRecord, archive: bytes) -> None:
        """Write it beside the state; its name is its digest, so what is there already is the same."""
        bucket, prefix = state_place(order.state_url)
        key = program_key(prefix, order)
        await self._connection.change("s3", "put_object", Bucket=bucket, Key=key, Body=archive)

    async def ensure(self, order: HeadRecord) -> Head:
        """Return the order's instance: the one that is there, or one launched now. Raises ProviderError, ConfigError."""
        if there := await self.find(order):
            return there
        network = await find_network(self._connection, self._settings)
        group = await self._groups.ensure(order, network)
        launch = await self._launch(order, group)
        lacking: CapacityError | None = None
        # Each zone has a token of its own, and they are tried in the same order whoever sends it: one that was launched and
        # whose answer was lost is met before any other zone is tried.
        for zone in sorted(network.subnets):
            try:
                return await self._launched(order, launch, zone, network.subnets[zone], group)
            except CapacityError as exc:
                lacking = exc
        raise lacking or ConfigError("there is no subnet for a head", hint="name subnets in the profile's provider")

    async def find(self, order: HeadRecord) -> Head | None:
        """Return the order's instance by its tag; one that lives before one that has ended."""
        found = await self._instances({tags.HEAD_OWNER: order.owner, tags.HEAD_TOKEN: order.token})
        heads = sorted((_head(each) for each in found), key=lambda head: head.state is HeadState.ENDED)
        return heads[0] if heads else None

    async def end(self, order: HeadRecord) -> None:
        """Terminate the order's instance."""
        await self._terminate(await self._instances({tags.HEAD_OWNER: order.owner, tags.HEAD_TOKEN: order.token}))

    async def remove(self, order: HeadRecord) -> bool:
        """Terminate every head of the fleet; once they have ended delete their group, secrets and archives."""
        found = await self._instances({tags.HEAD_OWNER: order.owner, tags.HEAD: order.fleet})
        await self._terminate(found)
        if any(each["State"]["Name"] != "terminated" for each in found):
            return False
        await self._groups.remove(order)
        await self._remove_secrets(order)
        await self._remove_programs(order)
        return True

    async def put_secret(self, owner: str, fleet: str, name: str, text: str, *, replaces: bool) -> None:
        """Write a SecureString; what is there already stays unless it is to be replaced."""
        path = f"{_SECRETS}/{tags.fleet_name(owner, fleet)}/{name}"
        try:
            await self._connection.change(
                "ssm", "put_parameter", Name=path, Value=text, Type="SecureString", Overwrite=replaces,
                Tier="Intelligent-Tiering",
            )  # fmt: skip
        except ProviderError as exc:
            if replaces or _ALREADY not in exc.message:
                raise

    async def secret(self, owner: str, fleet: str, name: str) -> str:
        """Return a SecureString's text; empty: there is none."""
        path = f"{_SECRETS}/{tags.fleet_name(owner, fleet)}/{name}"
        try:
            found = await self._connection.read("ssm", "get_parameter", Name=path, WithDecryption=True)
        except NoSuchResourceError:
            return ""
        return str(found["Parameter"]["Value"])

    async def take_address(self, order: HeadRecord, machine_id: str) -> str:
        """Have the Elastic IP that is named lead to the head. Raises ConfigError, ProviderError."""
        return await HeadAddress(self._connection).take(order, machine_id)

    def reach(self, order: HeadRecord, head: Head) -> tuple[str, str]:
        """Return the address that leads there from here, and the Session Manager's command where that is wanted."""
        way = order.settings.get("tunnel", "")
        if way == "ssm" or (not way and not is_public(order.settings) and _has_session_manager()):
            return head.id, session_command(head.id, self._connection.region, self._settings.profile)
        # A subnet may give every machine a public address; nothing is let in there unless the profile says from where.
        return (head.public_address or head.address) if is_public(order.settings) else head.address, ""

    async def findings(self, settings: Mapping[str, SettingValue]) -> tuple[Finding, ...]:
        """Return what would keep a head from being made, and who would reach it."""
        return await judge_head(self._connection, self._settings, settings)

    async def usd_per_hour(self, settings: Mapping[str, SettingValue]) -> float:
        """Return the price of the instance type, and of its disk."""
        name = str(settings.get("instance_type") or DEFAULT_TYPE)
        return await price_of_type(self._connection, name) + disk_usd_per_hour(_DISK_GB)

    def inherited(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return region, endpoints and this provider's own variables: none of them is a credential."""
        return {
            name: value
            for name, value in environ.items()
            if name in ("AWS_REGION", "AWS_DEFAULT_REGION")
            or name.startswith((_ENDPOINT, "FLEETCTL_AWS_"))
        }  # fmt: skip

    async def _terminate(self, instances: list[Object]) -> None:
        living = [
            each["InstanceId"] for each in instances if each["State"]["Name"] not in ("shutting-down", "terminated")
        ]
        if living:
            await self._connection.change("ec2", "terminate_instances", InstanceIds=living)

    async def _instances(self, wanted: Mapping[str, str | Iterable[str]]) -> list[Object]:
        chosen = tags.filters(wanted)
        return instances_in(
            await self._connection.read_all("ec2", "describe_instances", "Reservations", Filters=chosen)
        )

    async def _launched(self, order: HeadRecord, launch: Object, zone: str, subnet: str, group: str) -> Head:
        token = tags.client_token(order.owner, f"{order.token}-{zone}")
        if is_public(order.settings):
            interface = {"DeviceIndex": 0, "SubnetId": subnet, "Groups": [group], "AssociatePublicIpAddress": True}
            placed: Object = {"NetworkInterfaces": [interface]}
        else:
            placed = {"SubnetId": subnet, "SecurityGroupIds": [group]}
        try:
            answer = await self._connection.change("ec2", "run_instances", ClientToken=token, **launch, **placed)
        except ParameterMismatchError:
            # Somebody sent it with other parameters, as one whose order had another image: what that launched is the head.
            if there := await self.find(order):
                return there
            raise
        except ProviderError as exc:
            if LAUNCHED_AND_GONE not in exc.message:
                raise
            return Head(id="", state=HeadState.ENDED, reason="it was terminated")
        return _head(answer["Instances"][0])

    async def _launch(self, order: HeadRecord, group: str) -> Object:
        image, root = await LaunchTemplates(self._connection, self._settings).image(
            order.image.id if order.image is not None else str(order.settings.get("ami") or DEFAULT_AMI)
        )
        text = head_user_data(
            order, region=self._connection.region, group=group, named_profile=self._settings.profile,
            endpoints={name: value for name, value in os.environ.items() if name.startswith(_ENDPOINT)},
        )  # fmt: skip
        profile = str(order.settings.get("instance_profile", ""))
        named = tags.tag_list(
            {
                tags.HEAD_OWNER: order.owner, tags.HEAD: order.fleet, tags.HEAD_TOKEN: order.token,
                "Name": f"{order.fleet}/head-{order.number}",
            }
        )  # fmt: skip
        disk = {"VolumeSize": _DISK_GB, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
        return {
            "ImageId": image,
            "InstanceType": str(order.settings.get("instance_type") or DEFAULT_TYPE),
            "MinCount": 1, "MaxCount": 1,
            "UserData": text,
            "IamInstanceProfile": {"Arn" if profile.startswith("arn:") else "Name": profile},
            # What it ends by itself costs nothing afterwards.
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": 1},
            # Hardware that fails: EC2 starts it again elsewhere, with its disk and address.
            "MaintenanceOptions": {"AutoRecovery": "default"},
            "BlockDeviceMappings": [{"DeviceName": root, "Ebs": disk}],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": named} for kind in ("instance", "volume", "network-interface")
            ],
        }  # fmt: skip

    async def _remove_secrets(self, order: HeadRecord) -> None:
        path = f"{_SECRETS}/{tags.fleet_name(order.owner, order.fleet)}"
        for name in ("environment", "client-key", CERTIFICATE):
            try:
                await self._connection.change("ssm", "delete_parameters", Names=[f"{path}/{name}"])
            except NoSuchResourceError:
                continue

    async def _remove_programs(self, order: HeadRecord) -> None:
        bucket, prefix = state_place(order.state_url)
        place = programs_prefix(prefix, order.fleet)
        for each in await self._connection.read_all("s3", "list_objects_v2", "Contents", Bucket=bucket, Prefix=place):
            await self._connection.change("s3", "delete_object", Bucket=bucket, Key=each["Key"])


def session_command(instance_id: str, region: str, profile: str) -> str:
    """Return the command that carries ssh through AWS's Session Manager, as ProxyCommand takes it.

    https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-getting-started-enable-ssh-connections.html
    """
    named = f" --profile {profile}" if profile else ""
    return (
        f"aws ssm start-session --target {instance_id} --document-name AWS-StartSSHSession"
        f" --parameters portNumber={SSH_PORT} --region {region}{named}"
    )


def _has_session_manager() -> bool:
    return all(map(shutil.which, ("session-manager-plugin", "aws")))


def _head(instance: Object) -> Head:
    reason = instance.get("StateReason") or {}
    return Head(
        id=instance["InstanceId"],
        state=_STATES.get(instance["State"]["Name"], HeadState.STARTING),
        address=instance.get("PrivateIpAddress") or "",
        public_address=instance.get("PublicIpAddress") or "",
        reason=str(reason.get("Message") or instance.get("StateTransitionReason") or ""),
    )
