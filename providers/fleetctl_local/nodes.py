"""The life of local nodes: created once, found again, ended for certain. Synchronous; called from threads."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from fleetctl.errors import ProviderError
from fleetctl.model.catalogue import Market
from fleetctl.model.node import NodeProcess
from fleetctl_local import kernel, logs, priority, shared_memory, spawn, temporary_files
from fleetctl_local.cpus import pick_cpus, share_environment
from fleetctl_local.gpu_choice import pick_gpus
from fleetctl_local.oom_kills import oom_kills
from fleetctl_local.reclaim import OWNER_TAG, TOKEN_TAG, sweep
from fleetctl_local.registry import Record, Registry, token_of

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.clock import Clock
    from fleetctl.model.node import Node, NodeRequest
    from fleetctl.ports.provider import ResolveSecrets
    from fleetctl_local.cpus import CpuReader, CpuReading
    from fleetctl_local.gpus import Gpu, GpuReader, GpuReading
    from fleetctl_local.kernel import Ident, Seen

_ENDED_KEPT = timedelta(hours=1)
_STOPPED, _INTERRUPTED = "stopped", "interrupted"  # exit reasons of ends that were asked for
# An engine makes its segments once, while it starts. A look reads the memory maps of all its processes.
_SHARED_MEMORY_S = 10.0
_BY_OOM = ", by the OOM killer"
_SWEEP_ROUNDS = 3  # in a listing, which comes every second and so need not wait for the last member to go


class Nodes:
    """Reads and moves records. A record is written before its process is started, and again with its pid after."""

    def __init__(self, clock: Clock, *, gpus: GpuReader, cpus: CpuReader) -> None:
        self._clock = clock
        self._read_gpus = gpus
        self._read_cpus = cpus
        self._creating = threading.Lock()
        self._registry = Registry()
        self._shared_memory_at_s = -_SHARED_MEMORY_S  # when it was last looked at
        self._oom_kills = oom_kills()  # at the end of the last listing; None: the kernel does not say
        self._scanned: set[str] = set()  # owners whose processes this object has looked for

    def create(self, request: NodeRequest, *, resolve_secrets: ResolveSecrets) -> Node:
        """Start the request's process, or return the node its token already has."""
        # Threads of this process take turns here, and only one of them waits for the lock of all processes.
        with self._creating, self._registry.locked():
            record = self._registry.get(request.token)
            if record is None or record.leader is None:
                record = self._adopted(request.token, request.owner) or self._started(request, resolve_secrets)
            elif (record.owner, record.fleet, record.replica_id) != (request.owner, request.fleet, request.replica_id):
                raise ProviderError(
                    f"token {request.token} already made {record.replica_id} of fleet {record.fleet}",
                    hint="a token belongs to one intent; derive it from what it names",
                )
            return record.node()

    def listed(self, owner: str, fleet: str) -> tuple[Node, ...]:
        """Return a fleet's nodes, after settling what has changed: ends, half-made records, missing reclaimers."""
        records = self._registry.all()
        if owner not in self._scanned or any(r.leader is None and r.owner == owner for r in records):
            self._recover(owner)
            records = self._registry.all()
            self._scanned.add(owner)
        self._reap_reclaimers(records)
        self._note_shared_memory(records)
        kept = [record for record in records if not self._is_outdated(record)]
        mine = [self._settled(r) for r in kept if (r.owner, r.fleet) == (owner, fleet)]
        self._oom_kills = oom_kills()
        return tuple(record.node() for record in mine if record is not None)

    def stop(self, node_id: str, grace_s: float) -> None:
        """Ask a node to end, and start the reclaimer that makes it, unless one is on it already and no later."""
        with self._registry.locked():
            record = self._registry.get(token_of(node_id)) if token_of(node_id) else None
            if record is None or not record.is_live:
                return
            requested = self._clock.now() + timedelta(seconds=grace_s)
            deadline = min(requested, record.stop_deadline or requested)
            is_carried = kernel.is_alive(record.stopper)
            if not is_carried or deadline != record.stop_deadline:
                record = _with_shared_memory(record)
                self._start_stopper(replace(record, stop_deadline=deadline), terminate=not is_carried)

    def interrupt(self, node_id: str, notice_s: float) -> None:
        """Put a notice on a spot node and start the reclaimer that takes it. Raises ProviderError otherwise."""
        with self._registry.locked():
            record = self._registry.get(token_of(node_id)) if token_of(node_id) else None
            if record is None or not record.is_live:
                raise ProviderError(f"no living node {node_id}", hint="list the replicas: fleetctl ls")
            if record.market is not Market.SPOT:
                raise ProviderError(
                    f"{record.replica_id} is {record.market}, and only spot nodes are interrupted",
                    hint="choose a spot replica, or drain this one",
                )
            deadline = self._clock.now() + timedelta(seconds=notice_s)
            if record.notice_deadline is None or deadline < record.notice_deadline:
                record = _with_shared_memory(record)
                self._start_taker(replace(record, notice_deadline=deadline))

    def ports_taken(self) -> frozenset[int]:
        """Return the ports of nodes that are live or being made, of every fleet."""
        return frozenset(record.port for record in self._registry.all() if record.ended_at is None)

    def gpus_taken(self, there: GpuReading) -> dict[str, str]:
        """Return whose the GPUs of nodes that are live or being made are, of every fleet: "r3 of fleet chat" by uuid."""
        taken: dict[str, str] = {}
        for record in self._registry.all():
            if record.ended_at is None:
                # Records of earlier versions have no uuids.
                uuids = record.gpu_uuids or (g.uuid for g in there.gpus if g.index in record.gpu_indices)
                taken.update(dict.fromkeys(uuids, f"{record.replica_id} of fleet {record.fleet}"))
        return taken

    def described(self, token: str, owner: str) -> Node | None:
        """Return an order's node, after settling what has changed; None: nothing was started for it."""
        record = self._registry.get(token)
        if record is None or record.leader is None:
            self._recover(owner)
            record = self._registry.get(token)
        if record is None or record.owner != owner:
            return None
        settled = self._settled(record)
        return settled.node() if settled is not None else None

    def processes(self, owner: str, fleet: str) -> dict[str, tuple[NodeProcess, ...]]:
        """Return the processes in the sessions of a fleet's living nodes, by token; one look at the kernel's table."""
        records = [r for r in self._registry.all() if (r.owner, r.fleet) == (owner, fleet) and r.is_live]
        by_session = {r.leader.pid: r for r in records if r.leader is not None}
        found: dict[str, tuple[NodeProcess, ...]] = {record.token: () for record in records}
        for pid in kernel.pids():
            seen = kernel.look(pid)
            record = by_session.get(seen.session) if seen is not None else None
            if seen is not None and record is not None:
                found[record.token] += (_node_process(seen, is_leader=seen.ident == record.leader),)
        return found

    def _note_shared_memory(self, records: tuple[Record, ...]) -> None:
        """Record what the living nodes hold: of one that is killed nobody can tell any more."""
        now_s = self._clock.monotonic_s()
        if now_s - self._shared_memory_at_s < _SHARED_MEMORY_S:
            return
        self._shared_memory_at_s = now_s
        by_leader = {record.leader.pid: record for record in records if record.is_live and record.leader is not None}
        held = shared_memory.held_in_sessions(frozenset(by_leader))
        new = {by_leader[pid].token for pid, found in held.items() if found - set(by_leader[pid].shared_memory)}
        for token in new:
            with self._registry.locked():
                record = self._registry.get(token)
                if record is not None and record.is_live:
                    self._registry.note(_with_shared_memory(record))

    def _started(self, request: NodeRequest, resolve_secrets: ResolveSecrets) -> Record:
        gpus = self._picked_gpus(request)
        cpus, share_env = self._picked_cpus(request, gpus)
        env = share_env | resolve_secrets(request.env)
        draft = self._registry.put(
            Record(
                token=request.token,
                owner=request.owner,
                fleet=request.fleet,
                replica_id=request.replica_id,
                market=request.market,
                host=request.host,
                port=request.port,
                created_at=self._clock.now(),
                offering=request.offering,
                gpu_indices=tuple(gpu.index for gpu in gpus),
                gpu_uuids=tuple(gpu.uuid for gpu in gpus),
                cpus=cpus,
                shares_cpus=not gpus and request.gpu_count > 0 and request.cpu is not None,
                temporary=temporary_files.make(request.owner, request.token),
            )
        )
        try:
            leader = spawn.start_engine(request, env=env, gpus=gpus, cpus=cpus, temporary=draft.temporary)
        except ProviderError:
            temporary_files.remove(draft.temporary)
            self._registry.remove(request.token)
            raise
        if draft.shares_cpus:
            priority.put_behind(leader.pid)
        return self._registry.note(replace(draft, leader=leader))

    def _picked_gpus(self, request: NodeRequest) -> tuple[Gpu, ...]:
        """Return the GPUs a new node gets; asks the driver only for a node that needs some. Call it under the lock."""
        if not request.gpu_count:
            return ()
        there = self._read_gpus()
        return pick_gpus(
            request.gpu_count,
            there=there,
            taken=self.gpus_taken(there),
            memory_fraction=request.gpu_memory_fraction,
        )

    def _picked_cpus(self, request: NodeRequest, gpus: tuple[Gpu, ...]) -> tuple[tuple[int, ...], dict[str, str]]:
        """Return the CPUs of a new node that would use GPUs and has none, and what tells its engine of its share."""
        if gpus or not request.gpu_count or request.cpu is None:
            return (), {}
        there = self.cpus_there()
        taken = [cpu for record in self._registry.all() if record.ended_at is None for cpu in record.cpus]
        return pick_cpus(request.cpu, there, taken), share_environment(request.cpu, there)

    def cpus_there(self) -> CpuReading:
        """Return what there is to share out: what is free, and what living nodes that have a share hold already."""
        there = self._read_cpus()
        live = [record.leader for record in self._registry.all() if record.is_live and record.shares_cpus]
        sessions = {leader.pid for leader in live if leader is not None}
        held = sum(kernel.session_memory_bytes(sessions).values())
        return replace(there, memory_bytes=there.memory_bytes + held)

    def _adopted(self, token: str, owner: str) -> Record | None:
        """Return the record of a process whose creator died before noting it, if there is one."""
        return self._adopt(spawn.scan(owner=owner).get(token, []))

    def _adopt(self, tagged: list[spawn.Tagged]) -> Record | None:
        leaders = [found for found in tagged if found.seen.session == found.seen.ident.pid]
        if not leaders:
            return None
        eldest = min(leaders, key=lambda found: _age_key(found.seen.ident))
        return self._registry.put(eldest.record)

    def _recover(self, owner: str) -> None:
        """Look at every process of this owner's: adopt what is not recorded, forget orders nobody carried out."""
        with self._registry.locked():
            tagged = spawn.scan(owner=owner)
            known = {record.token: record for record in self._registry.all() if record.owner == owner}
            orphaned = []  # processes that outlived their node's leader
            for token, found in tagged.items():
                record = known.get(token)
                if record is None or record.leader is None:
                    record = known[token] = self._adopt(found) or replace(found[0].record, leader=None)
                if not kernel.is_alive(record.leader):
                    orphaned.append(found[0].record)
            for token, record in known.items():
                if record.leader is None:
                    self._registry.remove(token)
        for record in orphaned:
            _sweep(record)
            _remove_left(record)

    def _is_outdated(self, record: Record) -> bool:
        """Whether it ended long ago; then it is forgotten, whoever's it was."""
        if record.ended_at is None or self._clock.now() - record.ended_at <= _ENDED_KEPT:
            return False
        self._registry.remove(record.token)
        return True

    def _settled(self, record: Record) -> Record | None:
        """Return the record as it is now, after noting an end or carrying on a promise whose reclaimer is dead."""
        if record.ended_at is not None:
            return record
        if not kernel.is_alive(record.leader):
            return self._ended(record.token)
        if record.stop_deadline is not None and not kernel.is_alive(record.stopper):
            return self._resumed(record.token)
        if record.notice_deadline is not None and not kernel.is_alive(record.taker):
            return self._resumed(record.token)
        return record

    def _ended(self, token: str) -> Record | None:
        with self._registry.locked():
            record = self._registry.get(token)
            if record is None or not record.is_live or kernel.is_alive(record.leader):
                return record
            _sweep(record)
            _remove_left(record)
            reason = self._exit_reason(record)
            # An end that was asked for needs no explanation.
            tail = "" if reason in (_STOPPED, _INTERRUPTED) else logs.tail(record.fleet, record.replica_id)
            ended = replace(record, ended_at=self._clock.now(), exit_reason=reason, log_tail=tail)
            return self._registry.note(ended)

    def _resumed(self, token: str) -> Record | None:
        with self._registry.locked():
            record = self._registry.get(token)
            if record is None or not record.is_live:
                return record
            if record.stop_deadline is not None and not kernel.is_alive(record.stopper):
                record = self._start_stopper(record, terminate=True)
            if record.notice_deadline is not None and not kernel.is_alive(record.taker):
                record = self._start_taker(record)
            return record

    def _start_stopper(self, record: Record, *, terminate: bool) -> Record:
        # The promise is on disk before the reclaimer is started: a crash between the two is carried on by a listing.
        self._registry.note(record)
        stopper = spawn.start_reclaimer(
            record, wait_s=self._until_s(record.stop_deadline), terminate=terminate, mark=None
        )
        return self._registry.note(replace(record, stopper=stopper))

    def _start_taker(self, record: Record) -> Record:
        self._registry.note(record)
        mark = self._registry.taken_mark(record.token)
        taker = spawn.start_reclaimer(record, wait_s=self._until_s(record.notice_deadline), terminate=False, mark=mark)
        return self._registry.note(replace(record, taker=taker))

    def _until_s(self, deadline: datetime | None) -> float:
        return (deadline - self._clock.now()).total_seconds() if deadline is not None else 0.0

    def _exit_reason(self, record: Record) -> str:
        """Return why it ended; called once, since it reaps."""
        status = _reap(record.leader)
        if self._registry.taken_mark(record.token).exists():
            return _INTERRUPTED
        if record.stop_deadline is not None:
            return _STOPPED
        if status is None:
            return "exited"  # its parent died before it, and init alone was told the status
        return _end(status) + (_BY_OOM if _is_kill(status) and self._has_run_out() else "")

    def _has_run_out(self) -> bool:
        """Whether the OOM killer has killed since the last listing."""
        now, before = oom_kills(), self._oom_kills
        return now is not None and before is not None and now > before

    def _reap_reclaimers(self, records: tuple[Record, ...]) -> None:
        """Collect our own reclaimers that have finished, so that they do not stay as zombies."""
        for record in records:
            for ident in (record.stopper, record.taker):
                if ident is not None:
                    _reap(ident)


