"""A policy in shadow decides beside the active one: it is compared, and alters nothing. Nor does a fleet's own in mode shadow."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.core.reconcile import reconcile
from fleetctl.core.scaling import Target
from fleetctl.core.static_policy import static
from fleetctl.errors import NotFoundError
from fleetctl.model.profile import ControlSpec, Mode
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.shadow import ShadowComparison, ShadowTotals
from fleetctl.operations.shadow import shadow_report
from fleetctl.ports.records import Collection, is_shadow_totals
from fleetctl.testing.virtual_time import run_virtual
from tests.cli.test_json_reference import differences
from tests.controller.rig import FLEET, Rig
from tests.reconcile.worlds import traffic
from tests.sites import FakeSite

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.core.lane_view import LaneView
    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation

GREEDY = ControlSpec(shadow_policy="greedy")


def greedy(desired: Desired, observation: Observation, memory: Memory, now: datetime) -> Decision:
    """Want all that the lanes' bounds allow."""

    def most(view: LaneView) -> Target:
        wanted = view.spec.replicas.max
        kept = replace(view.memory, wanted=wanted, planned=view.plan.replicas)
        return Target(wanted=wanted, memory=kept, code=ReasonCode.LOAD, reason="all there is")

    return reconcile(desired, observation, memory.keeping("greedy", 1), now, scaling=most)


def broken(desired: Desired, observation: Observation, memory: Memory, now: datetime) -> Decision:
    del desired, observation, memory, now
    raise ZeroDivisionError("a bug of its own")


def choose(rig: Rig) -> Rig:
    known = {"built-in": reconcile, "greedy": greedy, "broken": broken, "static": static}
    rig.world = replace(rig.world, policy_of=known.__getitem__)
    return rig


def comparisons(rig: Rig) -> list[ShadowComparison]:
    found = rig.store.records(Collection.SHADOW, fleet=FLEET)
    return [each.value_as(ShadowComparison) for each in found if not is_shadow_totals(each.key)]


def totals(rig: Rig) -> dict[str, ShadowTotals]:
    found = [each for each in rig.store.records(Collection.SHADOW, fleet=FLEET) if is_shadow_totals(each.key)]
    return {each.lane: each for each in (one.value_as(ShadowTotals) for one in found)}


def test_what_would_be_is_written_down(on_rig):
    async def scenario(rig: Rig) -> None:
        choose(rig).up(control=GREEDY)
        await rig.run(30)
        found = {each.lane: each for each in comparisons(rig)}
        assert not found["short"].agrees
        assert (found["short"].active.wanted, found["short"].shadow.wanted) == (2, 8)
        assert found["short"].shadow.reason == "all there is"
        assert any(each.shadow.actions.get("launch") for each in comparisons(rig))
        assert len(comparisons(rig)) < 20
        short = totals(rig)["short"]
        assert (short.active_policy, short.shadow_policy, short.agreed_share) == ("built-in", "greedy", 0.0)
        assert 19.0 < short.compared_s <= 30.0
        assert short.shadow_replica_hours == pytest.approx(4 * short.active_replica_hours)
        assert short.shadow_usd > short.active_usd

    on_rig(scenario)


def test_the_active_policy_decides_as_if_none_were_in_shadow(tmp_path):
    seen = []

    async def scenario(control: ControlSpec) -> None:
        home = tmp_path / (control.shadow_policy or "alone")
        home.mkdir()
        rig = choose(Rig(home))
        rig.up(control=control)
        await rig.run(30)
        journal = [(e.at, e.subject, e.action, e.reason, e.shadow) for e in rig.store.journal(FLEET, limit=1000)]
        replicas = [(r.id, r.lane, r.state, r.changed_at) for r in rig.replicas()]
        seen.append((rig.store.memory(FLEET), replicas, journal, len(rig.provider.live_tokens)))
        rig.store.close()

    run_virtual(scenario(ControlSpec()))
    run_virtual(scenario(GREEDY))
    alone, beside = seen
    assert alone == beside


