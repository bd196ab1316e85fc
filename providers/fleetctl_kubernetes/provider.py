"""The Kubernetes provider: every node is a pod in one namespace of an existing cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import AmbiguousOutcomeError, CredentialsError, FleetctlError
from fleetctl.model.node import CreateResult, NodeListing, NodeState, ProviderPace
from fleetctl.ports.provider import ListenAddress, ProviderCapabilities
from fleetctl_kubernetes import manifest
from fleetctl_kubernetes.cluster_place import AuthorityPlaces
from fleetctl_kubernetes.connection import ClusterConnection, ConflictError, NoAnswerError, NotThereError
from fleetctl_kubernetes.cordons import cordoned_text
from fleetctl_kubernetes.device_claims import DeviceClaims
from fleetctl_kubernetes.events import PodEvents
from fleetctl_kubernetes.group_members import group_of, set_of
from fleetctl_kubernetes.groups import ReplicaGroups
from fleetctl_kubernetes.identity import PodIdentities, has_labels, is_made_by_us
from fleetctl_kubernetes.interruptions import PodInterruptions
from fleetctl_kubernetes.lane_objects import LaneObjects
from fleetctl_kubernetes.lane_order import in_lane_order
from fleetctl_kubernetes.offer_list import ClusterOffers
from fleetctl_kubernetes.offered_nodes import OfferedNodes
from fleetctl_kubernetes.orders import check_request, node_of, order_in, token_taken
from fleetctl_kubernetes.pod_logs import PodLogs
from fleetctl_kubernetes.preemptions import takers_of
from fleetctl_kubernetes.priorities import PriorityClasses
from fleetctl_kubernetes.records import PRIORITIES, FleetRecords, ended_in, is_owned
from fleetctl_kubernetes.settings import (
    MANAGED_BY,
    MANAGER,
    OWNER,
    SETTINGS,
    VARIABLES,
    ClusterSettings,
    fleet_labels,
    label_value,
    pod_name,
    selector,
)
from fleetctl_kubernetes.waiting import WaitingPods

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.clock import Clock
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.node import Node, NodeRequest, Notice
    from fleetctl.model.preflight import Finding, PlannedNodes
    from fleetctl.model.provider_setting import SettingValue
    from fleetctl.model.shared import SharedResource
    from fleetctl.ports.provider import ResolveSecrets

Object = dict[str, Any]
_CORE = "CoreV1Api"
_BATCH_MAX = 50  # what is looked at before them, the fleet's ConfigMap and its lanes' names, is looked at once
_PRUNE_EVERY_S = 60.0
# The API server's admission hears of a new PriorityClass by a watch of its own, within a second where the machine is not busy.
_CLASS_KNOWN_S, _CLASS_AGAIN_S = 10.0, 0.25


class KubernetesProvider:
    """Implements ports.Provider, ProviderSettings, SharedResources and Preflight; its events are PodEvents, its logs PodLogs.

    A node's id is its pod's name, which follows from the order's token: the API server itself refuses a second one. Any
    number of processes may use it on the same nodes.
    """

    name = "kubernetes"
    declared = SETTINGS

    def __init__(self, clock: Clock | None = None, *, settings: ClusterSettings | None = None) -> None:
        self._clock = clock or SYSTEM_CLOCK
        self._settings = settings or ClusterSettings.of_environment()
        self._connection = ClusterConnection(self._settings)
        self._records = FleetRecords(self._connection, self._clock)
        self._lanes = LaneObjects(self._connection, self._clock, self._settings)
        # The fleets that this process creates pods for: what stands around them is its to write. Who only looks changes nothing.
        self._kept: set[tuple[str, str]] = set()
        self._priorities = PriorityClasses(self._connection, self._settings)
        self._groups = ReplicaGroups(self._connection, self._records, self._clock)
        self._claims = DeviceClaims(self._connection, self._settings)
        self._offers = ClusterOffers(self._connection, self._settings, self._claims, self._priorities)
        self._waiting = WaitingPods(self._connection, self._clock)
        self._identities = PodIdentities(self._connection, self._clock)
        offered = OfferedNodes()
        self._events = PodEvents(self._connection, self._records, self._identities, self._clock, offered)
        self._logs = PodLogs(self._connection)
        self._interruptions = PodInterruptions(
            self._connection, self._records, self._groups, self._clock, self._identities.warnings
        )
        self._cordoned = ""  # which machines took nothing new when they were last looked at
        self._pruned_s: dict[tuple[str, str], float] = {}
        self.pace = ProviderPace(
            list_interval_s=1.0, list_latency_s=0.1, list_deadline_s=30.0, describe_deadline_s=30.0,
            offerings_deadline_s=30.0, preflight_deadline_s=30.0, create_deadline_s=90.0, create_settles_s=25.0,
        )  # fmt: skip
        self.capabilities = ProviderCapabilities(
            batch_max=_BATCH_MAX, node_groups=True, events=self._events, shared=self, preflight=self, settings=self,
            logs=self._logs, places=AuthorityPlaces(self._connection), variables=VARIABLES,
            offer_lists=self._offers, left_out=self._offers, targets=self._lanes, offering_events=offered,
            interruptions=self._interruptions,
        )  # fmt: skip

    def configured(self, given: Mapping[str, SettingValue]) -> KubernetesProvider:
        """Return a provider that works where a profile says, else where the environment does."""
        return KubernetesProvider(self._clock, settings=self._settings.changed_by(given))

    async def offerings(self) -> tuple[Offering, ...]:
        """Return shares of the GPUs that the cluster's nodes have, and of those that its autoscaler can bring."""
        return await self._offers.offerings()

    async def listen_addresses(self, count: int, *, avoid: frozenset[int]) -> tuple[ListenAddress, ...]:
        """Return the same port of the pod's own address, which Kubernetes fills in when it starts the container."""
        del avoid  # every pod has all ports of its own address
        return (ListenAddress(host=manifest.OWN_ADDRESS, port=manifest.PORT),) * count

    async def create(
        self, requests: tuple[NodeRequest, ...], *, resolve_secrets: ResolveSecrets
    ) -> tuple[CreateResult, ...]:
        """Create a pod each; a name follows from a token, so none has two, whoever asks and however the first asker died."""
        fleets = {(request.owner, request.fleet) for request in requests}
        self._kept |= fleets
        try:
            anchors = {fleet: await self._anchor(*fleet) for fleet in sorted(fleets)}
            for owner, fleet in sorted(fleets):
                lanes = {label_value(each.lane) for each in requests if (each.owner, each.fleet) == (owner, fleet)}
                await self._lanes.refuse_strangers(owner, fleet, lanes)
        except NoAnswerError as exc:
            raise _unsent(exc) from exc
        return await in_lane_order(
            requests, lambda each: self._result(each, anchors[each.owner, each.fleet], resolve_secrets)
        )

    async def list_nodes(self, *, owner: str, fleet: str) -> NodeListing:
        """Return the fleet's pods as nodes, and the records of those that were stopped in the last hour."""
        as_of = self._clock.now()
        labels = fleet_labels(owner, fleet)
        listing, anchor, notices, sets = await asyncio.gather(
            self._connection.read(
                _CORE, "list_namespaced_pod", await self._namespace(), label_selector=selector(labels)
            ),
            self._records.anchor(owner, fleet),
            self._notices((owner, fleet)),
            self._groups.of_fleet(owner, fleet),
        )
        self._logs.note_pods(owner, fleet, listing["items"])
        is_keeper = self._keeps(owner, fleet)
        is_edited = is_keeper and not has_labels(anchor, labels)
        if is_edited and (mended := await self._records.reclaimed(owner, fleet, listing["items"])) is not None:
            anchor = mended
            self._identities.warnings.say(
                (owner, fleet), "records", "its ConfigMap was changed, its labels are set back"
            )
        ended = ended_in(anchor)
        pods = await self._identities.of_fleet(
            owner, fleet, listing["items"], ended=ended, is_keeper=is_keeper, targets=self._lanes.targets(owner, fleet)
        )
        in_vain = await self._waiting.in_vain(pods.values())
        nodes = await self._groups.nodes(
            sets, [pod for pod in pods.values() if group_of(pod)],
            ended=ended, notices=notices, in_vain=in_vain, is_keeper=is_keeper,
        )  # fmt: skip
        takers = takers_of(pods.values())
        nodes += [
            replace(
                node_of(pod, record=ended.get(name), notices=notices, takers=takers), is_out_of_stock=name in in_vain
            )
            for name, pod in pods.items()
            if not group_of(pod)
        ]
        there = {node.id for node in nodes}
        nodes += [record.node() for name, record in ended.items() if name not in there]
        if is_keeper:
            await self._interruptions.carry_out((owner, fleet), pods.values())
            self._lanes.note_cordoned(owner, fleet, pods.values(), self._cordoned)
            await self._lanes.keep(owner, fleet, anchor=anchor, pods=pods.values())
        await self._prune(owner, fleet, ended, there)
        warned = (*self._identities.warnings.of_fleet((owner, fleet)), *self._lanes.warnings.of_fleet((owner, fleet)))
        warned += self._offers.left_out if is_keeper else ()
        listed = tuple(sorted(nodes, key=lambda node: (node.created_at, node.id)))
        return NodeListing(nodes=listed, as_of=as_of, warnings=warned)

    async def describe(self, token: str, *, owner: str) -> Node | None:
        """Return an order's pod as a node, or its record; None: there is neither."""
        name = pod_name(owner, token)
        pod = await self._pod(name)
        if pod is not None and is_made_by_us(pod) and (order := order_in(pod)).owner == owner:
            if self._keeps(owner, order.fleet):
                await self._interruptions.carry_out((owner, order.fleet), (pod,))
            ended = ended_in(await self._records.anchor(owner, order.fleet))
            return node_of(pod, record=ended.get(name), notices=await self._notices((owner, order.fleet)))
        return await self._group(name, owner) or await self._recorded(name, owner)

    def _keeps(self, owner: str, fleet: str) -> bool:
        """Whether this process is a fleet's controller: it has created pods of it, or watches them."""
        return (owner, fleet) in self._kept or self._events.is_watching(owner, fleet)

    async def _group(self, name: str, owner: str) -> Node | None:
        """Return a replica over several nodes; None: there is none of this name."""
        group, pods = await self._groups.find(name), await self._groups.pods_of(name)
        of_owner = [each for each in (group, *pods) if each is not None and is_owned(each, owner)]
        if not of_owner:
            return None
        fleet = order_in(of_owner[0]).fleet
        ended = ended_in(await self._records.anchor(owner, fleet))
        is_keeper = self._keeps(owner, fleet)
        if is_keeper:
            await self._interruptions.carry_out((owner, fleet), pods)
        (node,) = await self._groups.nodes(
            {name: group} if group is not None else {}, pods,
            ended=ended, notices=await self._notices((owner, fleet)), is_keeper=is_keeper,
        )  # fmt: skip
        return node

    async def stop(self, node_id: str, *, grace_s: float) -> None:
        """Remember that it was stopped, then delete the pod; kubelet ends it after `grace_s` at the latest."""
        pod = await self._pod(node_id)
        if pod is None and (group := await self._groups.find(node_id)) is not None:
            if (group["metadata"].get("labels") or {}).get(MANAGED_BY) == MANAGER:
                await self._groups.stop(group, grace_s=manifest.grace_period(grace_s))
            return
        if pod is None or not is_made_by_us(pod):
            return
        await self._records.note_stopped(pod)
        body = {
            "gracePeriodSeconds": manifest.grace_period(grace_s),
            "preconditions": {"uid": pod["metadata"]["uid"]},
        }
        try:
            await self._connection.change(
                _CORE, "delete_namespaced_pod", node_id, await self._namespace(), body=body
            )  # fmt: skip
        except (NotThereError, ConflictError):
            return  # it has gone meanwhile

    def needed(self, *, owner: str, fleet: str) -> tuple[SharedResource, ...]:
        """Return the service account of the fleet's pods, its marks on PriorityClasses, and the ConfigMap that owns the pods."""
        return self._records.needed(owner, fleet)

    async def prepare(self, resource: SharedResource) -> None:
        """Apply it server-side, as the field manager `fleetctl`; a PriorityClass is made with the first pod that has it."""
        if resource.kind != PRIORITIES:
            await self._records.prepare(resource)

    async def teardown(self, resource: SharedResource) -> None:
        """Delete it, if it is ours, and no other fleet's too."""
        if resource.kind == PRIORITIES:
            await self._priorities.release(resource.owner, resource.fleet)
        else:
            await self._records.teardown(resource)

    async def findings(self, nodes: tuple[PlannedNodes, ...]) -> tuple[Finding, ...]:
        """Return what the cluster, the namespace and the rights in it say to these nodes."""
        from fleetctl_kubernetes.preflight import judge

        return await judge(self._connection, self._settings, nodes, self._offers)

    async def _anchor(self, owner: str, fleet: str) -> Object:
        """Return a fleet's ConfigMap; one that somebody has deleted, and its pods with it, is made again. Raises ProviderError."""
        found = await self._records.anchor(owner, fleet)
        if found is not None:
            return found
        made = await self._records.made_again(owner, fleet)
        self._identities.warnings.say((owner, fleet), "records", "its ConfigMap was gone, and is made again")
        return made

    async def _result(self, request: NodeRequest, anchor: Object, resolve_secrets: ResolveSecrets) -> CreateResult:
        try:
            return CreateResult(token=request.token, node=await self._made(request, anchor, resolve_secrets))
        except NoAnswerError as exc:
            return CreateResult(token=request.token, error=_unsent(exc))
        except FleetctlError as exc:
            return CreateResult(token=request.token, error=exc)

    async def _made(self, request: NodeRequest, anchor: Object, resolve_secrets: ResolveSecrets) -> Node:
        """Return the one node of a request. Raises ProviderError, and ConfigError for secrets that lead nowhere."""
        check_request(request)
        name = pod_name(request.owner, request.token)
        record = ended_in(anchor).get(name)
        resolved = resolve_secrets(request.env)
        secrets = tuple(sorted(key for key, value in resolved.items() if value != request.env.get(key)))
        if record is not None:
            if not record.order.belongs_to(request):
                raise token_taken(request, record.order.replica_id)
            pod = await self._pod(name)
            if pod is None:
                return await self._group(name, request.owner) or record.node()
            return node_of(pod, record=record, notices={})
        claim = await self._claims.template_for(request, anchor)
        body = manifest.pod_of(
            request, image=self._settings.image, anchor=anchor, secrets=secrets, claim=claim,
            pull_secrets=self._settings.image_pull_secrets,
        )  # fmt: skip
        if request.node_count > 1:
            body = await self._prioritised(request, body)
            pod = {"kind": "LeaderWorkerSet", **await self._groups.make(name, set_of(request, body))}
        else:
            pod = await self._posted_in_class(request, name, body)
        if not order_in(pod).belongs_to(request):
            raise token_taken(request, order_in(pod).replica_id)
        if secrets:
            await self._keep_secret(manifest.secret_of(request, {key: resolved[key] for key in secrets}, pod))
        return self._groups.made(pod) if request.node_count > 1 else node_of(pod, record=None, notices={})

    async def _prioritised(self, request: NodeRequest, body: Object) -> Object:
        priority_class = await self._priorities.class_of(request)
        return {**body, "spec": {**body["spec"], **({"priorityClassName": priority_class} if priority_class else {})}}

    async def _posted_in_class(self, request: NodeRequest, name: str, body: Object) -> Object:
        """Return the pod of this name, made with its lane's PriorityClass. Raises AmbiguousOutcomeError where that is not known in time."""
        end_s = self._clock.monotonic_s() + _CLASS_KNOWN_S
        while True:
            try:
                return await self._posted(name, await self._prioritised(request, body))
            except CredentialsError as exc:
                if "PriorityClass" in exc.message:
                    # Somebody has taken the class away, or the API server's admission has not heard of it yet: it is had made again.
                    self._priorities.forget(request.owner, request.fleet)
                elif "looking up service account" in exc.message:
                    await self._records.make_account(request.owner, request.fleet)  # somebody has deleted it
                else:
                    raise
                if self._clock.monotonic_s() >= end_s:
                    raise AmbiguousOutcomeError(exc.message, hint="the order is sent again by its token") from exc
            await self._clock.sleep(_CLASS_AGAIN_S)

    async def _posted(self, name: str, body: Object) -> Object:
        """Return the pod of this name: made now, or there already."""
        namespace = await self._namespace()
        try:
            made = await self._connection.change(
                _CORE, "create_namespaced_pod", namespace, body, field_manager=MANAGER
            )  # fmt: skip
        except ConflictError:
            found = await self._pod(name)
            if found is None:
                raise AmbiguousOutcomeError(
                    f"pod {name} was there and has gone", hint="it is looked up again"
                ) from None
            return found
        return {"kind": "Pod", **made}

    async def _keep_secret(self, body: Object) -> None:
        """Have the pod's Secret there: its container waits for it."""
        try:
            await self._connection.change(
                _CORE, "create_namespaced_secret", await self._namespace(), body, field_manager=MANAGER
            )  # fmt: skip
        except ConflictError:
            return  # made by an earlier attempt at the same order

    async def _pod(self, name: str) -> Object | None:
        try:
            found = await self._connection.read(_CORE, "read_namespaced_pod", name, await self._namespace())
        except NotThereError:
            return None
        return {"kind": "Pod", **found}

    async def _recorded(self, name: str, owner: str) -> Node | None:
        """Return the record of a pod that has gone, from whichever of the owner's fleets it was."""
        labels = selector({MANAGED_BY: MANAGER, OWNER: label_value(owner)})
        namespace = await self._namespace()
        maps = await self._connection.read(_CORE, "list_namespaced_config_map", namespace, label_selector=labels)
        record = next((found[name] for each in maps["items"] if name in (found := ended_in(each))), None)
        return None if record is None else record.node(NodeState.GONE)

    async def _notices(self, of: tuple[str, str]) -> dict[str, Notice]:
        """Return what is said of machines, by name; nothing where nodes may not be read, which is said."""
        from fleetctl_kubernetes.notices import notice_of

        try:
            nodes = (await self._connection.read(_CORE, "list_node", resource_version="0"))["items"]
        except CredentialsError as exc:
            self._identities.warnings.say(of, "nodes", f"{exc.message}: what is said of machines is not seen")
            return {}
        self._cordoned = cordoned_text(nodes)
        return {node["metadata"]["name"]: notice for node in nodes if (notice := notice_of(node)) is not None}

    async def _prune(self, owner: str, fleet: str, ended: dict[str, Any], living: set[str]) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._pruned_s.get((owner, fleet), float("-inf")) >= _PRUNE_EVERY_S:
            self._pruned_s[owner, fleet] = now_s
            await self._records.prune(owner, fleet, ended, living)

    async def _namespace(self) -> str:
        # Connecting reads files, and may start the program that gives credentials.
        return await asyncio.to_thread(lambda: self._connection.namespace)


def _unsent(exc: NoAnswerError) -> AmbiguousOutcomeError:
    """Return what has the order sent again by the same token: an API server that is away is no failed start of an engine."""
    return AmbiguousOutcomeError(exc.message, hint=exc.hint)
