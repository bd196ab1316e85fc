"""Warms replicas: a real completion each, before any client's request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleetctl.core.reconcile.limits import WARM_AGAIN_S, warm_failures_max
from fleetctl.engine_kit.warming import of_length
from fleetctl.errors import UnavailableError
from fleetctl.model.subject import Subject

if TYPE_CHECKING:
    from fleetctl.controller.background import BackgroundTasks
    from fleetctl.controller.journal import Journal
    from fleetctl.controller.world import World
    from fleetctl.model.replica import Replica

_AGAIN_S = 1.0
# What stood still in the middle of an answer may well begin one: the proof is so many tokens for each time it did.
_PROOF_TOKENS = 64
_PROOF_TOKEN_S = 0.1
_DEADLINE_S = 90.0  # the engine client has its own, shorter one; this also covers a client that hangs


class Warmups:
    """Sends each new replica a completion; keeps which are warming, which are warm and which attempts failed."""

    def __init__(self, world: World, background: BackgroundTasks, journal: Journal) -> None:
        self._world = world
        self._background = background
        self._journal = journal
        self._warm: set[str] = set()
        self._failures: dict[str, int] = {}

    def begin(self, record: Replica, served_name: str, *, recoveries: int = 0) -> None:
        """Start warming; attempts follow one another until one succeeds or too many have failed."""
        if record.id not in self._warm:
            tokens = _PROOF_TOKENS * recoveries
            self._background.start(_key(record.id), lambda: self._attempts(record, served_name, tokens))

    def is_warming(self, replica_id: str) -> bool:
        """Whether a completion is on its way, or about to be tried again."""
        return self._background.is_running(_key(replica_id))

    def is_warm(self, replica_id: str) -> bool:
        """Whether a completion has come back."""
        return replica_id in self._warm

    def failures(self, replica_id: str) -> int:
        """Return how many attempts failed."""
        return self._failures.get(replica_id, 0)

    def forget(self, replica_id: str) -> None:
        """Forget an earlier life."""
        self._background.cancel(_key(replica_id))
        self._warm.discard(replica_id)
        self._failures.pop(replica_id, None)

    async def _attempts(self, record: Replica, served_name: str, tokens: int) -> None:
        path, body = self._world.engine_of(record.engine).warm_body(served_name=served_name)
        body = of_length(body, tokens)
        deadline_s = _DEADLINE_S if record.is_cold else WARM_AGAIN_S + _PROOF_TOKEN_S * tokens
        while self.failures(record.id) < warm_failures_max(record):
            try:
                async with asyncio.timeout(deadline_s):
                    await self._world.engines.complete(record.host, record.port, path, body)
            except (UnavailableError, TimeoutError) as exc:
                self._failures[record.id] = self.failures(record.id) + 1
                self._journal.failed(Subject.replica(record.id), "warm", exc)
                if self.failures(record.id) < warm_failures_max(record):
                    await self._world.clock.sleep(_AGAIN_S)
            else:
                self._warm.add(record.id)
                self._failures.pop(record.id, None)
                return


def _key(replica_id: str) -> str:
    return f"warm/{replica_id}"
