"""Orders replicas: an offering and an intent each, at once; their nodes come in their own time."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from fleetctl.core.drains import cordoned_zones
from fleetctl.core.hazard import NOTHING_LEARNED
from fleetctl.core.orphaned import NONE_ORPHANED
from fleetctl.core.pending import pending_replica
from fleetctl.core.placement import Ranking, possible_offerings, ranked_offerings
from fleetctl.core.plan.launch_identity import launch_digest
from fleetctl.core.reconcile.headroom import need_of
from fleetctl.core.shares import MachineRoom, machine_room, rooms_coming
from fleetctl.engine_kit.priorities import priority_sign
from fleetctl.errors import CapacityError, FleetctlError, ProviderError
from fleetctl.model.action import EntryKind
from fleetctl.model.decision import LaunchReplica
from fleetctl.model.desired import Desired, DesiredPhase
from fleetctl.model.node import NodeRequest
from fleetctl.model.reason import ReasonCode
from fleetctl.model.subject import Subject
from fleetctl.ports.engine import visible_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from fleetctl.controller.create import Creator
    from fleetctl.controller.journal import Journal
    from fleetctl.controller.offerings import Offerings
    from fleetctl.controller.records import Records
    from fleetctl.controller.world import World
    from fleetctl.errors import UnobtainableError
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.plan import LanePlan
    from fleetctl.model.profile import CapacitySpec
    from fleetctl.model.replica import Replica
    from fleetctl.ports.store import Intent

_AWAITED = object()
# Placing one beside a thousand takes some 2 ms (two shared cores, 2026-11-28).
_AT_A_STRETCH = 32


class Launcher:
    """Turns launches into PENDING replicas with their intents, in one transaction and without asking the provider."""

    def __init__(
        self, world: World, records: Records, journal: Journal, *, offerings: Offerings, creator: Creator
    ) -> None:
        self._world = world
        self._records = records
        self._journal = journal
        self._offerings = offerings
        self._creator = creator
        self._refused: dict[str, str] = {}
        self._blocked = ""  # why no node may be ordered, as of the last decision
        self._substitutes: set[str] = set()  # replica ids: spot or nothing, an on-demand replica serves meanwhile
        self.hazards = NOTHING_LEARNED  # as of the last decision
        self.orphaned = NONE_ORPHANED  # as of the last decision
        self.caps: CapacitySpec | None = None  # as people last set them, whatever revision a replica is started by
        creator.on_unobtainable = self._elsewhere
        creator.sold_of = offerings.sold_of

    def take_refused(self) -> dict[str, str]:
        """Return, once, the lanes whose last launch could not be ordered, and why: it backs off the next."""
        refused, self._refused = self._refused, {}
        return refused

    def block(self, why: str) -> None:
        """Refuse every launch from now on, whichever policy asks for it; empty: refuse none."""
        self._blocked = why

    async def launch_all(
        self, desired: Desired, actions: Sequence[LaunchReplica], *, on_part: Callable[[], None] = lambda: None
    ) -> None:
        """Launch them in parts, between which this process does what else is due.

        To place a replica takes time with how many there are already: a thousand at a stretch would be taken for a hang, and none
        of them were on record when it ended for that.
        """
        for begin in range(0, len(actions), _AT_A_STRETCH):
            end = begin + _AT_A_STRETCH
            self.launch(desired, actions[begin:end], later=actions[end:])
            on_part()
            if actions[end:]:
                await self._world.clock.sleep(0.0)

    def launch(
        self, desired: Desired, actions: Sequence[LaunchReplica], *, later: Sequence[LaunchReplica] = ()
    ) -> None:
        """Write an intent for each replica and begin their creates. What could not be ordered is journalled.

        `later` are launched after these, and are left the money that they take.
        """
        if self._blocked:
            for action in actions:
                self._refuse(action, ProviderError(self._blocked), ReasonCode.LAUNCH_BLOCKED)
            return
        begun: list[tuple[Replica, NodeRequest]] = []
        placed: dict[str, Ranking] = {}
        self._substitutes.intersection_update(r.id for r in self._records.all if r.state.is_live)
        # A lane's first launch says what was passed over of all that is on offer; the others look at what could be it.
        sold: dict[str, Sequence[Offering]] = {}
        kept_usd = self._kept_for(desired, (*actions, *later))
        for number, action in enumerate(actions, start=1):
            try:
                if self._shares(desired, action, begun, placed):
                    continue
                on_offer = sold.get(action.lane, self._offerings.latest)
                ranking = self._ranking(desired, action, on_offer, [record for record, _ in begun])
                if action.lane not in sold:
                    plan = desired.plan.lane(action.lane)
                    sold[action.lane] = possible_offerings(plan, on_offer, self._capacity(desired))
                offerings = self._affordable(
                    desired, action.lane, ranking.offerings, [r for r, _ in begun], kept_usd[number]
                )
                begun.append(self._begun(desired, action, offerings))
            except FleetctlError as exc:
                self._refuse(action, exc, ReasonCode.FAILED)
            else:
                placed[begun[-1][0].id] = ranking
                self._substitutes.update(() if action.may_fall_back else (begun[-1][0].id,))
        if not begun:
            return
        intents = self._world.store.begin_replicas(tuple(begun), now=self._world.clock.now())
        for record, _ in begun:
            self._records.add(record)
            self._note(record, placed[record.id])
        self._creator.begin(desired, intents)

    def _refuse(self, action: LaunchReplica, why: FleetctlError, code: ReasonCode) -> None:
        # Nobody lacks a substitute that cannot be had: what it was for serves on, no launch has to back off, and that its
        # order found no stock is written already.
        if not action.may_fall_back:
            return
        self._refused[action.lane] = why.message
        self._journal.failed(action.subject, "launch", why, code=code)

    def _shares(
        self,
        desired: Desired,
        action: LaunchReplica,
        begun: list[tuple[Replica, NodeRequest]],
        placed: dict[str, Ranking],
    ) -> bool:
        """Place a launch on a machine that others are on; return whether no machine is to be ordered for it.

        Where one is ordered that has room, nothing is begun: the next decision finds it named, or none on its way.
        """
        vacancy = self._vacancy(desired, action, [record for record, _ in begun])
        if isinstance(vacancy, MachineRoom):
            offering = next(each for each in self._offerings.latest if each.key == vacancy.offering)
            begun.append(self._begun(desired, action, (offering,), vacancy))
            placed[begun[-1][0].id] = Ranking(offerings=(), reason=f"{vacancy.machine_id}, beside others")
        return vacancy is not None

    def _vacancy(self, desired: Desired, action: LaunchReplica, begun: list[Replica]) -> MachineRoom | object | None:
        """Return the room on a machine of the lane; _AWAITED: one is ordered that has some; None: none has."""
        lane_plan = desired.plan.lane(action.lane)
        if lane_plan.replicas_each_machine == 1:
            return None
        live = [record for record in self._records.all if record.state.is_live] + begun
        digest = launch_digest(desired.profile.lane(action.lane), lane_plan)
        sold = {offering.key: offering for offering in self._offerings.latest}
        vacancy = machine_room(lane_plan, live, action.market, digest, sold)
        if vacancy is None and rooms_coming(lane_plan, live, action.market, digest) > 0:
            return _AWAITED
        return vacancy

    def _begun(
        self,
        desired: Desired,
        action: LaunchReplica,
        offerings: tuple[Offering, ...],
        vacancy: MachineRoom | None = None,
    ) -> tuple[Replica, NodeRequest]:
        world = self._world
        lane_plan = desired.plan.lane(action.lane)
        offering, *others = offerings
        engine = visible_engine(world.engine_of, desired.profile.lane(action.lane))
        record = pending_replica(
            f"r{world.store.next_replica_number()}",
            desired,
            action,
            offerings,
            continues_streams=engine.capabilities.continues_streams,
            priority_sign=priority_sign(desired.profile.lane(action.lane), lane_plan.launch, world.engine_of),
            vacancy=vacancy,
            now=world.clock.now(),
        )
        request = NodeRequest(
            token=token_of(world.store.owner, record),
            owner=world.store.owner,
            fleet=world.fleet,
            replica_id=record.id,
            lane=action.lane,
            offering=offering.key,
            alternatives=tuple(other.key for other in others),
            market=offering.market,
            notice_s=offering.notice_s,
            node_count=lane_plan.node_count,
            gpu_indices=_gpu_indices(lane_plan, vacancy),
            machine_id=vacancy.machine_id if vacancy is not None else "",
            argv=(),
            env={},
            host="",
            port=0,
            tags={
                "lane": action.lane,
                "model": lane_plan.launch.served_name,
                "quantization": lane_plan.launch.quantization.value,
                "gpu_type": offering.gpu,
            },
        )
        return record, request

    def _ranking(
        self, desired: Desired, action: LaunchReplica, on_offer: Sequence[Offering], begun: list[Replica]
    ) -> Ranking:
        """Return where to launch, best first, and no more than the provider takes. Raises CapacityError."""
        ranking = ranked_offerings(
            desired.plan.lane(action.lane),
            [record for record in self._records.all if record.state.is_live] + begun,
            action.market,
            on_offer,
            capacity=self._capacity(desired),
            avoid=self._offerings.unobtainable(),
            hazards=self.hazards,
            may_fall_back=action.may_fall_back,
            most=1 + self._world.provider.capabilities.alternatives_max,
            late=frozenset(action.late),
            cordoned=cordoned_zones(desired.overrides),
            orphaned=self.orphaned,
        )
        if not ranking.offerings:
            raise CapacityError(ranking.reason, hint="it is tried again; raise the caps or allow more zones and GPUs")
        return ranking

    def _affordable(
        self, desired: Desired, lane: str, offerings: tuple[Offering, ...], begun: list[Replica], kept_usd: float
    ) -> tuple[Offering, ...]:
        """Return the first, and of the others those that leave room for the launches that come after it."""
        cap, first = self._capacity(desired).max_cost_usd_per_hour, offerings[0]
        if cap is None or len(offerings) == 1:
            return offerings
        standing = [record for record in self._records.all if record.state.is_live] + begun
        spent = sum(record.price_usd_per_hour for record in standing) + self.orphaned.total_usd_per_hour
        left = (cap - spent - kept_usd) / desired.plan.lane(lane).node_count
        return tuple(o for o in offerings if o.price_usd_per_hour <= max(left, first.price_usd_per_hour))

    def _kept_for(self, desired: Desired, coming: Sequence[LaunchReplica]) -> list[float]:
        """Return what the launches from each on cost an hour, as the decision has reckoned; at the end, none."""
        kinds = {(action.lane, action.market) for action in coming}
        prices = {kind: need_of(desired.plan.lane(kind[0]), kind[1]).price_usd_per_hour for kind in kinds}
        costs = (prices[action.lane, action.market] for action in reversed(coming))
        return list(accumulate(costs, initial=0.0))[::-1]

    def _capacity(self, desired: Desired) -> CapacitySpec:
        """Return where a revision's replicas may run, under the caps of today."""
        capacity, caps = desired.profile.capacity, self.caps
        if caps is None:
            return capacity
        return replace(capacity, max_nodes=caps.max_nodes, max_cost_usd_per_hour=caps.max_cost_usd_per_hour)

    def _elsewhere(self, desired: Desired, intent: Intent, why: UnobtainableError) -> None:
        """Try the next offerings as a new replica: a token belongs to the offerings it was sent with."""
        self._offerings.note_unobtainable(intent.request, why)
        fleet = self._world.store.fleet()
        if fleet is None or fleet.phase is not DesiredPhase.UP:
            return  # what there is no stock of is left alone all the same, should it be wanted up again
        again = LaunchReplica(
            lane=intent.request.lane,
            market=intent.request.market,
            may_fall_back=intent.replica_id not in self._substitutes,
            code=ReasonCode.OFFERING_UNOBTAINABLE,
            reason=f"{intent.request.offering}: {why.message}",
        )
        self.launch(desired, [again])

    def _note(self, record: Replica, placed: Ranking) -> None:
        """Write where the node is ordered and why there, unless the launch has said so, and what was passed over."""
        where = "" if record.offering in record.reason else f"; on {placed.reason}"
        inputs: dict[str, float | str] = {"price_usd_per_hour": record.price_usd_per_hour, "lane": record.lane}
        if placed.first is not None:
            inputs |= {
                "score": placed.first.score,
                "passed_over": placed.first.passed_over or "nothing else is on offer",
            }
        self._journal.note(
            EntryKind.LIFECYCLE,
            Subject.replica(record.id),
            "request-node",
            ReasonCode.NODE_REQUESTED,
            f"{record.reason}{where}",
            inputs=inputs,
        )


def _gpu_indices(lane_plan: LanePlan, vacancy: MachineRoom | None) -> tuple[int, ...]:
    """Return the GPUs of its machine that a replica has, where it may share it: the first ones of a new machine."""
    if vacancy is not None:
        return vacancy.gpu_indices
    return tuple(range(lane_plan.gpus_each_node)) if lane_plan.replicas_each_machine > 1 else ()


def token_of(owner: str, record: Replica) -> str:
    """Return the name of a replica's order: no other order ever has it, and it can be derived again."""
    return _token(owner, record.fleet, record.id, record.created_at)


# Asked of every replica three times a tick.
@functools.lru_cache(maxsize=4096)
def _token(owner: str, fleet: str, replica_id: str, created_at: datetime) -> str:
    identity = f"{owner}/{fleet}/{replica_id}/{created_at.isoformat()}"
    return hashlib.sha256(identity.encode()).hexdigest()[:32]
