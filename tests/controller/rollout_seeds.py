"""A fleet whose profile changes by a seed, under controllers that are killed before or after any write or call.

python -m tests.controller.rollout_seeds --from 0 --seeds 200
python -m tests.controller.rollout_seeds --every-step --from 3
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fleetctl.controller.loop import Controller
from fleetctl.core.rollout.in_force import digests
from fleetctl.model.desired import Overrides
from fleetctl.model.profile import CapacitySpec, ControlSpec, LaneSpec, Profile, ReplicaBounds, RolloutSpec
from fleetctl.model.replica import ReplicaState
from fleetctl.model.rollout import Revision
from fleetctl.ports.records import Collection
from fleetctl.testing import samples
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.cloud_rig import Life, Mortal
from tests.controller.rig import FLEET, Rig, behind
from tests.reconcile.worlds import traffic

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from fleetctl.model.desired import Desired
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.ports.provider import Provider
    from fleetctl.ports.store import StateStore

BAD_FLAG, OTHER_VERSION = "--bad", "9.9.9"
_STEP_S = 0.5
_SETTLED_WITHIN_S, _CONVERGED_WITHIN_S = 60.0, 400.0
_STEPS_MAX = 80  # writes and calls of one lane, about
_NODES_MAX = 12


class MortalStore(Mortal):
    """A store that may be written to no more in the middle of a rollout, a rollback included."""

    writes = (*Mortal.writes, "put_fleet", "put_record")


@dataclass
class SeededRollout:
    """One seed: a fleet, what becomes of its profile, and the lives of its controllers."""

    home: Path
    seed: int
    steps: tuple[int, ...] = ()  # of the lives' ends; empty: by the seed
    faults: list[str] = field(default_factory=list)
    kills: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.rig = Rig(self.home)
        self.rig.store._owner = f"owner-{self.seed}"
        self._at_least: dict[str, int] = {}
        self._changes = 0

    async def run(self) -> None:
        """Live the seed; what went wrong is in `faults`."""
        counts = {"short": self.dice.randint(1, 3), "long": self.dice.randint(1, 3)}
        self._put(_profile(counts), _plan(counts))
        self.rig.gateway.lanes = tuple(traffic(lane, rps=0.2) for lane in counts)
        await self._live(_SETTLED_WITHIN_S, until=self._has_converged)
        self._expect_converged("at first")
        for _ in range(self.dice.randint(1, 2)):
            await self._change_and_kill()
        self._resume()
        await self._live(_CONVERGED_WITHIN_S, until=self._has_converged)
        self._expect_converged("in the end")

    async def _change_and_kill(self) -> None:
        self._change()
        ends = self.steps or tuple(self.dice.randint(1, _STEPS_MAX) for _ in range(self.dice.randint(1, 3)))
        for end in ends:
            await self._live(self.dice.uniform(5, 60), steps=end)
            await self.rig.clock.sleep(self.dice.uniform(0.1, 4))
            if self.dice.random() < 0.4:
                self._hold_or_go_back()

    async def _live(self, seconds: float, *, steps: int = 10**9, until: Callable[[], bool] = lambda: False) -> None:
        """Have one controller at work until time is up, it is killed at a step, or `until` holds."""
        rig, life = self.rig, Life(steps_left=steps, before_effect=self.dice.random() < 0.5)
        world = replace(
            rig.world,
            store=behind(cast("StateStore", MortalStore(rig.store, life)), rig.clock),
            provider=cast("Provider", Mortal(rig.provider, life)),
        )
        task = asyncio.ensure_future(Controller(world).run())
        until_s = rig.clock.monotonic_s() + seconds
        while not task.done() and rig.clock.monotonic_s() < until_s and not until():
            await asyncio.wait([task], timeout=_STEP_S)
            self._look()
        self.kills += life.is_over
        life.is_over = True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def _look(self) -> None:
        """Check what holds at every moment: the cap, and every lane's replicas in rotation."""
        living = len(self.rig.provider.living())
        if living > _NODES_MAX:
            self._fault(f"{living} nodes, the cap is {_NODES_MAX}")
        table = self.rig.gateway.table
        shown = {lane.name for lane in table.lanes} if table is not None else set()
        for lane, least in self._at_least.items():
            serving = sum(row.lane == lane and row.in_rotation for row in table.replicas) if table is not None else 0
            if lane in shown and serving < least:
                self._fault(f"{lane}: {serving} in rotation, {least} are its capacity")

    def _fault(self, text: str) -> None:
        self.faults.append(f"seed {self.seed} at {self.rig.clock.monotonic_s():.1f} s: {text}")

    def _put(self, profile: Profile, plan: Plan) -> None:
        self.rig.store.put_fleet(profile, plan, now=self.rig.clock.now(), by="somebody")

    def _desired(self) -> Desired:
        found = self.rig.store.fleet(FLEET)
        assert found is not None
        return found

    def _change(self) -> None:
        """Put another profile in force: one key or several of it differ."""
        self._changes += 1
        desired = self._desired()
        kinds = self.dice.sample(_CHANGES, k=self.dice.randint(1, 2))
        profile, plan = desired.profile, desired.plan
        for kind in kinds:
            profile, plan = kind(self, profile, plan)
        self._now_serving()
        self._put(profile, plan)

    def _now_serving(self) -> None:
        """Hold every lane that there is to what it has now; a lane that a change brings is none yet."""
        counts = {lane.lane: lane.replicas for lane in self._desired().plan.lanes}
        self._at_least = {
            lane: min(count, self._at_least.get(lane, count), self._ready(lane)) for lane, count in counts.items()
        }

    def _ready(self, lane: str) -> int:
        return sum(replica.lane == lane for replica in self.rig.replicas(ReplicaState.READY))

    def _hold_or_go_back(self) -> None:
        """Pause, resume, or undo to a revision that is kept, as somebody may at any moment."""
        kind = self.dice.choice(("pause", "resume", "undo"))
        if kind == "undo":
            kept = self.rig.store.records(Collection.ROLLOUTS, fleet=FLEET, limit=20)
            revision = self.dice.choice(sorted(kept, key=lambda record: record.key)).value_as(Revision)
            self._now_serving()
            self._put(revision.profile, revision.plan)
            return
        overrides = Overrides(is_rollout_paused=kind == "pause", rollout_resumed_at=self._resumed_at(kind))
        self.rig.store.set_overrides(FLEET, overrides, now=self.rig.clock.now())

    def _resumed_at(self, kind: str) -> datetime | None:
        return self.rig.clock.now() if kind == "resume" else None

    def _resume(self) -> None:
        overrides = Overrides(rollout_resumed_at=self._resumed_at("resume"))
        self.rig.store.set_overrides(FLEET, overrides, now=self.rig.clock.now())

    def _has_converged(self) -> bool:
        return not self._lacks()

    def _lacks(self) -> str:
        """Return what is not as the profile in force asks; empty: nothing."""
        desired, rollout = self._desired(), self.rig.store.memory(FLEET).rollout
        if rollout is None or not rollout.is_over or rollout.revision != desired.revision:
            return f"its rollout is not over: {rollout}"
        wanted = digests(desired.profile, desired.plan)
        for replica in self.rig.replicas():
            if replica.launch_digest != wanted.get(replica.lane):
                return f"{replica.id} of {replica.lane} is left over of another revision, {replica.state}"
        for lane in desired.plan.lanes:
            if self._ready(lane.lane) != lane.replicas:
                return f"{lane.lane} has {self._ready(lane.lane)} ready of {lane.replicas}"
        living, want = len(self.rig.provider.living()), sum(lane.replicas for lane in desired.plan.lanes)
        return f"{living} nodes live, {want} are wanted" if living != want else ""

    def _expect_converged(self, when: str) -> None:
        if lacks := self._lacks():
            self._fault(f"not converged {when}: {lacks}")

    def mark_bad(self) -> None:
        """Have engines that are started with the bad flag never complete a request: they answer as cold ones do."""
        rig = self.rig

        class Cold(set):  # type: ignore[type-arg]  # of ports
            def __contains__(self, port: object) -> bool:
                bad = {order.port: BAD_FLAG in order.argv for order in rig.provider.orders}  # the last at that port
                return bad.get(cast("int", port), False)

        rig.engines.cold = Cold()


