"""Orders: one CreateFleet each, over every type and zone that it allows, found again by its tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.errors import AmbiguousOutcomeError, ConfigError, ProviderError
from fleetctl.model.catalogue import OfferingKey
from fleetctl.model.node import Node, NodeState
from fleetctl_aws import tags
from fleetctl_aws.boot_documents import BootDocuments
from fleetctl_aws.faults import ParameterMismatchError, of_fleet_errors
from fleetctl_aws.instances import LAUNCHING, instances_in
from fleetctl_aws.network import PORT, find_network
from fleetctl_aws.slots import nodes_of
from fleetctl_aws.user_data import cloud_config
from fleetctl_aws.weights import check_role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleetctl.clock import Clock
    from fleetctl.model.node import NodeRequest
    from fleetctl.ports.provider import ResolveSecrets
    from fleetctl_aws.connection import AwsConnection
    from fleetctl_aws.launch_templates import LaunchTemplates
    from fleetctl_aws.network import Network, SecurityGroups
    from fleetctl_aws.secrets import EngineSecrets
    from fleetctl_aws.settings import AwsSettings
    from fleetctl_aws.slots import Slots

Object = dict[str, Any]
_FILTER_VALUES_MAX = 200  # the most that EC2 takes


class Orders:
    """Launches instances and finds them by their intent's tag."""

    def __init__(  # noqa: PLR0913  # what it works with, each named
        self,
        connection: AwsConnection,
        settings: AwsSettings,
        clock: Clock,
        *,
        groups: SecurityGroups,
        templates: LaunchTemplates,
        secrets: EngineSecrets,
        slots: Slots,
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._clock = clock
        self._groups = groups
        self._templates = templates
        self._secrets = secrets
        self._slots = slots
        self._boots = BootDocuments(connection, settings)

    async def found(self, owner: str, tokens: Iterable[str]) -> dict[str, Node]:
        """Return the nodes of these orders by token, ended ones for as long as EC2 shows them: an hour."""
        wanted = sorted(set(tokens))
        nodes: dict[str, Node] = {}
        for first in range(0, len(wanted), _FILTER_VALUES_MAX):
            # Under whichever of its slots' tags: no two orders have one token.
            among = {"Name": "tag-value", "Values": wanted[first : first + _FILTER_VALUES_MAX]}
            chosen = [*tags.filters({tags.OWNER: owner}), among]
            reservations = await self._connection.read_all("ec2", "describe_instances", "Reservations", Filters=chosen)
            shown = [n for each in instances_in(reservations) for n in nodes_of(each, now=self._clock.now())]
            for node in (each for each in shown if each.token in wanted):
                # A token has one instance; should it ever have two, the one that lives is its, and gc finds the other.
                if node.token not in nodes or nodes[node.token].state is NodeState.GONE:
                    nodes[node.token] = node
        return nodes

    async def node(self, request: NodeRequest, there: Node | None, resolve_secrets: ResolveSecrets) -> Node:
        """Return the one node of a request: the one that is there, or one launched now. Raises ProviderError, ConfigError."""
        if there is not None:
            if (there.replica_id, there.fleet) != (request.replica_id, request.fleet):
                raise ProviderError(f"token {request.token} belongs to {there.replica_id}, not to {request.replica_id}")
            return there
        _check(request)
        check_role(request, self._settings)
        network = await find_network(self._connection, self._settings)
        group = await self._groups.find(request.owner, request.fleet)
        if group is None:
            raise ProviderError(
                f"fleet {request.fleet} has no security group", hint="it is made again at the fleet's next `up`"
            )
        path = await self._secrets.put(request, resolve_secrets)
        text = cloud_config(request, self._settings, region=self._connection.region, secrets_path=path)
        name = self._templates.name_of(request, user_data=text, security_group=group["GroupId"])
        if request.machine_id:
            return await self._slots.place(request, template=name)
        boot = ""
        if self._settings.launch_template:
            template = await self._templates.named()
            boot = await self._boots.put(request, secrets_path=path)
        else:
            template = await self._templates.ensure(name, request, user_data=text, security_group=group["GroupId"])
        named = tags.of_order(request, expiry_s=self._settings.expiry_s, template=name, boot=boot)
        order = fleet_order(
            request, template=template, network=network, named=named, version="$Default" if boot else "1"
        )  # fmt: skip
        try:
            answer = await self._connection.change("ec2", "create_fleet", **order)
        except ParameterMismatchError as exc:
            raise await self._mismatch(request, exc) from exc
        return self._launched(request, answer)

    def _launched(self, request: NodeRequest, answer: Object) -> Node:
        """Return the node of CreateFleet's answer, which has no address yet. Raises what its errors mean."""
        for launched in answer.get("Instances") or ():
            override = (launched.get("LaunchTemplateAndOverrides") or {}).get("Overrides") or {}
            key = OfferingKey.parse(request.offering)
            zone = override.get("AvailabilityZone") or key.zone
            for instance_id in launched.get("InstanceIds") or ():
                return Node(
                    id=instance_id,
                    token=request.token,
                    owner=request.owner,
                    fleet=request.fleet,
                    replica_id=request.replica_id,
                    state=NodeState.STARTING,
                    market=request.market,
                    host="",
                    port=request.port,
                    created_at=self._clock.now(),
                    offering=str(OfferingKey(launched["InstanceType"], zone, request.market.value)),
                    machine_id=instance_id,
                    gpu_indices=request.gpu_indices,
                    boot=LAUNCHING,
                )
        names = frozenset(OfferingKey.parse(key).instance_type for key in _alternatives(request))
        raise of_fleet_errors(answer.get("Errors") or (), market=request.market.value, names=names)

    async def _mismatch(self, request: NodeRequest, exc: ParameterMismatchError) -> ProviderError:
        """Return what follows from a client token that was sent with something else: an earlier attempt may have launched."""
        if request.token in await self.found(request.owner, [request.token]):
            return AmbiguousOutcomeError(exc.message, hint="it is looked up by its tag")
        # What it launched, should it still come to light, is listed under our tags and ended as nobody's.
        return ProviderError(f"{exc.message}; nothing carries its tag", hint="it is ordered anew, as another intent")


def fleet_order(
    request: NodeRequest, *, template: str, network: Network, named: Mapping[str, str], version: str = "1"
) -> Object:
    """Return CreateFleet's parameters, with these tags; the same however often a request is sent. Raises ConfigError without a subnet."""
    overrides = [
        {"InstanceType": key.instance_type, "SubnetId": network.subnets[key.zone], "AvailabilityZone": key.zone}
        for key in map(OfferingKey.parse, _alternatives(request))
        if key.zone in network.subnets
    ]
    if not overrides:
        raise ConfigError(
            f"{request.offering} is in no zone with a subnet of ours: {', '.join(sorted(network.subnets))}",
            hint="give capacity.zones in the profile, or other subnets",
        )
    return {
        "Type": "instant",
        "ClientToken": tags.client_token(request.owner, request.token),
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": 1, "DefaultTargetCapacityType": request.market.value,
        },
        # No highest price is given: it would only have instances ended that are paid at the market's.
        "SpotOptions": {"AllocationStrategy": "price-capacity-optimized"},
        "OnDemandOptions": {"AllocationStrategy": "lowest-price"},
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": version},
                "Overrides": overrides,
            }
        ],
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags.tag_list(named)} for kind in ("instance", "volume", "fleet")],
    }  # fmt: skip


def _alternatives(request: NodeRequest) -> list[str]:
    """Return the offerings of one request, the first choice first: one CreateFleet buys on one market."""
    keys = dict.fromkeys((request.offering, *request.alternatives))
    return [key for key in keys if OfferingKey.parse(key).market in ("", request.market.value)]


def _check(request: NodeRequest) -> None:
    if request.node_count > 1:
        raise ProviderError(
            f"{request.replica_id} spans {request.node_count} machines, and the AWS provider makes one instance of it",
            hint="leave launch.pipeline_parallel out of the profile",
        )
    if not request.argv:
        raise ConfigError(f"{request.replica_id} has no command", hint="this is a bug in fleetctl; please report it")
    if not request.port:
        raise ConfigError(f"{request.replica_id} has no port to listen on", hint=f"engines listen on {PORT} here")
