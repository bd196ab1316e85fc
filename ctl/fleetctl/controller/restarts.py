"""Has the provider start engines anew on the nodes that they have, and keeps whether it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.transitions import restart_answered
from fleetctl.errors import ProviderError, ThrottledError, UnavailableError
from fleetctl.model.action import EntryKind
from fleetctl.model.reason import ReasonCode
from fleetctl.model.subject import Subject

if TYPE_CHECKING:
    from fleetctl.controller.background import BackgroundTasks
    from fleetctl.controller.journal import Journal
    from fleetctl.controller.probes import Probes
    from fleetctl.controller.provider_calls import ProviderCalls
    from fleetctl.controller.records import Records
    from fleetctl.controller.world import World
    from fleetctl.model.replica import Replica

# Whatever kept one restart from being carried out, an agent or a right that lacks, keeps the next ones as well: for so long
# the controller replaces nodes as where nothing can be restarted. A person's order is tried all the same.
_FAILED_FOR_S = 600.0


class Restarts:
    """Restarts engines in the background, one restart a replica at a time."""

    def __init__(  # what it works with, each named
        self,
        world: World,
        *,
        calls: ProviderCalls,
        records: Records,
        background: BackgroundTasks,
        journal: Journal,
        probes: Probes,
    ) -> None:
        self._world = world
        self._calls = calls
        self._records = records
        self._background = background
        self._journal = journal
        self._probes = probes
        self._failed_until_s = 0.0

    @property
    def are_possible(self) -> bool:
        """Whether the provider knows how to restart an engine."""
        return self._world.provider.capabilities.restarts is not None

    @property
    def have_failed(self) -> bool:
        """Whether one has failed a while ago."""
        return self._world.clock.monotonic_s() < self._failed_until_s

    def is_under_way(self, replica_id: str) -> bool:
        """Whether the provider has been told to restart a replica's engine and has not answered."""
        return self._background.is_running(_key(replica_id))

    def begin(self, record: Replica) -> None:
        """Have the engine of a replica, whose record says so by the next write, restarted."""
        self._background.start(_key(record.id), lambda: self._restart(record.id))

    async def _restart(self, replica_id: str) -> None:
        await self._world.store.journalled()
        fault = await self._refusal(replica_id)
        record = self._records.get(replica_id)
        if record is None or not record.is_restarting:
            return  # told to end meanwhile
        # What it said last was said by its old engine.
        self._probes.forget(replica_id)
        self._records.put(restart_answered(record, fault=fault))
        if not fault:
            subject, message = Subject.replica(replica_id), "its old engine has ended, another starts"
            self._journal.note(EntryKind.LIFECYCLE, subject, "restarted", ReasonCode.RESTARTED, message)

    async def _refusal(self, replica_id: str) -> str:
        """Have it restarted; return why it could not be, which is journalled. Empty: it was."""
        while True:
            record = self._records.get(replica_id)
            if record is None or record.restart is None or not record.is_restarting:
                return ""
            try:
                await self._calls.restart(record.node_id, started_before=record.restart.started_before)
            except ThrottledError:
                continue  # it is let in when the provider said so
            except (ProviderError, UnavailableError) as exc:
                self._journal.failed(Subject.replica(replica_id), "restart", exc, code=ReasonCode.RESTART_FAILED)
                self._failed_until_s = self._world.clock.monotonic_s() + _FAILED_FOR_S
                return f"{exc.message}; {exc.hint}" if exc.hint else exc.message
            return ""


def _key(replica_id: str) -> str:
    return f"restart/{replica_id}"