def _profile(counts: dict[str, int]) -> Profile:
    base = samples.profile(FLEET, control=ControlSpec(rollout=RolloutSpec(bake_s=4.0), scale_down_after_s=1e6))
    lanes = tuple(_lane(base, name, count) for name, count in counts.items())
    return replace(base, lanes=lanes, capacity=CapacitySpec(max_nodes=_NODES_MAX))


def _lane(base: Profile, name: str, count: int) -> LaneSpec:
    known = {lane.name for lane in base.lanes}
    spec = base.lane(name if name in known else base.lanes[-1].name)
    return replace(spec, name=name, replicas=ReplicaBounds(min=count, max=count))


def _plan(counts: dict[str, int]) -> Plan:
    lanes = tuple(samples.lane_plan(name, on_demand=count) for name, count in counts.items())
    return replace(samples.plan(FLEET), lanes=lanes)


def _with_launch(plan: Plan, lane: LanePlan, **changes: object) -> Plan:
    after = replace(lane, launch=replace(lane.launch, **changes))  # type: ignore[arg-type]  # any field of it
    return replace(plan, lanes=tuple(after if each.lane == lane.lane else each for each in plan.lanes))


def _flag(run: SeededRollout, profile: Profile, plan: Plan) -> tuple[Profile, Plan]:
    lane = run.dice.choice(plan.lanes)
    return profile, _with_launch(plan, lane, extra_args=(f"--new-{run._changes}",))


