"""What a tick asks of the provider's package, however many replicas there are."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fleetctl.core.reconcile import reconcile

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation
    from fleetctl.ports.provider import ProviderCapabilities
    from fleetctl.testing.provider import FakeProvider
    from tests.controller.rig import Rig

_BOOT_S = 600.0


class CountingProvider:
    """Counts how often somebody looks up what it can do, which some providers work out each time."""

    def __init__(self, behind: FakeProvider) -> None:
        self._behind = behind
        self.lookups = 0

    @property
    def capabilities(self) -> ProviderCapabilities:
        self.lookups += 1
        return self._behind.capabilities

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


def test_a_provider_is_asked_what_it_can_do_once_for_all_that_start(on_rig):
    async def scenario(rig: Rig) -> None:
        at: dict[int, list[int]] = {}

        def decide(desired: Desired, observation: Observation, memory: Memory, now: datetime) -> Decision:
            at.setdefault(len(observation.replicas), []).append(provider.lookups)
            return reconcile(desired, observation, memory, now)

        provider = CountingProvider(rig.provider)
        rig.provider.boot_s = _BOOT_S
        rig.world = replace(rig.world, provider=provider, policy_of=lambda _: decide)
        rig.up()
        await rig.run(30.0)
        assert len(rig.replicas()) == 4
        assert min(later - earlier for earlier, later in pairwise(at[4])) < 4

    on_rig(scenario)
