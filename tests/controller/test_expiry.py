"""What was set by hand for a while ends by the controller's clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fleetctl.model.desired import WHOLE_FLEET, Overrides, Terms
from fleetctl.model.replica import ReplicaState
from tests.controller.rig import FLEET, Rig


def held(rig: Rig) -> Overrides:
    desired = rig.store.fleet(FLEET)
    assert desired is not None
    return desired.overrides


def test_a_count_set_for_a_while_ends_and_the_journal_says_so_once(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        await rig.run(10)
        now = rig.clock.now()
        terms = Terms(by="alice", since=now, until=now + timedelta(seconds=60), is_duration=True)
        rig.store.set_overrides(FLEET, Overrides(replicas={"short": 3}, replicas_terms={"short": terms}), now=now)
        await rig.run(30)
        assert len([r for r in rig.replicas(ReplicaState.READY) if r.lane == "short"]) == 3
        await rig.run(60)
        assert held(rig) == Overrides()
        assert len([line for line in rig.journal("scale") if "short scaled to 3, set by alice until" in line]) == 1
        assert len([r for r in rig.replicas(ReplicaState.READY) if r.lane == "short"]) == 2

    on_rig(scenario)


def test_an_end_that_passed_while_no_controller_ran_is_made_at_once(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        await rig.run(10)
        now = rig.clock.now()
        rig.store.set_overrides(
            FLEET, Overrides(freezes={WHOLE_FLEET: Terms(until=now + timedelta(seconds=5))}), now=now
        )
        await rig.clock.sleep(30.0)
        await rig.run(3)
        assert held(rig).freezes == {}
        assert len(rig.journal("thaw")) == 1

    on_rig(scenario)


def test_a_freeze_survives_the_controller(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        await rig.run(10)
        rig.store.set_overrides(FLEET, Overrides(freezes={WHOLE_FLEET: Terms(reason="launch")}), now=rig.clock.now())
        for _ in range(3):
            await rig.run(5)
        assert held(rig).freezes == {WHOLE_FLEET: Terms(reason="launch")}

    on_rig(scenario)


def test_what_a_person_sets_meanwhile_is_not_lost_to_an_end(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        await rig.run(10)
        now = rig.clock.now()
        before = Overrides(freezes={WHOLE_FLEET: Terms(until=now + timedelta(seconds=5))})
        rig.store.set_overrides(FLEET, before, now=now)
        after = replace(before, replicas={"short": 3})
        rig.store.set_overrides(FLEET, after, now=now, expected=before)
        stale = rig.store.set_overrides(FLEET, Overrides(), now=now, expected=before)
        assert stale.overrides == after
        await rig.run(10)
        assert held(rig).replicas == {"short": 3}

    on_rig(scenario)
