"""A fleet's launch templates: one for each lane as it is started, found again by its content."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ConfigError, ProviderError
from fleetctl_aws import tags
from fleetctl_aws.faults import NoSuchResourceError
from fleetctl_aws.settings import AMI

if TYPE_CHECKING:
    from fleetctl.model.node import NodeRequest
    from fleetctl.model.shared import SharedResource
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.settings import AwsSettings

Object = dict[str, Any]
_IMAGE_TAG, _SOURCE_TAG = "fleetctl:ami", "fleetctl:ami-source"
_PARAMETER = "ssm:"
_ALREADY = "AlreadyExists"


class LaunchTemplates:
    """The templates of fleets. Orders name their image; one that was placed before they did has the image of its fleet's first."""

    def __init__(self, connection: AwsConnection, settings: AwsSettings) -> None:
        self._connection = connection
        self._settings = settings

    def name_of(self, request: NodeRequest, *, user_data: str, security_group: str) -> str:
        """Return the name of the template for a request, which says all that it holds; pure."""
        wanted = json.dumps([user_data, security_group, self._settings.instance_profile, self._settings.disk_gb])
        image = request.machine_image or self._settings.ami
        digest = hashlib.sha256(f"{image}\n{wanted}".encode()).hexdigest()[:16]
        return f"{tags.fleet_name(request.owner, request.fleet)}-{digest}"

    async def named(self) -> str:
        """Return the id of the template that the profile names. Raises ConfigError where it is not there."""
        name = self._settings.launch_template
        try:
            found = await self._connection.read("ec2", "describe_launch_templates", LaunchTemplateNames=[name])
        except NoSuchResourceError as exc:
            raise ConfigError(
                f"there is no launch template {name} in {self._connection.region}",
                hint="make it (fleetctl render --target cloudformation), or leave provider.launch_template out of the profile",
            ) from exc
        return str(found["LaunchTemplates"][0]["LaunchTemplateId"])

    async def ensure(self, name: str, request: NodeRequest, *, user_data: str, security_group: str) -> str:
        """Return the id of a request's template, made now if it is not there. Raises ProviderError, ConfigError."""
        theirs = await self._of_fleet(request.owner, request.fleet)
        for template in theirs:
            if template["LaunchTemplateName"] == name:
                return str(template["LaunchTemplateId"])
        source = self._settings.ami
        image = request.machine_image or _pinned(theirs, source) or await self._resolved_image(source)
        root = await self._root_device(image)
        data = self._content(request, image=image, root=root, user_data=user_data, security_group=security_group)
        return await self._made(name, request, data, image)

    async def prepare(self, resource: SharedResource) -> None:
        """Make nothing: a template is made with its lane's first order. Raises ConfigError where one is named that is not there."""
        if self._settings.launch_template:
            await self.named()

    async def teardown(self, resource: SharedResource) -> None:
        """Delete every template that a fleet has made; one that the profile names has no tags of ours, and stays."""
        for template in await self._of_fleet(resource.owner, resource.fleet):
            try:
                await self._connection.change(
                    "ec2", "delete_launch_template", LaunchTemplateId=template["LaunchTemplateId"]
                )  # fmt: skip
            except NoSuchResourceError:
                continue

    async def _of_fleet(self, owner: str, fleet: str) -> list[Object]:
        wanted = tags.filters(tags.of_fleet(owner, fleet))
        return await self._connection.read_all("ec2", "describe_launch_templates", "LaunchTemplates", Filters=wanted)

    async def _made(self, name: str, request: NodeRequest, data: Object, image: str) -> str:
        named = {
            **tags.of_fleet(request.owner, request.fleet), tags.LANE: request.lane,
            _IMAGE_TAG: image, _SOURCE_TAG: self._settings.ami,
        }  # fmt: skip
        try:
            made = await self._connection.change(
                "ec2", "create_launch_template", LaunchTemplateName=name, ClientToken=name, LaunchTemplateData=data,
                TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags.tag_list(named)}],
            )  # fmt: skip
        except ProviderError as exc:
            if _ALREADY not in exc.message:
                raise
            found = await self._connection.read("ec2", "describe_launch_templates", LaunchTemplateNames=[name])
            return str(found["LaunchTemplates"][0]["LaunchTemplateId"])
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def _content(self, request: NodeRequest, *, image: str, root: str, user_data: str, security_group: str) -> Object:
        named = tags.tag_list(tags.of_fleet(request.owner, request.fleet))
        profile: Object = {}
        if self._settings.instance_profile:
            key = "Arn" if self._settings.instance_profile.startswith("arn:") else "Name"
            profile = {"IamInstanceProfile": {key: self._settings.instance_profile}}
        return {
            "ImageId": image,
            "UserData": base64.b64encode(user_data.encode()).decode(),
            "SecurityGroupIds": [security_group],
            # What the machine ends by itself costs nothing afterwards: its expiry, and an engine that keeps dying.
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {
                "HttpTokens": "required", "HttpEndpoint": "enabled", "InstanceMetadataTags": "enabled",
                # Nobody in a container reaches the instance's role.
                "HttpPutResponseHopLimit": 1,
            },
            "BlockDeviceMappings": [
                {
                    "DeviceName": root,
                    "Ebs": {
                        "VolumeSize": self._settings.disk_gb, "VolumeType": "gp3", "Encrypted": True,
                        "DeleteOnTermination": True,
                    },
                }
            ],
            "TagSpecifications": [{"ResourceType": "network-interface", "Tags": named}],
            **profile,
        }  # fmt: skip

    async def image(self, source: str) -> tuple[str, str]:
        """Return an image's id and its root device. Raises ConfigError where it is not there."""
        image = await self._resolved_image(source)
        return image, await self._root_device(image)

    async def _resolved_image(self, source: str) -> str:
        """Return the id of the machine image to start with. Raises ConfigError where its parameter is not there."""
        if not source.startswith(_PARAMETER):
            return source
        name = source.removeprefix(_PARAMETER)
        try:
            found = await self._connection.read("ssm", "get_parameter", Name=name)
        except NoSuchResourceError as exc:
            raise ConfigError(
                f"{self._connection.region} has no machine image under {name}",
                hint=f"name one in provider.ami or {AMI}: ami-0123...",
            ) from exc
        return str(found["Parameter"]["Value"])

    async def _root_device(self, image: str) -> str:
        try:
            found = await self._connection.read("ec2", "describe_images", ImageIds=[image])
        except NoSuchResourceError as exc:
            raise ConfigError(
                f"there is no machine image {image} in {self._connection.region}",
                hint=f"name another in provider.ami or {AMI}",
            ) from exc
        if not found.get("Images"):
            raise ConfigError(
                f"there is no machine image {image} in {self._connection.region}",
                hint=f"name another in provider.ami or {AMI}",
            )
        return str(found["Images"][0].get("RootDeviceName") or "/dev/sda1")


def _pinned(templates: list[Object], source: str) -> str:
    """Return the image that a fleet's other templates from the same source have; empty where there is none."""
    for template in templates:
        found = tags.tags_in(template)
        if found.get(_SOURCE_TAG) == source and found.get(_IMAGE_TAG):
            return found[_IMAGE_TAG]
    return ""
