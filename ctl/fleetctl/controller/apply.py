"""Carries out a decision: journalled first, then done; what takes time goes on in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from fleetctl.controller.launch import token_of
from fleetctl.core.assignment import assignment_refusal
from fleetctl.core.disruption import code_of_notice, notice_text
from fleetctl.core.transitions import is_lawful, notice_seen, stop_taken, transition
from fleetctl.errors import ConfigError, FleetctlError, ProviderError, ThrottledError
from fleetctl.model.action import EntryKind, OneReplicaAction
from fleetctl.model.decision import (
    AbandonShared,
    AdmitReplica,
    AnyAction,
    AssignReplica,
    DrainReplica,
    LaunchReplica,
    LeaveUnverified,
    MarkBooting,
    MarkGone,
    PrepareShared,
    ReportAlert,
    ReportBreach,
    ReportRollout,
    RollBack,
    SetStep,
    StopOrphanedNode,
    StopReplica,
    TeardownShared,
    UndrainReplica,
    WarmReplica,
)
from fleetctl.model.eviction_report import ReportEviction, SetEvictionGuard
from fleetctl.model.gateway_actions import StartGateway, StopGateway
from fleetctl.model.loop_report import ReportLoops
from fleetctl.model.node import NodeState
from fleetctl.model.reason import ReasonCode
from fleetctl.model.replica import ReplicaState
from fleetctl.model.restart_action import RestartReplica
from fleetctl.model.stream_report import ReportStreamUnit
from fleetctl.model.subject import GATEWAY, Subject
from fleetctl.ports.store import IntentState, Settlement, Tombstone

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.controller.background import BackgroundTasks
    from fleetctl.controller.canary import Canaries
    from fleetctl.controller.journal import Journal
    from fleetctl.controller.node_cache import NodeCache
    from fleetctl.controller.observe import Observer
    from fleetctl.controller.probes import Probes
    from fleetctl.controller.provider_calls import ProviderCalls
    from fleetctl.controller.records import Records
    from fleetctl.controller.restarts import Restarts
    from fleetctl.controller.revisions import Revisions
    from fleetctl.controller.shared import SharedOperations
    from fleetctl.controller.warm import Warmups
    from fleetctl.controller.world import World
    from fleetctl.model.decision import Decision, Memory, ReplicaAction, SharedAction
    from fleetctl.model.desired import Desired
    from fleetctl.model.node import Notice
    from fleetctl.model.observation import Observation
    from fleetctl.model.replica import Replica
    from fleetctl.ports.runtime import GatewayHost

_GATEWAY_STOP_S = 12.0
_STALLED_GATEWAY_STOP_S = 0.5
_SURPLUS_GATEWAY_STOP_S = 3600.0  # the longest that requests take, as a rule
_GATEWAY = "gateway"
_GATEWAY_START = "gateway-start"


class Applier:
    """Carries out decisions: journals each action, changes the record, then calls the engine or the provider."""

    def __init__(  # noqa: PLR0913  # the controller's components, each named
        self,
        world: World,
        *,
        calls: ProviderCalls,
        cache: NodeCache,
        records: Records,
        background: BackgroundTasks,
        journal: Journal,
        warmups: Warmups,
        canaries: Canaries,
        probes: Probes,
        restarts: Restarts,
        observer: Observer,
        shared: SharedOperations,
        revisions: Revisions,
    ) -> None:
        self._world = world
        self._revisions = revisions
        self._calls = calls
        self._cache = cache
        self._records = records
        self._background = background
        self._journal = journal
        self._warmups = warmups
        self._canaries = canaries
        self._probes = probes
        self._restarts = restarts
        self._observer = observer
        self._shared = shared
        self._memory = world.store.memory()

    @property
    def memory(self) -> Memory:
        """What the last decision left, an earlier controller's included."""
        return self._memory

    def apply(self, desired: Desired, observation: Observation, decision: Decision) -> list[LaunchReplica]:
        """Journal the decision, keep its memory, and do it; return the launches, which come when the table is out.

        Actions marked shadow are only journalled.
        """
        actions = [
            action
            for action in decision.actions
            if not (action.shadow or self._is_under_way(action) or self._is_refused(desired, action))
        ]
        lanes = {Subject.replica(r.id): Subject.lane(r.lane) for r in self._records.all} if decision.actions else {}
        self._journal.decided(decision, actions, lanes)
        if decision.memory != self._memory:
            self._world.store.put_memory(decision.memory)
            self._memory = decision.memory
        self._note_notices(observation)
        for action in actions:
            self._do(desired, action)
        return [action for action in actions if isinstance(action, LaunchReplica)]

    def _is_under_way(self, action: AnyAction) -> bool:
        if isinstance(action, StopGateway):
            return self._background.is_running(_of(_GATEWAY, action.number))
        return isinstance(action, StopOrphanedNode) and self._background.is_running(f"stop/{action.node_id}")

    def _is_refused(self, desired: Desired, action: AnyAction) -> bool:
        """Refuse, whichever policy asks for it, an assignment that the replica could not serve; journal why."""
        record = self._records.get(action.replica_id) if isinstance(action, AssignReplica) else None
        if record is None or not isinstance(action, AssignReplica):
            return False
        why = assignment_refusal(record, action.lane, desired.plan)
        if why:
            self._journal.failed(action.subject, "assign", ConfigError(why), code=ReasonCode.ASSIGNMENT_REFUSED)
        return bool(why)

    def _note_notices(self, observation: Observation) -> None:
        for seen in observation.replicas:
            record = self._records.get(seen.record.id)
            if record is None:
                continue
            after = notice_seen(record, seen.notice, deadline=seen.notice_deadline)
            if after is not record:
                self._records.put(after)
                self._journal_notice(record, after.notice, observation.at)

    def _journal_notice(self, record: Replica, after: Notice | None, now: datetime) -> None:
        """Write that a notice appeared, became another or ended, or who takes the place; that its deadline moved is no news."""
        before, subject = record.notice, Subject.replica(record.id)
        if after is None and before is not None:
            code, message = ReasonCode.NODE_NOTICE_ENDED, f"the provider no longer gives {before.kind} notice"
            self._journal.note(EntryKind.NOTICE, subject, "notice-ended", code, message)
        elif after is not None and (
            before is None
            or (before.kind, before.is_certain, before.taker) != (after.kind, after.is_certain, after.taker)
        ):
            inputs: dict[str, float | str] = {"notice": after.kind.value, "certain": str(after.is_certain).lower()}
            if after.deadline is not None:
                inputs["deadline"] = after.deadline.isoformat(timespec="seconds")
            code = code_of_notice(after)
            message = f"the provider gives {notice_text(after, now)}"
            self._journal.note(EntryKind.NOTICE, subject, "notice", code, message, inputs=inputs)

    def _do(self, desired: Desired, action: AnyAction) -> None:
        match action:
            case (
                LaunchReplica()
                | SetStep()
                | ReportBreach()
                | ReportAlert()
                | ReportStreamUnit()
                | ReportLoops()
                | ReportEviction()
                | SetEvictionGuard()
                | ReportRollout()
            ):
                # Launches are ordered together when all else is done; the table is built from the decision's memory, and
                # of a breach or an alert there is no more to do than to write it down.
                pass
            case RollBack():
                if desired.stable is not None:
                    self._revisions.roll_back(desired, desired.stable, over=action.revision, why=action.reason)
            case StartGateway():
                key = _of(_GATEWAY_START, action.number)
                self._background.start(key, lambda: self._start_gateway(desired, action.number))
            case StopGateway():
                within_s = _SURPLUS_GATEWAY_STOP_S if action.may_finish else _GATEWAY_STOP_S
                within_s = _STALLED_GATEWAY_STOP_S if action.at_once else within_s
                self._background.start(
                    _of(_GATEWAY, action.number), lambda: self._stop_gateway(action.number, within_s)
                )
            case StopOrphanedNode():
                self._begin_stop(action.subject, action.node_id, action.grace_s)
            case PrepareShared() | TeardownShared() | AbandonShared():
                self._do_shared(desired, action)
            case LeaveUnverified():
                self._leave_unverified(desired, action.reason)
            case OneReplicaAction():
                self._change(desired, action)
            case _ as never:
                assert_never(never)

    def _do_shared(self, desired: Desired, action: SharedAction) -> None:
        match action:
            case PrepareShared():
                self._shared.prepare(action.resource)
            case TeardownShared():
                self._shared.teardown(action.resource)
            case AbandonShared():
                self._shared.abandon(desired, action.resource, action.reason)

    def _change(self, desired: Desired, action: ReplicaAction) -> None:
        """Do what the action means at the engine or the provider, and store the replica's new record."""
        record = self._records.get(action.replica_id)
        # A create may have been answered since the decision was made: the next one is made on what is so now.
        if record is None or not is_lawful(record, action):
            return
        match action:
            case WarmReplica():
                self._warmups.begin(
                    record, record.served_name or desired.profile.model.name, recoveries=action.recoveries
                )
            case AdmitReplica() | UndrainReplica():
                self._observer.admitted(record.id)
            case DrainReplica() | AssignReplica():
                pass  # the routing table is built from its record
            case StopReplica():
                self._forget(record.id)
                if not record.node_id:
                    return  # there is nothing to name to the provider before the create has been answered
                self._begin_stop(action.subject, record.node_id, action.grace_s)
            case MarkGone():
                self._forget(record.id)
                self._bury(desired, record, action.reason)
            case MarkBooting():
                self._forget(record.id)
            case RestartReplica():
                self._forget(record.id)
                self._restarts.begin(record)
        self._records.put(transition(record, action, now=self._world.clock.now()))

    def _bury(self, desired: Desired, record: Replica, reason: str) -> None:
        """Close the order; unless its node was seen to have ended, or it was never sent, remember it past the fleet."""
        store, now = self._world.store, self._world.clock.now()
        token = token_of(store.owner, record)
        may_be_there = bool(record.node_id)
        if record.state is ReplicaState.PENDING:
            for intent in store.open_intents():
                if intent.token == token:
                    may_be_there = bool(intent.request.argv)
                    store.settle_intents((Settlement(token=token, state=IntentState.ABANDONED),))
        node = self._cache.node(token, now=now)
        if not may_be_there or (node is not None and node.state is NodeState.GONE):
            return
        store.bury(
            Tombstone(
                token=token,
                provider=desired.profile.provider,
                provider_settings=desired.profile.provider_settings,
                fleet=record.fleet,
                replica_id=record.id,
                node_id=record.node_id,
                offering=record.offering,
                ended_at=now,
                reason=reason,
            )
        )

    def _leave_unverified(self, desired: Desired, reason: str) -> None:
        store = self._world.store
        store.bury(
            Tombstone(
                token=f"{store.owner}-{desired.fleet}",
                provider=desired.profile.provider,
                provider_settings=desired.profile.provider_settings,
                fleet=desired.fleet,
                replica_id="",
                node_id="",
                offering="",
                ended_at=self._world.clock.now(),
                reason=reason,
            )
        )

    def _begin_stop(self, subject: Subject, node_id: str, grace_s: float) -> None:
        self._background.start(f"stop/{node_id}", lambda: self._request_stop(subject, node_id, grace_s))

    async def _request_stop(self, subject: Subject, node_id: str, grace_s: float) -> None:
        await self._world.store.journalled()
        while True:
            try:
                await self._calls.stop(node_id, grace_s=grace_s)
            except ThrottledError:
                continue  # it is let in when the provider said so
            except ProviderError as exc:
                self._journal.failed(subject, "stop", exc)  # decided again once its deadline has passed
                return
            break
        now = self._world.clock.now()
        self._cache.put_stopped(node_id, at=now)
        record = self._records.get(subject.name)
        if record is not None and record.state is ReplicaState.STOPPING:
            self._records.put(stop_taken(record, now=now))

    def _forget(self, replica_id: str) -> None:
        self._probes.forget(replica_id)
        self._warmups.forget(replica_id)
        self._canaries.forget(replica_id)

    async def _stop_gateway(self, number: int, within_s: float) -> None:
        await self._world.store.verify_lease()
        await self._gateway(number).stop(within_s=within_s)

    def _gateway(self, number: int) -> GatewayHost:
        return self._world.gateway_host.numbered(number)

    async def _start_gateway(self, desired: Desired, number: int) -> None:
        await self._world.store.verify_lease()
        try:
            pid = self._gateway(number).start(desired)
        except FleetctlError as exc:
            self._journal.failed(GATEWAY, "start-gateway", exc)
        else:
            self._journal.note(
                EntryKind.GATEWAY, GATEWAY, "started", ReasonCode.GATEWAY_STARTED, f"as process {pid}{_which(number)}"
            )


def _of(work: str, number: int) -> str:
    """Return the key of work at one gateway."""
    return work if number == 1 else f"{work}-{number}"


def _which(number: int) -> str:
    return "" if number == 1 else f", gateway {number}"
