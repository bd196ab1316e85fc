"""The AWS provider: every node is an EC2 instance, or a slot of one that a lane's replicas share."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import FleetctlError
from fleetctl.model.node import CreateResult, NodeListing, ProviderPace
from fleetctl.model.node_place import NodePlace
from fleetctl.ports.provider import ListenAddress, ProviderCapabilities
from fleetctl_aws import tags
from fleetctl_aws.boot_phases import BOOT_PHASES
from fleetctl_aws.connection import AwsConnection
from fleetctl_aws.create import Orders
from fleetctl_aws.events import InstanceEvents
from fleetctl_aws.faults import NoSuchResourceError
from fleetctl_aws.heads import AwsHeads
from fleetctl_aws.images import AwsImages
from fleetctl_aws.infrastructure import AwsInfrastructure
from fleetctl_aws.instance_logs import InstanceLogs
from fleetctl_aws.instance_notices import InstanceNotices
from fleetctl_aws.instance_restarts import InstanceRestarts
from fleetctl_aws.instances import instances_in
from fleetctl_aws.launch_templates import LaunchTemplates
from fleetctl_aws.network import PORT, SecurityGroups, find_network
from fleetctl_aws.notices import NoticeQueue
from fleetctl_aws.run_command import RunCommand
from fleetctl_aws.secrets import EngineSecrets
from fleetctl_aws.settings import SETTINGS, VARIABLES, AwsSettings
from fleetctl_aws.shared import SharedParts
from fleetctl_aws.shipped_logs import ShippedLogs
from fleetctl_aws.slots import Slots, nodes_of, parse_node_id
from fleetctl_aws.tagged import TaggedParts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.clock import Clock
    from fleetctl.model.catalogue import Offering, OfferList
    from fleetctl.model.node import Node, NodeRequest
    from fleetctl.model.preflight import Finding, PlannedNodes
    from fleetctl.model.provider_setting import SettingValue
    from fleetctl.ports.provider import ResolveSecrets

Object = dict[str, Any]
# EC2 launches two instances a second before it throttles an account; so many wait side by side.
_BATCH_MAX = 8
# Types x zones from which CreateFleet takes what it has most of; AWS takes 300 in one call.
_ALTERNATIVES_MAX = 30
PACE = ProviderPace(
    list_interval_s=5.0, list_latency_s=0.5, consistency_lag_s=30.0, list_deadline_s=60.0, describe_deadline_s=60.0,
    offerings_deadline_s=90.0, preflight_deadline_s=60.0, create_deadline_s=120.0, create_settles_s=60.0,
    prepare_deadline_s=120.0, teardown_deadline_s=120.0, stop_deadline_s=90.0,
)  # fmt: skip
_ANY = "0.0.0.0"  # noqa: S104  # in a container of its own network, behind the fleet's security group


class AwsProvider:
    """Implements ports.Provider, ProviderSettings, Preflight and OfferLists; what its instances share is SharedParts, its events are InstanceEvents.

    A node's id is its instance's, and the slot's after the first. Any number of processes may use it on the same nodes: an order is launched once by its
    client token, and found again by its tags.
    """

    name = "aws"
    declared = SETTINGS

    def __init__(
        self, clock: Clock | None = None, *, settings: AwsSettings | None = None, pace: ProviderPace = PACE
    ) -> None:
        self._clock = clock or SYSTEM_CLOCK
        self._given = settings
        self.pace = pace

    @cached_property
    def capabilities(self) -> ProviderCapabilities:
        """What it can do beyond the calls of the port."""
        commands = RunCommand(self._connection, self._clock)
        return ProviderCapabilities(
            batch_max=_BATCH_MAX, alternatives_max=_ALTERNATIVES_MAX, fetches_weights=True,
            events=InstanceEvents(
                self._connection, self._settings, self._clock, queue=self._queue, notices=self._notices
            ),
            shared=self._shared, preflight=self, places=self, settings=self, heads=AwsHeads(self._connection, self._settings),
            offer_lists=self, tagged=TaggedParts(self._connection), variables=VARIABLES, boot_phases=BOOT_PHASES,
            infrastructure=AwsInfrastructure(), logs=InstanceLogs(self._connection, self._clock, commands, self._shipped),
            restarts=InstanceRestarts(commands), images=AwsImages(self._connection, self._settings),
        )  # fmt: skip

    def configured(self, given: Mapping[str, SettingValue]) -> AwsProvider:
        """Return a provider that works where and with what a profile says, else the environment."""
        return AwsProvider(self._clock, settings=self._settings.changed_by(given), pace=self.pace)

    async def offerings(self) -> tuple[Offering, ...]:
        """Return the region's GPU instance types in the zones that have a subnet, on both markets; prices with the disk."""
        from fleetctl_aws.offerings import offerings_of

        network = await find_network(self._connection, self._settings)
        sold, _ = await offerings_of(
            self._connection, network.subnets, now=self._clock.now(), disk_gb=self._settings.disk_gb
        )
        return sold

    async def place(self) -> NodePlace | None:
        """Return the account and the region, by the one call that needs no right."""
        who = await self._connection.read("sts", "get_caller_identity")
        account, region = str(who["Account"]), self._connection.region
        return NodePlace(
            ids=(f"{account}/{region}",),
            name=f"AWS account {account}, {region}",
            chosen_by="the credentials (AWS_PROFILE, AWS_ACCESS_KEY_ID, a role) and AWS_REGION",
        )

    async def offer_list(self) -> OfferList:
        """Return the region's GPU instance types in all of its zones; the packaged list's where nobody may ask."""
        from fleetctl_aws.offer_list import offer_list

        return await offer_list(self._connection, now=self._clock.now())

    async def listen_addresses(self, count: int, *, avoid: frozenset[int]) -> tuple[ListenAddress, ...]:
        """Return the same port of every instance's own address."""
        del avoid  # every instance has all ports of its own address
        return (ListenAddress(host=_ANY, port=PORT),) * count

    async def create(
        self, requests: tuple[NodeRequest, ...], *, resolve_secrets: ResolveSecrets
    ) -> tuple[CreateResult, ...]:
        """Launch an instance each, unless one with its intent's tag is there; its client token lets AWS launch no second."""
        owners: dict[str, list[str]] = {}
        for request in requests:
            owners.setdefault(request.owner, []).append(request.token)
        there: dict[tuple[str, str], Node] = {}
        for owner, tokens in owners.items():
            for token, node in (await self._orders.found(owner, tokens)).items():
                there[owner, token] = node
        creates = (self._result(each, there.get((each.owner, each.token)), resolve_secrets) for each in requests)
        return tuple(await asyncio.gather(*creates))

    async def list_nodes(self, *, owner: str, fleet: str) -> NodeListing:
        """Return the fleet's instances; EC2 shows ended ones for about an hour."""
        as_of = self._clock.now()
        wanted = tags.filters(tags.of_fleet(owner, fleet))
        reservations = await self._connection.read_all("ec2", "describe_instances", "Reservations", Filters=wanted)
        nodes: list[Node] = []
        for instance in instances_in(reservations):
            given_up = self._notices.given_up(owner, fleet, instance["InstanceId"])
            nodes += nodes_of(instance, now=as_of, given_up=given_up)
        self._notices.note(owner, fleet, nodes)
        nodes = [self._notices.with_boot(node) for node in nodes]
        return NodeListing(nodes=tuple(sorted(nodes, key=lambda node: (node.created_at, node.id))), as_of=as_of)

    async def describe(self, token: str, *, owner: str) -> Node | None:
        """Return an order's instance by its tag; None: none is shown with it, which right after a create proves nothing."""
        node = (await self._orders.found(owner, [token])).get(token)
        return node if node is None else self._notices.with_boot(node)

    async def stop(self, node_id: str, *, grace_s: float) -> None:
        """Remember that it was stopped, and terminate the instance that nobody else is on.

        Its systemd ends the engine within 110 s, whatever `grace_s` is.
        """
        del grace_s  # EC2 gives a machine that shuts down some minutes, and takes no figure
        instance_id, number = parse_node_id(node_id)
        try:
            found = await self._connection.read("ec2", "describe_instances", InstanceIds=[instance_id])
            instances = instances_in(found["Reservations"])
            if not instances or tags.OWNER not in tags.tags_in(instances[0]):
                return
            if instances[0]["State"]["Name"] == "terminated":
                return
            if not await self._slots.take(instances[0], number):
                await self._connection.change("ec2", "terminate_instances", InstanceIds=[instance_id])
                self._slots.forget(instance_id)
        except NoSuchResourceError:
            return  # it has gone, or never was

    async def findings(self, nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
        """Return what account, network, rights and quotas say to these nodes; nothing is created."""
        from fleetctl_aws.preflight import judge

        return await judge(self._connection, self._settings, nodes, now=self._clock.now())

    async def _result(self, request: NodeRequest, there: Node | None, resolve_secrets: ResolveSecrets) -> CreateResult:
        try:
            return CreateResult(token=request.token, node=await self._orders.node(request, there, resolve_secrets))
        except FleetctlError as exc:
            return CreateResult(token=request.token, error=exc)

    # A provider must be cheap to construct, and what the environment says wrongly is nobody's who asks another provider.
    @cached_property
    def _settings(self) -> AwsSettings:
        return self._given or AwsSettings.of_environment()

    @cached_property
    def _connection(self) -> AwsConnection:
        return AwsConnection(self._settings)

    @cached_property
    def _groups(self) -> SecurityGroups:
        return SecurityGroups(self._connection, self._settings)

    @cached_property
    def _templates(self) -> LaunchTemplates:
        return LaunchTemplates(self._connection, self._settings)

    @cached_property
    def _secrets(self) -> EngineSecrets:
        return EngineSecrets(self._connection, self._settings)

    @cached_property
    def _shipped(self) -> ShippedLogs:
        return ShippedLogs(self._connection, self._settings)

    @cached_property
    def _slots(self) -> Slots:
        return Slots(self._connection, self._clock, given_up=self._notices.given_up)

    @cached_property
    def _notices(self) -> InstanceNotices:
        return InstanceNotices(self._clock)

    @cached_property
    def _queue(self) -> NoticeQueue:
        return NoticeQueue(self._connection, self._settings)

    @cached_property
    def _orders(self) -> Orders:
        return Orders(
            self._connection, self._settings, self._clock,
            groups=self._groups, templates=self._templates, secrets=self._secrets, slots=self._slots,
        )  # fmt: skip

    @cached_property
    def _shared(self) -> SharedParts:
        return SharedParts(
            {
                "security-group": self._groups, "secrets": self._secrets,
                "launch-templates": self._templates, "notices": self._queue, "logs": self._shipped,
            }
        )  # fmt: skip
