"""Orders replicas: an offering, an intent, a create; each failure by its class."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.controller.keys import with_secrets
from fleetctl.controller.observe import create_key
from fleetctl.core.placement import next_offering
from fleetctl.core.transitions import create_refused, node_created
from fleetctl.errors import AmbiguousOutcomeError, CapacityError, FleetctlError, ProviderError
from fleetctl.model.catalogue import Market, Offering
from fleetctl.model.decision import EntryKind, LaunchReplica
from fleetctl.model.node import Node, NodeRequest
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.model.subject import Subject
from fleetctl.ports.store import Intent, IntentState
from fleetctl.units import format_usd

if TYPE_CHECKING:
    from fleetctl.controller.background import BackgroundTasks
    from fleetctl.controller.journal import Journal
    from fleetctl.controller.records import Records
    from fleetctl.controller.world import World
    from fleetctl.model.desired import Desired

_CREATE_S = 60.0
_ASK_S = 10.0
_OFFERINGS_AGE_S_MAX = 600.0
# An offering that had no stock is left alone for this long, as the clouds' own fleets do.
_NO_STOCK_S = 180.0
_HOST = "127.0.0.1"


class Launcher:
    """Turns a launch into a PENDING replica at once, and into a node in its own time."""

    def __init__(self, world: World, records: Records, background: BackgroundTasks, journal: Journal) -> None:
        self._world = world
        self._records = records
        self._background = background
        self._journal = journal
        self._offerings: tuple[Offering, ...] = ()
        self._offerings_at_s = 0.0
        self._no_stock_s: dict[str, float] = {}
        self._refused: dict[str, str] = {}
        self.own_tokens: set[str] = set()  # of orders this process gave; an earlier one's are not among them

    def take_refused(self) -> dict[str, str]:
        """Return, once, the lanes whose last launch could not be ordered, and why: it backs off the next."""
        refused, self._refused = self._refused, {}
        return refused

    async def launch(self, desired: Desired, action: LaunchReplica) -> Replica | None:
        """Commit the intent for one replica and begin its create. None, journalled: nothing could be ordered."""
        try:
            async with asyncio.timeout(_ASK_S):
                intent, record = await self._begin(desired, action)
        except (FleetctlError, TimeoutError) as exc:
            silent = ProviderError(f"the provider did not say within {_ASK_S:g} s what it sells")
            error = exc if isinstance(exc, FleetctlError) else silent
            self._refused[action.lane] = error.message
            self._journal.failed(action.subject, "launch", error)
            return None
        self.create(desired, intent)
        return record

    def create(self, desired: Desired, intent: Intent) -> None:
        """Ask the provider for an intent's node, in the background; also for one a crash left open: same token."""
        self.own_tokens.add(intent.token)
        self._background.start(create_key(intent.replica_id), lambda: self._create(desired, intent))

    async def _begin(self, desired: Desired, action: LaunchReplica) -> tuple[Intent, Replica]:
        world = self._world
        lane_plan = desired.plan.lane(action.lane)
        offering = await self._offering(desired, action)
        engine = world.engine_of(lane_plan.engine)
        taken = frozenset(r.port for r in self._records.all if r.state.is_live)
        port = await world.provider.free_port(avoid=taken)
        spec = desired.profile.lane(action.lane)
        command = engine.launch(plan=desired.plan, lane=spec, lane_plan=lane_plan, host=_HOST, port=port)
        now = world.clock.now()
        record = Replica(
            id=f"{action.lane}-{world.store.next_replica_number(world.fleet, action.lane)}",
            fleet=world.fleet,
            lane=action.lane,
            engine=lane_plan.engine,
            state=ReplicaState.PENDING,
            market=offering.market,
            offering=offering.key,
            gpu=offering.gpu,
            price_usd_per_hour=offering.price_usd_per_hour,
            created_at=now,
            changed_at=now,
            reason=action.reason,
            host=_HOST,
            port=port,
        )
        request = NodeRequest(
            token=_token(world.store.owner, record),
            owner=world.store.owner,
            fleet=world.fleet,
            replica_id=record.id,
            lane=action.lane,
            offering=offering.key,
            market=offering.market,
            notice_s=offering.notice_s,
            argv=command.argv,
            env=command.env,
            host=_HOST,
            port=port,
            tags={
                "lane": action.lane,
                "model": desired.profile.model.name,
                "quantization": lane_plan.launch.quantization.value,
                "gpu_type": offering.gpu,
            },
        )
        intent = world.store.begin_replica(record, request, now=now)
        self._records.add(record)
        return intent, record

    async def _offering(self, desired: Desired, action: LaunchReplica) -> Offering:
        """Return where to launch: the market asked for, else on-demand where spot has none. Raises CapacityError."""
        sold = await self._sold()
        live = [record for record in self._records.all if record.state.is_live]
        now_s = self._world.clock.monotonic_s()
        self._no_stock_s = {key: since for key, since in self._no_stock_s.items() if now_s - since < _NO_STOCK_S}
        markets = (action.market, Market.ON_DEMAND) if action.market is Market.SPOT else (action.market,)
        why = []
        for market in markets:
            placed = next_offering(
                desired.plan.lane(action.lane),
                live,
                market,
                sold,
                capacity=desired.profile.capacity,
                avoid=self._no_stock_s.keys(),
            )
            if placed.offering is not None:
                return placed.offering
            why.append(placed.reason)
        raise CapacityError("; ".join(why), hint="it is tried again; raise the caps or allow more zones and GPUs")

    async def _sold(self) -> tuple[Offering, ...]:
        now_s = self._world.clock.monotonic_s()
        if not self._offerings or now_s - self._offerings_at_s > _OFFERINGS_AGE_S_MAX:
            self._offerings = await self._world.provider.offerings()
            self._offerings_at_s = now_s
        return self._offerings

    async def _create(self, desired: Desired, intent: Intent) -> None:
        try:
            async with asyncio.timeout(_CREATE_S):
                request = replace(intent.request, env=with_secrets(intent.request.env))
                node = await self._world.provider.create(request)
        except (AmbiguousOutcomeError, TimeoutError) as exc:
            # It may have happened: the intent stays open, and is looked up by its token.
            self._journal.failed(Subject.replica(intent.replica_id), "create", _reported(exc))
        except CapacityError as exc:
            self._journal.failed(Subject.replica(intent.replica_id), "create", exc)
            self._no_stock_s[intent.request.offering] = self._world.clock.monotonic_s()
            await self._elsewhere(desired, intent, exc)
        except FleetctlError as exc:
            self._journal.failed(Subject.replica(intent.replica_id), "create", exc)
            self.close(intent, exc.message, is_final=False)
        else:
            self.created(intent, node)

    def created(self, intent: Intent, node: Node) -> None:
        """Close an intent whose node is there."""
        self.own_tokens.discard(intent.token)
        record = self._records.get(intent.replica_id)
        # Whoever ended meanwhile stays ended: its node belongs to no living replica, and is stopped as such.
        if record is not None and record.state.is_live and not record.node_id:
            price = format_usd(record.price_usd_per_hour)
            record = node_created(
                record,
                node_id=node.id,
                host=node.host,
                port=node.port,
                reason=f"node {node.id} on {intent.request.offering} at {price}/h",
                now=self._world.clock.now(),
            )
        self._records.settle(intent.token, IntentState.DONE, record)

    async def _elsewhere(self, desired: Desired, intent: Intent, why: CapacityError) -> None:
        """Try the next offering as a new replica: a token belongs to one offering."""
        again = LaunchReplica(
            lane=intent.request.lane, market=intent.request.market, reason=f"{intent.request.offering}: {why.message}"
        )
        self.close(intent, why.message, is_final=True)
        record = await self.launch(desired, again)
        if record is not None:
            self._journal.note(
                EntryKind.LIFECYCLE,
                Subject.replica(record.id),
                "ordered",
                f"{record.reason}; on {record.offering} instead",
            )

    def close(self, intent: Intent, fault: str, *, is_final: bool) -> None:
        """Close an intent that brings no node; not final, the next decision counts a failed start."""
        self.own_tokens.discard(intent.token)
        record = self._records.get(intent.replica_id)
        if record is not None and record.state is ReplicaState.PENDING:
            record = create_refused(record, fault=fault, now=self._world.clock.now(), is_final=is_final)
        self._records.settle(intent.token, IntentState.ABANDONED, record)


def _token(owner: str, record: Replica) -> str:
    """Return a name for the order that no other order ever has, and that its maker can derive again."""
    words = f"{owner}/{record.fleet}/{record.id}/{record.created_at.isoformat()}"
    return hashlib.sha256(words.encode()).hexdigest()[:32]


def _reported(exc: BaseException) -> FleetctlError:
    if isinstance(exc, FleetctlError):
        return exc
    return AmbiguousOutcomeError(f"no answer to a create in {_CREATE_S:g} s", hint="it is looked up by its token")
