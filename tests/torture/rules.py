"""Rules about more than one call: how old records are, what a rollout leaves, what nodes share, what shadow mode does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.core.plan.launch_identity import is_outdated
from fleetctl.model.profile import OnFailure
from fleetctl.model.replica import ReplicaState
from fleetctl.model.shared import SharedState
from tests.torture.faults import FaultKind
from tests.torture.wanted import FLEET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.decision import Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.node import Node
    from fleetctl.model.replica import Replica
    from fleetctl.model.shared import SharedResource
    from tests.torture.checks import Checks
    from tests.torture.life import Life

STORE_FAULTS = (FaultKind.STORE_LOCKED, FaultKind.STORE_FULL, FaultKind.STORE_SLOW)
# A table is sent within the tick that changes it; a failed tick, a slow store and a restart take a few.
ROTATION_S = 8.0
_SETTLED_S = 20.0
_WRONG_S = 4.0


class RecordAges:
    """Since when each replica is in its state, by a clock that nobody sets."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._changed_s: dict[str, tuple[ReplicaState, float]] = {}  # NaN: nobody can say

    def note(self, replica: Replica) -> None:
        """Note a record as it is written; by a clock that was set a moment ago nobody can say since when."""
        run, set_s = self._checks.run, self._checks.clock_set_s
        is_known = run.now_s - set_s > run.tick_s + 2 * ROTATION_S
        # While the state cannot be written only the last of several changes comes to be on record.
        is_skipping = run.injector.is_open_since(STORE_FAULTS, ROTATION_S)
        known = self._changed_s.get(replica.id)
        if known is not None and known[0] is replica.state and not (is_known or is_skipping):
            return
        changed_s = run.now_s - (run.clock.now() - replica.changed_at).total_seconds()
        self._changed_s[replica.id] = (replica.state, changed_s if is_known and not is_skipping else math.nan)

    def check(self) -> None:
        """Check that what is on record is as old as it is."""
        run, set_s = self._checks.run, self._checks.clock_set_s
        if set_s < 0.0 or run.now_s - set_s < _SETTLED_S or not run.is_settled(_SETTLED_S):
            return
        for record in run.store.replicas(FLEET):
            state, began_s = self._changed_s.get(record.id, (record.state, math.nan))
            wrong_s = (run.clock.now() - record.changed_at).total_seconds() - (run.now_s - began_s)
            # A replica that is told to end again is so since then.
            is_followed = record.state is state and state.is_live and state is not ReplicaState.STOPPING
            if is_followed and abs(wrong_s) > _WRONG_S:
                self._checks.violated("clock", f"{record.id} is {state} for {wrong_s:+.1f} s longer than by true time")


class WideChecks:
    """What must hold in fleets with rollouts, groups and shared resources, and while the controller only watches."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._watched_since_s: float | None = None  # the controller is only to watch
        self._at_rest: set[str] = set()  # replicas of a fleet that lacked nothing then

    # Shared resources

    def changing_shared(self, life: Life, call: str, resource: SharedResource) -> None:
        """Check that what nodes share is made or removed as is on record, by who may."""
        run = self._checks.run
        if life.epoch < run.epoch:
            self._checks.violated("two-writers", f"epoch {life.epoch} called {call} after {run.epoch} had begun")
        state = SharedState.PREPARING if call == "prepare" else SharedState.TEARING_DOWN
        if (resource.token, state) not in {(i.token, i.state) for i in run.store.shared_intents(FLEET)}:
            self._checks.violated("no-intent", f"{call} of {resource.kind}, and no open intent on record is of that")

    # Shadow mode

    def at_rest(self) -> set[str]:
        """Return the replicas of a fleet that lacks nothing; of another none."""
        is_at_rest = not any(self._checks.open_at_the_end())
        return {r.id for r in self._checks.run.store.replicas(FLEET) if r.state.is_live} if is_at_rest else set()

    def watch_only(self, at_rest: set[str]) -> None:
        """Note that from now on the controller is only to watch: what is at rest stays, whatever becomes of it."""
        self._watched_since_s, self._at_rest = self._checks.run.now_s, at_rest

    def acts_again(self) -> None:
        """Note that it may act, or that people have asked for something."""
        self._watched_since_s, self._at_rest = None, set()

    def stopping(self, node: Node) -> None:
        """Check that the controller ends nobody while it only watches."""
        if self._watches_only and node.replica_id in self._at_rest:
            self._checks.violated("shadow", f"{node.replica_id} was told to end, and the controller is only to watch")

    def launching(self, replica: Replica) -> None:
        """Check that it orders nothing while it only watches a fleet that lacked nothing."""
        if self._watches_only and self._at_rest:
            self._checks.violated("shadow", f"{replica.id} was ordered, and the controller is only to watch")

    @property
    def _watches_only(self) -> bool:
        since_s = self._watched_since_s
        return since_s is not None and self._checks.run.now_s - since_s > ROTATION_S

    # Rollouts

    def draining_outdated(self, replica_id: str) -> None:
        """Check that a rollout takes nobody from rotation without whom the lane has none.

        At the caps, with nobody leaving, there is no room for another beside it: then the profile may let it be missing
        while the next one starts.
        """
        run = self._checks.run
        records = {record.id: record for record in run.records()}
        leaving = records.get(replica_id)
        # A line that had to wait says nothing of what is so now.
        if leaving is None or run.injector.is_open_since(STORE_FAULTS, ROTATION_S):
            return
        others = [r.state for r in records.values() if r.lane == leaving.lane and r.id != replica_id]
        makes_room = ReplicaState.DRAINING in others or ReplicaState.STOPPING in others
        is_let_go = run.setting.rollout.max_unavailable.of(1) and run.is_at_cap() and not makes_room
        if ReplicaState.READY not in others and not is_let_go:
            self._checks.violated("outage", f"a rollout drains {replica_id}, the last ready one of {leaving.lane}")

    def open_at_the_end(self, desired: Desired, memory: Memory, live: list[Replica]) -> Iterator[str]:
        """Yield what nodes lack around them, what keeps a rollout from its end, and who is outdated although it is over."""
        run, rollout = self._checks.run, memory.rollout
        if run.cloud.shared.there() != list(run.setting.shared):
            yield f"what nodes share is there: {run.cloud.shared.there()}"
        if not run.setting.is_wide or rollout is None:
            return
        if rollout.revision != desired.revision:
            yield f"revision {desired.revision} is asked for, and the rollout is to {rollout.revision}"
        elif rollout.is_failed and run.setting.rollout.on_failure is OnFailure.PAUSE:
            return  # left as it is until somebody sees to it
        elif rollout.is_over or not rollout.lacks_room:
            if not rollout.is_over:
                yield f"the rollout to {rollout.revision} is not over: {rollout.reason} {rollout.lanes}"
            yield from (f"{r.id} of {r.lane} is outdated" for r in live if is_outdated(r, desired))
