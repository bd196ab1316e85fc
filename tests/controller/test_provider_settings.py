"""A setting of the provider that is changed on a running fleet: the controller goes on by it, and no replica leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.replica import ReplicaState
from fleetctl.testing import samples
from tests.controller.rig import FLEET, Rig

if TYPE_CHECKING:
    from fleetctl.model.profile import Profile
    from fleetctl.testing.provider import FakeProvider


def test_a_changed_setting_is_followed_with_every_replica_in_place(on_rig):
    async def scenario(rig: Rig) -> None:
        first = replace(samples.profile(FLEET), provider_settings={"image": "v1"})
        seen: list[dict[str, object]] = []

        def configured(profile: Profile) -> FakeProvider:
            seen.append(dict(profile.provider_settings))
            return rig.provider

        rig.world = replace(rig.world, choice=first.provider_choice, provider_of=configured)
        rig.up(first)
        async with rig.controller():
            await rig.clock.sleep(10.0)
            before = {r.id for r in rig.replicas(ReplicaState.READY)}
            assert seen == []
            rig.up(replace(first, provider_settings={"image": "v2"}))
            await rig.clock.sleep(10.0)
            assert seen == [{"image": "v2"}]
            rig.up(replace(first, provider_settings={"image": "v2"}))
            await rig.clock.sleep(10.0)
            assert seen == [{"image": "v2"}]
        assert len(before) == 4
        assert {r.id for r in rig.replicas(ReplicaState.READY)} == before

    on_rig(scenario)
