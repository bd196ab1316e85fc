"""What a cluster offers, and what of its GPUs it does not; where it cannot be asked, the pools that the profile names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleetctl.errors import ProviderError
from fleetctl.model.catalogue import OfferList
from fleetctl.model.preflight import Finding, Verdict

if TYPE_CHECKING:
    from fleetctl.model.catalogue import Offering
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.device_claims import DeviceClaims
    from fleetctl_kubernetes.priorities import PriorityClasses
    from fleetctl_kubernetes.settings import ClusterSettings

_UNNAMED_HINT = "install GPU feature discovery (AMD's node labeller), or label the nodes as it would; clouds' labels that are read: profiles/node-gpus.yaml"


class ClusterOffers:
    """Implements ports.OfferLists and ports.LeftOutCapacity."""

    def __init__(
        self,
        connection: ClusterConnection,
        settings: ClusterSettings,
        claims: DeviceClaims,
        priorities: PriorityClasses,
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._claims = claims
        self._priorities = priorities
        self.left_out: tuple[str, ...] = ()
        self.latest: tuple[Offering, ...] = ()  # as they were last read

    async def offerings(self) -> tuple[Offering, ...]:
        """Return shares of the GPUs that the cluster's nodes have, and of those that its autoscaler can bring."""
        from fleetctl_kubernetes.node_gpus import gpus_of, summary
        from fleetctl_kubernetes.offerings import offerings_of
        from fleetctl_kubernetes.pools import node_pools, pools_named, pools_of, refused

        nodes, karpenters = await asyncio.gather(self._claims.nodes(), node_pools(self._connection))
        pools = [pool for each in karpenters for pool in pools_of(each)]
        pools += pools_named(self._settings.pools)
        of_nodes = summary(part for node in nodes for part in gpus_of(node).left_out)
        self.left_out = (*of_nodes, *(why for each in karpenters if (why := refused(each))))
        self.latest = offerings_of(nodes, pools, is_preemptive=await self._priorities.are_by_rank())
        return self.latest

    async def offer_list(self) -> OfferList:
        """Return the same; of a cluster that cannot be asked, what the profile's pools name. Raises ProviderError without any."""
        from fleetctl_kubernetes.offerings import offerings_of
        from fleetctl_kubernetes.pools import pools_named

        try:
            return OfferList(offerings=await self.offerings(), source="the cluster", cautions=self.left_out)
        except ProviderError as exc:
            named = offerings_of((), pools_named(self._settings.pools))
            if not named:
                raise
            cautions = (f"the cluster could not be asked ({exc.message[:160]}): what its nodes have is not known",)
            return OfferList(
                offerings=named, source="the pools that the profile names", is_live=False, cautions=cautions
            )

    async def finding(self) -> list[Finding]:
        """Return what of the cluster's GPUs no replica can have; nothing where all can be had, or nodes may not be read."""
        from fleetctl_kubernetes.node_gpus import UNNAMED

        try:
            await self.offerings()
        except ProviderError:
            return []  # what may not be read is named among the rights
        if not self.left_out:
            return []
        is_unnamed = any(UNNAMED in each for each in self.left_out)
        verdict, hint = (Verdict.WARN, _UNNAMED_HINT) if is_unnamed else (Verdict.OK, "")
        return [Finding(name="GPUs left out", verdict=verdict, detail="; ".join(self.left_out), hint=hint)]
