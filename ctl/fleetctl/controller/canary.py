"""Canaries: small completions sent straight to engines, to find one that is hung though nobody uses it, or broken.

A replica that answers nothing but errors may be broken, or its clients' requests may be what is wrong: a canary tells.
They pass neither the gateway nor its breaker, and take no slot of a lane.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.liveness import stall_limit_s
from fleetctl.errors import UnavailableError
from fleetctl.model.replica import ReplicaState
from fleetctl.model.slo import Validity

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.controller.background import BackgroundTasks
    from fleetctl.controller.world import World
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation, ObservedReplica

_EVERY_S = 4.0  # nothing has proved a replica alive for this long
_DEADLINE_S_MIN = 4.0
# Of a large idle fleet no more than so many a second, each replica the more seldom.
_PER_TICK_MAX = 10
# The gateway hears nothing of a request there: whatever the engine's figures say, it is time to look.
_SILENT_S = 1.0
# So many errors in a row at the gateway, and it is time to look, whatever runs there.
ERRORS_DOUBTED = 3


@dataclass(slots=True)
class _Proof:
    progress: tuple[float, float] = (-1.0, 0.0)  # tokens and steps as last counted
    alive_at_s: float = 0.0  # a completion came back, tokens were counted, or it was looked at first
    tried_at_s: float = 0.0
    missed_s: float = 0.0  # the deadline that the last canary missed; 0: none has
    error: str = ""  # what the last one was answered with instead of a completion


class Canaries:
    """Sends them where nothing runs and nothing has lately; keeps which were not answered."""

    def __init__(self, world: World, background: BackgroundTasks, on_change: Callable[[], None]) -> None:
        self._world = world
        self._background = background
        self._on_change = on_change
        self._proofs: dict[str, _Proof] = {}

    def begin(self, desired: Desired, observation: Observation) -> None:
        """Start those that are due; never waits."""
        now_s = self._world.clock.monotonic_s()
        ready = [r for r in observation.replicas if r.record.state is ReplicaState.READY]
        self._proofs = {r.record.id: self._proofs.get(r.record.id) or _Proof(alive_at_s=now_s) for r in ready}
        # A lane that is retired is not looked after.
        lanes = {lane.name for lane in desired.profile.lanes}
        due = [replica for replica in ready if replica.record.lane in lanes and self._is_due(replica, now_s)]
        due.sort(key=lambda replica: self._proofs[replica.record.id].tried_at_s)
        for replica in due[:_PER_TICK_MAX]:
            self._start(replica, desired, now_s)

    def missed_s(self, replica_id: str) -> float:
        """Return the deadline that the last canary missed, in seconds; 0: none has."""
        proof = self._proofs.get(replica_id)
        return proof.missed_s if proof else 0.0

    def error(self, replica_id: str) -> str:
        """Return what the last canary was answered with instead of a completion; empty: with one, or not at all."""
        proof = self._proofs.get(replica_id)
        return proof.error if proof else ""

    def forget(self, replica_id: str) -> None:
        """Forget an earlier life."""
        self._background.cancel(_key(replica_id))
        self._proofs.pop(replica_id, None)

    def _is_due(self, replica: ObservedReplica, now_s: float) -> bool:
        proof, engine = self._proofs[replica.record.id], replica.engine
        progress = (engine.output_tokens, engine.steps)
        if progress != proof.progress:
            proof.progress, proof.alive_at_s, proof.missed_s = progress, now_s, 0.0
        if replica.errors_in_a_row >= ERRORS_DOUBTED:
            return now_s - proof.tried_at_s >= _EVERY_S
        if engine.validity is not Validity.OK or engine.running or engine.waiting:
            return False
        if replica.in_flight and replica.silent_s < _SILENT_S:
            return False
        return now_s - max(proof.alive_at_s, proof.tried_at_s) >= _EVERY_S

    def _start(self, replica: ObservedReplica, desired: Desired, now_s: float) -> None:
        record = replica.record
        lane = desired.profile.lane(record.lane)
        deadline_s = max(_DEADLINE_S_MIN, stall_limit_s(lane.slo, desired.profile.gateway.stall_timeout_s))
        proof = self._proofs[record.id]
        proof.tried_at_s = now_s
        served_name = record.served_name or desired.profile.model.name
        path, body = self._world.engine_of(record.engine).warm_body(served_name=served_name)
        self._background.start(
            _key(record.id),
            lambda: self._complete((record.host, record.port, path, body), proof, deadline_s),
            wakes=False,
        )

    async def _complete(self, request: tuple[str, int, str, bytes], proof: _Proof, deadline_s: float) -> None:
        try:
            async with asyncio.timeout(deadline_s):
                await self._world.engines.complete(*request)
        except TimeoutError:
            proof.missed_s = deadline_s
            self._on_change()
        except UnavailableError as exc:
            # It was answered, though not well: that counts beside what /health and the gateway say.
            proof.error = str(exc)
        else:
            proof.alive_at_s, proof.missed_s, proof.error = self._world.clock.monotonic_s(), 0.0, ""


def _key(replica_id: str) -> str:
    return f"canary/{replica_id}"