def test_a_policy_beside_itself_always_agrees(on_rig):
    async def scenario(rig: Rig) -> None:
        choose(rig).up(control=ControlSpec(shadow_policy="built-in"))
        await rig.run(30)
        assert {each.agreed_share for each in totals(rig).values()} == {1.0}
        assert all(each.agrees for each in comparisons(rig))

    on_rig(scenario)


def test_one_that_fails_is_journalled_and_holds_nobody_up(on_rig):
    async def scenario(rig: Rig) -> None:
        choose(rig).up(control=ControlSpec(shadow_policy="broken"))
        await rig.run(20)
        assert len(rig.replicas(ReplicaState.READY)) == 4
        assert comparisons(rig) == []
        errors = [e for e in rig.store.journal(FLEET, limit=1000) if e.action == "shadow-policy"]
        assert [error.reason for error in errors] == ["a bug of its own"]

    on_rig(scenario)


def test_a_restarted_controller_goes_on_counting_and_another_pair_begins_anew(on_rig):
    async def scenario(rig: Rig) -> None:
        choose(rig).up(control=GREEDY)
        await rig.run(30)
        first = totals(rig)["short"]
        await rig.clock.sleep(300.0)
        await rig.run(30)
        again = totals(rig)["short"]
        assert again.since == first.since
        # What a killed controller had compared in its last ten seconds is not counted; nor is the time without one.
        assert first.compared_s + 19.0 < again.compared_s <= first.compared_s + 30.0
        rig.up(control=ControlSpec(shadow_policy="static"))
        await rig.run(30)
        assert totals(rig)["short"].since > first.since
        assert totals(rig)["short"].agreed_share == 1.0

    on_rig(scenario)


def test_in_a_fleet_of_mode_shadow_its_own_policy_stands_beside_what_is_there(on_rig):
    async def scenario(rig: Rig) -> None:
        choose(rig).up(control=ControlSpec(mode=Mode.SHADOW, policy="greedy"))
        await rig.run(30)
        assert len(rig.replicas(ReplicaState.READY)) == 4
        last = [each for each in comparisons(rig) if each.lane == "short"][-1]
        assert (last.active.wanted, last.shadow.wanted, last.agrees) == (2, 8, False)
        assert totals(rig)["short"].active_policy == ""

    on_rig(scenario)


def test_a_fleet_that_load_made_larger_keeps_every_replica_as_it_turns_to_shadow(on_rig):
    async def scenario(rig: Rig) -> None:
        rig.up()
        async with rig.controller():
            await rig.clock.sleep(75)
            rig.gateway.lanes = (traffic("short", rps=2.9), traffic("long", rps=1.0))
            await rig.clock.sleep(120)
        grown = rig.provider.live_tokens
        assert len(grown) > 4
        rig.up(control=ControlSpec(mode=Mode.SHADOW))
        for _ in range(2):  # the second controller goes by what the first has remembered
            await rig.run(40)
        rig.gateway.lanes = (traffic("short", rps=0.1), traffic("long", rps=0.1))
        await rig.run(1200)
        assert rig.provider.live_tokens == grown
        assert {e.shadow for e in rig.store.journal(FLEET, limit=1000) if e.action in ("drain", "stop")} <= {True}

    on_rig(scenario)


def test_the_command_shows_both_side_by_side(on_rig, capsys):
    from fleetctl.cli.main import main

    async def scenario(rig: Rig) -> None:
        choose(rig).up(control=GREEDY)
        await rig.run(30)
        fakes = FakeSite()
        site = replace(fakes.site, store=rig.store, clock=fakes.clock)
        report = shadow_report(site, FLEET, lane="long")
        assert {each.comparison.lane for each in report.decisions} == {"long"}
        assert main(["shadow", FLEET, "-o", "json"], site=site) == 0
        assert differences(json.loads(capsys.readouterr().out), "ShadowReport", "shadow") == []
        assert main(["shadow", FLEET], site=site) == 0
        out = capsys.readouterr().out
        assert "built-in acts, greedy is in shadow" in out
        assert "all there is" in out
        assert "would launch x8" in out
        rig.up(control=ControlSpec())
        with pytest.raises(NotFoundError, match="no policy is in shadow"):
            shadow_report(site, FLEET)

    on_rig(scenario)
