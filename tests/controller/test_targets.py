"""A provider that guards replicas against others is told how many each lane is to have, whatever is there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.errors import ProviderError
from fleetctl.model.replica import ReplicaState
from fleetctl.testing.provider import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.controller.rig import Rig


class Targets:
    """Keeps what it was told last."""

    def __init__(self) -> None:
        self.wanted: dict[str, int] = {}
        self.moved: dict[str, str] = {}

    def note_targets(
        self, *, owner: str, fleet: str, wanted: Mapping[str, int], moved: Mapping[str, str], epoch: int
    ) -> None:
        assert owner
        assert fleet
        self.wanted, self.moved = dict(wanted), dict(moved)


def test_what_is_wanted_is_said_while_it_lacks_and_nothing_once_the_fleet_goes_down(on_rig):
    async def scenario(rig: Rig) -> None:
        targets = Targets()
        rig.provider.capabilities = replace(rig.provider.capabilities, targets=targets)
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(30.0)
            ready = rig.replicas(ReplicaState.READY)
            wanted = {lane: sum(r.lane == lane for r in ready) for lane in {r.lane for r in ready}}
            assert targets.wanted == wanted
            # All but one are taken, and nobody can be had in their stead.
            rig.provider.script("create", *[Fault(error=ProviderError("no room"))] * 500)
            for each in ready[1:]:
                rig.provider.end(rig.token(each.id), "evicted")
            await rig.clock.sleep(10.0)
            assert len(rig.replicas(ReplicaState.READY)) == 1
            assert targets.wanted == wanted
            assert targets.moved == {}
            rig.down()
            await rig.clock.sleep(5.0)
            assert set(targets.wanted.values()) == {0}

    on_rig(scenario)
