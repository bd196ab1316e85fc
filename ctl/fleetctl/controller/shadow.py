"""Has a second policy decide on what the active one sees, and keeps what it would have done; it never acts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fleetctl.core.shadow import compared, counted, is_news, shadow_memory
from fleetctl.model.profile import Mode
from fleetctl.model.shadow import ShadowTotals
from fleetctl.model.subject import FLEET
from fleetctl.ports.records import Collection, StoredRecord, shadow_totals_key

if TYPE_CHECKING:
    from fleetctl.controller.journal import Journal
    from fleetctl.controller.world import World
    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation
    from fleetctl.model.shadow import ShadowComparison
    from fleetctl.ports.store import StateStore

_STORE_INTERVAL_S = 10.0
# A controller that stood still for longer compared nothing meanwhile.
_LASTED_S_MAX = 30.0


class ShadowPolicy:
    """Remembers for the shadow policy what it wants remembered; the active one's memory is read, and never written."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal
        self._memory: Memory | None = None
        self._before: dict[str, ShadowComparison] = {}
        self._totals: dict[str, ShadowTotals] = {}
        self._names = ("", "")  # of the active and the shadow policy
        self._counted_s = self._stored_s = 0.0

    async def compare(self, desired: Desired, observation: Observation, memory: Memory, active: Decision) -> None:
        """Compare what was decided with what the shadow policy makes of the same; `memory` is what `active` stood on."""
        names = _policies(desired)
        if not names[1]:
            self._names, self._memory = names, None
            return
        if names != self._names:
            await self._begin(desired, names)
        shadow = self._decided(desired, observation, memory, active)
        if shadow is not None:
            self._note(desired, list(compared(desired, observation, active, shadow)))

    def _decided(self, desired: Desired, observation: Observation, memory: Memory, active: Decision) -> Decision | None:
        """Return the shadow policy's decision; None where it fails, which is journalled and holds nobody up."""
        control = desired.profile.control
        if not control.shadow_policy:
            return active  # the fleet's mode is shadow: its own policy would act
        try:
            policy = self._world.policy_of(control.shadow_policy)
            decision = policy(desired, observation, shadow_memory(memory, self._memory), observation.at)
        except Exception as exc:  # noqa: BLE001  # another's policy must not stop the fleet's own; it is journalled
            self._journal.failed(FLEET, "shadow-policy", exc)
            return None
        self._memory = decision.memory
        return decision

    async def _begin(self, desired: Desired, names: tuple[str, str]) -> None:
        """Go on with the totals of these two policies, or begin new ones."""
        self._names, self._memory, self._before = names, None, {}
        now, fleet = self._world.clock.now(), desired.fleet
        self._totals, self._counted_s = {}, self._world.clock.monotonic_s()
        for lane in desired.profile.lanes:
            kept = await self._world.store.read(partial(_kept_totals, fleet=fleet, lane=lane.name))
            if kept is None or (kept.active_policy, kept.shadow_policy) != names:
                kept = ShadowTotals(lane=lane.name, active_policy=names[0], shadow_policy=names[1], since=now, at=now)
            self._totals[lane.name] = kept

    def _note(self, desired: Desired, found: list[ShadowComparison]) -> None:
        now_s = self._world.clock.monotonic_s()
        lasted_s = min(_LASTED_S_MAX, now_s - self._counted_s)
        self._counted_s = now_s
        is_due = now_s - self._stored_s >= _STORE_INTERVAL_S
        for each in found:
            before, totals = self._before.get(each.lane), self._totals.get(each.lane)
            if totals is None:
                totals = ShadowTotals(
                    lane=each.lane,
                    active_policy=self._names[0],
                    shadow_policy=self._names[1],
                    since=each.at,
                    at=each.at,
                )
            is_written = is_news(each, before)
            plan = desired.plan.lane(each.lane)
            self._totals[each.lane] = counted(totals, each, plan, lasted_s=lasted_s, is_written=is_written)
            self._before[each.lane] = each
            if is_written:
                self._put(desired.fleet, f"{each.at.isoformat()}-{each.lane}", each)
            if is_written or is_due:
                self._put(desired.fleet, shadow_totals_key(each.lane), self._totals[each.lane])
        self._stored_s = now_s if is_due else self._stored_s

    def _put(self, fleet: str, key: str, value: ShadowComparison | ShadowTotals) -> None:
        self._world.store.put_record(StoredRecord.of(Collection.SHADOW, key, value, at=value.at, fleet=fleet))


def _kept_totals(store: StateStore, *, fleet: str, lane: str) -> ShadowTotals | None:
    found = store.find_record(Collection.SHADOW, shadow_totals_key(lane), fleet=fleet)
    return found.value_as(ShadowTotals) if found is not None else None


def _policies(desired: Desired) -> tuple[str, str]:
    """Return who acts and who is in shadow; empty: nobody."""
    control = desired.profile.control
    if control.mode is Mode.SHADOW:
        return "", control.shadow_policy or control.policy
    return control.policy, control.shadow_policy
