"""Everything in the account under an owner's tags: what `gc` finds where no record knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.errors import ProviderError
from fleetctl.model.tagged import TaggedListing, TaggedResource
from fleetctl_aws import tags
from fleetctl_aws.faults import NoSuchResourceError
from fleetctl_aws.instances import instances_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from fleetctl_aws.connection import AwsConnection

Object = dict[str, Any]
INSTANCE, HEAD, VOLUME, TEMPLATE, GROUP = (
    "instance", "head", "volume", "launch-template", "security-group",
)  # fmt: skip
_FIRST = "instances"
_ENDED = ("shutting-down", "terminated")


class TaggedParts:
    """Implements TaggedResources: instances first, and last what they hold while they end."""

    def __init__(self, connection: AwsConnection) -> None:
        self._connection = connection

    async def tagged(self, owner: str) -> TaggedListing:
        """Return what EC2 shows; a kind that the credentials may not list is named. Raises ProviderError."""
        kinds: dict[str, Callable[[str], Awaitable[list[TaggedResource]]]] = {
            _FIRST: self._instances, "volumes": self._volumes, "launch templates": self._templates,
            "security groups": self._groups,
        }  # fmt: skip
        found: list[TaggedResource] = []
        unread: dict[str, str] = {}
        for kind, read in kinds.items():
            try:
                found += await read(owner)
            except ProviderError as exc:
                if kind == _FIRST:
                    raise  # whoever may not see instances sees nothing that matters
                unread[kind] = exc.message
        return TaggedListing(resources=tuple(found), unread=unread)

    async def remove_tagged(self, resource: TaggedResource) -> None:
        """Terminate or delete it."""
        operation, parameters = _removal(resource)
        try:
            await self._connection.change("ec2", operation, **parameters)
        except NoSuchResourceError:
            return

    async def _instances(self, owner: str) -> list[TaggedResource]:
        found = []
        for kind, key, fleet in ((INSTANCE, tags.OWNER, tags.FLEET), (HEAD, tags.HEAD_OWNER, tags.HEAD)):
            reservations = await self._connection.read_all(
                "ec2", "describe_instances", "Reservations", Filters=tags.filters({key: owner})
            )
            living = [each for each in instances_in(reservations) if each["State"]["Name"] not in _ENDED]
            found += [_resource(kind, each, "InstanceId", owner, fleet, each["LaunchTime"]) for each in living]
        return found

    async def _volumes(self, owner: str) -> list[TaggedResource]:
        """Return those that are on no instance: an instance's own go with it."""
        found = []
        for key, fleet in ((tags.OWNER, tags.FLEET), (tags.HEAD_OWNER, tags.HEAD)):
            wanted = [*tags.filters({key: owner}), {"Name": "status", "Values": ["available", "error"]}]
            volumes = await self._connection.read_all("ec2", "describe_volumes", "Volumes", Filters=wanted)
            found += [_resource(VOLUME, each, "VolumeId", owner, fleet, each["CreateTime"]) for each in volumes]
        return found

    async def _templates(self, owner: str) -> list[TaggedResource]:
        templates = await self._connection.read_all(
            "ec2", "describe_launch_templates", "LaunchTemplates", Filters=tags.filters({tags.OWNER: owner})
        )
        return [
            _resource(TEMPLATE, each, "LaunchTemplateId", owner, tags.FLEET, each["CreateTime"]) for each in templates
        ]

    async def _groups(self, owner: str) -> list[TaggedResource]:
        """Return the engines' groups before the heads', which those name in their rules."""
        found = []
        for key, fleet in ((tags.OWNER, tags.FLEET), (tags.HEAD_OWNER, tags.HEAD)):
            groups = await self._connection.read_all(
                "ec2", "describe_security_groups", "SecurityGroups", Filters=tags.filters({key: owner})
            )
            found += [_resource(GROUP, each, "GroupId", owner, fleet, None) for each in groups]
        return found


def _resource(kind: str, item: Object, key: str, owner: str, fleet: str, created_at: datetime | None) -> TaggedResource:
    name = tags.tags_in(item).get(fleet, "")
    return TaggedResource(kind=kind, id=str(item[key]), owner=owner, fleet=name, created_at=created_at)


def _removal(resource: TaggedResource) -> tuple[str, Object]:
    name = resource.id
    match resource.kind:
        case "instance" | "head":
            return "terminate_instances", {"InstanceIds": [name]}
        case "volume":
            return "delete_volume", {"VolumeId": name}
        case "launch-template":
            return "delete_launch_template", {"LaunchTemplateId": name}
        case "security-group":
            return "delete_security_group", {"GroupId": name}
        case _:
            raise ProviderError(f"{name}: this version knows nothing of a {resource.kind}")
