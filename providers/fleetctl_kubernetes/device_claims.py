"""What of a cluster's GPUs is had by DRA, as its ResourceSlices say, and the templates that pods claim them by."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from fleetctl.catalogue.kubernetes_nodes import GPU
from fleetctl.catalogue.kubernetes_rights import CLAIM_NODE_RIGHTS, CLAIM_RIGHTS
from fleetctl.catalogue.node_gpus import resource_of
from fleetctl.errors import CredentialsError, ProviderError
from fleetctl.model.catalogue import OfferingKey
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_kubernetes import claims
from fleetctl_kubernetes.connection import ConflictError, NotThereError
from fleetctl_kubernetes.manifest import reference_to
from fleetctl_kubernetes.records import is_owned
from fleetctl_kubernetes.reviews import may
from fleetctl_kubernetes.settings import MANAGER, fleet_labels

if TYPE_CHECKING:
    from fleetctl.model.node import NodeRequest
    from fleetctl.model.preflight import PlannedNodes
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.settings import ClusterSettings

Object = dict[str, Any]
_API = "ResourceV1Api"
_PLUGIN, _DRA = "device-plugin", "dra"
_TYPE = re.compile(r"\d+x(?P<product>.+)")


class DeviceClaims:
    """Which products pods claim, looked up with the offerings; templates are a fleet's, and go with its ConfigMap."""

    def __init__(self, connection: ClusterConnection, settings: ClusterSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._claimed: frozenset[str] | None = None  # None: not looked up yet
        self._templates: set[tuple[str, str]] = set()  # by name, each with the uid of the ConfigMap that it goes with

    async def nodes(self) -> list[Object]:
        """Return the cluster's nodes with the GPUs that either way shows."""
        nodes, slices = await asyncio.gather(self._connection.read("CoreV1Api", "list_node"), self._slices())
        is_forced = self._settings.gpu_requests == _DRA
        self._claimed = claims.claimed_products(() if is_forced else nodes["items"], slices)
        return claims.with_claimed(nodes["items"], slices, is_forced=is_forced)

    async def template_for(self, request: NodeRequest, anchor: Object) -> str:
        """Return the template of a request's claim, which is there; empty: its GPUs are the device plugin's."""
        match = _TYPE.fullmatch(OfferingKey.parse(request.offering).instance_type)
        if not request.gpu_count or match is None or not await self.is_claimed(match["product"]):
            return ""
        name = claims.template_name(request.owner, request.fleet, match["product"], request.gpu_count)
        made = (name, anchor["metadata"]["uid"])
        if made not in self._templates:
            body = claims.template_of(
                name, match["product"], request.gpu_count,
                labels=fleet_labels(request.owner, request.fleet), reference=reference_to(anchor),
            )  # fmt: skip
            await self._have(name, body, request.owner)
            self._templates.add(made)
        return name

    async def is_claimed(self, product: str) -> bool:
        """Whether pods get GPUs of a product by a claim; AMD's they get of the device plugin alone."""
        if resource_of(product) != GPU:
            return False
        if self._settings.gpu_requests:
            return self._settings.gpu_requests == _DRA
        if self._claimed is None:
            await self.nodes()
        return product in (self._claimed or ())

    async def _have(self, name: str, body: Object, owner: str) -> None:
        namespace = await asyncio.to_thread(lambda: self._connection.namespace)
        try:
            await self._connection.change(
                _API, "create_namespaced_resource_claim_template", namespace, body, field_manager=MANAGER
            )
        except ConflictError:
            found = await self._connection.read(
                _API, "read_namespaced_resource_claim_template", name, namespace
            )  # fmt: skip
            if not is_owned(found, owner):
                raise ProviderError(
                    f"ResourceClaimTemplate {name} in {namespace} is somebody else's",
                    hint="nothing of it was touched: remove it, or work in another namespace",
                ) from None

    async def _slices(self) -> list[Object]:
        if self._settings.gpu_requests == _PLUGIN:
            return []
        try:
            return list((await self._connection.read(_API, "list_resource_slice"))["items"])
        except (NotThereError, CredentialsError):
            return []  # a cluster before 1.34, or doctor says that they may not be listed


async def claims_finding(
    connection: ClusterConnection, settings: ClusterSettings, nodes: tuple[PlannedNodes, ...]
) -> list[Finding]:
    """Return what DRA needs, where planned GPUs are claimed by it; nothing where none is."""
    claimed = DeviceClaims(connection, settings)
    products = [
        match["product"]
        for each in nodes
        if each.gpu_count and (match := _TYPE.fullmatch(each.offering.instance_type)) is not None
    ]
    if not any([await claimed.is_claimed(product) for product in products]):
        return []
    name, place = "DRA", connection.namespace
    try:
        await connection.read(_API, "read_device_class", claims.DEVICE_CLASS)
    except NotThereError:
        hint = "install NVIDIA's DRA driver, or have the device plugin show GPUs: provider.gpu_requests: device-plugin"
        detail = f"there is no DeviceClass {claims.DEVICE_CLASS}"
        return [Finding(name=name, verdict=Verdict.FAIL, detail=detail, hint=hint)]
    except CredentialsError:
        pass  # said below
    missing = [f"{verb} {what}" for verb, what in CLAIM_RIGHTS if not await may(connection, verb, what, place)]
    missing += [
        f"{verb} {what} (cluster)" for verb, what in CLAIM_NODE_RIGHTS if not await may(connection, verb, what, "")
    ]
    if missing:
        hint = f"have them granted; see `kubectl auth can-i --list -n {place}`"
        return [Finding(name=name, verdict=Verdict.FAIL, detail=f"not allowed: {', '.join(missing)}", hint=hint)]
    return [Finding(name=name, verdict=Verdict.OK, detail=f"GPUs are claimed of DeviceClass {claims.DEVICE_CLASS}")]