def _is_kill(status: int) -> bool:
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _end(status: int) -> str:
    """Return a wait status in words."""
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"


def _node_process(seen: Seen, *, is_leader: bool) -> NodeProcess:
    ended = seen.is_zombie and (_end(seen.wait_status) if seen.wait_status is not None else "exited")
    return NodeProcess(
        id=f"{seen.ident.pid}-{seen.ident.birth}", name=seen.name, is_leader=is_leader, exit_reason=ended or ""
    )


def _reap(ident: Ident | None) -> int | None:
    """Return a process's wait status if it has ended and anybody still knows; collects it if it is our child."""
    if ident is None:
        return None
    seen = kernel.look(ident.pid)
    if seen is None or seen.ident != ident or not seen.is_zombie:
        return None
    try:
        _, status = os.waitpid(ident.pid, os.WNOHANG)
    except ChildProcessError:
        return seen.wait_status
    return status


def _with_shared_memory(record: Record) -> Record:
    """Return the record with the segments that its processes hold now; those of earlier looks stay."""
    if record.leader is None:
        return record
    found = shared_memory.held_in_sessions(frozenset({record.leader.pid})).get(record.leader.pid, frozenset())
    return replace(record, shared_memory=tuple(sorted(found.union(record.shared_memory))))


def _remove_left(record: Record) -> None:
    """Remove what a node's engine left outside its own processes."""
    temporary_files.remove(record.temporary)
    shared_memory.remove_unheld(record.shared_memory)


def _sweep(record: Record) -> None:
    if record.leader is not None:
        sweep(record.leader, tags={OWNER_TAG: record.owner, TOKEN_TAG: record.token}, rounds=_SWEEP_ROUNDS)


def _age_key(ident: Ident) -> tuple[int, str]:
    return len(ident.birth), ident.birth