def _bad_flag(run: SeededRollout, profile: Profile, plan: Plan) -> tuple[Profile, Plan]:
    return profile, _with_launch(plan, run.dice.choice(plan.lanes), extra_args=(BAD_FLAG,))


def _model(run: SeededRollout, profile: Profile, plan: Plan) -> tuple[Profile, Plan]:
    name = f"model-{run._changes}"
    for lane in plan.lanes:
        plan = _with_launch(plan, plan.lane(lane.lane), served_name=name)
    return replace(profile, model=replace(profile.model, served_name=name)), plan


def _engine(run: SeededRollout, profile: Profile, plan: Plan) -> tuple[Profile, Plan]:
    name, lane = f"engine-{run._changes}", run.dice.choice(profile.lanes).name
    lanes = tuple(replace(spec, engine=name) if spec.name == lane else spec for spec in profile.lanes)
    plans = tuple(replace(each, engine=name) if each.lane == lane else each for each in plan.lanes)
    return replace(profile, lanes=lanes), replace(plan, lanes=plans)


def _other_version(run: SeededRollout, profile: Profile, plan: Plan) -> tuple[Profile, Plan]:
    lane = run.dice.choice(profile.lanes).name
    lanes = tuple(replace(spec, engine_version=OTHER_VERSION) if spec.name == lane else spec for spec in profile.lanes)
    return replace(profile, lanes=lanes), plan


def _new_lane(run: SeededRollout, profile: Profile, plan: Plan) -> tuple[Profile, Plan]:
    name, count = f"lane-{run._changes}", run.dice.randint(1, 2)
    if len(plan.lanes) > 2:
        return profile, plan
    spec = _lane(profile, name, count)
    planned = samples.lane_plan(name, on_demand=count)
    return replace(profile, lanes=(*profile.lanes, spec)), replace(plan, lanes=(*plan.lanes, planned))


def _lane_gone(run: SeededRollout, profile: Profile, plan: Plan) -> tuple[Profile, Plan]:
    if len(plan.lanes) < 2:
        return profile, plan
    gone = run.dice.choice(plan.lanes[1:]).lane
    return (
        replace(profile, lanes=tuple(lane for lane in profile.lanes if lane.name != gone)),
        replace(plan, lanes=tuple(lane for lane in plan.lanes if lane.lane != gone)),
    )


_CHANGES = (_flag, _bad_flag, _model, _engine, _other_version, _new_lane, _lane_gone)


def run_seed(seed: int, home: Path, *, steps: tuple[int, ...] = ()) -> SeededRollout:
    """Return what became of a seed."""

    async def lived() -> SeededRollout:
        run = SeededRollout(home, seed, steps)
        run.mark_bad()
        await run.run()
        return run

    return run_virtual(lived())


def main() -> int:
    """Live seeds, and print what went wrong with each; exit 1 if anything did."""
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser()
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument(
        "--every-step", action="store_true", help="kill at each step of the first seed's rollout instead"
    )
    given = parser.parse_args()
    failed = kills = 0
    seeds = range(given.first, given.first + given.seeds)
    lives = [(given.first, (step,)) for step in range(1, _STEPS_MAX)] if given.every_step else [(n, ()) for n in seeds]
    for seed, steps in lives:
        with tempfile.TemporaryDirectory() as home:
            # What a controller keeps in files is kept by fleet: else by that of whoever runs this, of the same name.
            os.environ["XDG_STATE_HOME"] = home
            run = run_seed(seed, Path(home), steps=steps)
        kills += run.kills
        failed += bool(run.faults)
        sys.stdout.writelines(f"{fault}\n" for fault in run.faults[:3])
        sys.stdout.flush()
    sys.stdout.write(f"{len(lives)} runs, {kills} kills, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
