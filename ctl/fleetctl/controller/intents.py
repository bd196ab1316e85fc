"""Resolves what a crash or a cut-off answer left open, by its token, before anything is decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.controller.observe import create_key
from fleetctl.model.decision import EntryKind
from fleetctl.model.desired import Phase
from fleetctl.model.node import NodeState
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import Subject

if TYPE_CHECKING:
    from fleetctl.controller.background import BackgroundTasks
    from fleetctl.controller.journal import Journal
    from fleetctl.controller.launch import Launcher
    from fleetctl.controller.listing import Listed
    from fleetctl.controller.records import Records
    from fleetctl.controller.world import World
    from fleetctl.model.desired import Desired
    from fleetctl.ports.store import Intent

# Between two asks for the same open intent's node.
_AGAIN_S = 5.0


class Resolver:
    """Looks at every open intent that no create of ours is at work on."""

    def __init__(
        self, world: World, records: Records, background: BackgroundTasks, launcher: Launcher, journal: Journal
    ) -> None:
        self._world = world
        self._records = records
        self._background = background
        self._launcher = launcher
        self._journal = journal
        self._asked_s: dict[str, float] = {}
        self._open_since_s: dict[str, float] = {}

    def resolve(self, desired: Desired, listed: Listed | None) -> None:
        """Adopt nodes that are there; ask again, by the same token, for those that are not."""
        if not any(r.state is ReplicaState.PENDING for r in self._records.all) or listed is None:
            return
        now_s = self._world.clock.monotonic_s()
        left = [
            intent
            for intent in self._world.store.open_intents(self._world.fleet)
            if not self._background.is_running(create_key(intent.replica_id))
        ]
        self._open_since_s = {i.token: self._open_since_s.get(i.token, now_s) for i in left}
        for intent in left:
            # An answer given before the order was cut off knows nothing of it.
            if listed.asked_s >= self._open_since_s[intent.token] or self._is_first_look(listed, intent):
                self._resolve(desired, listed, intent)

    def _is_first_look(self, listed: Listed, intent: Intent) -> bool:
        """Whether the order was an earlier controller's: then any answer given to us is younger than it."""
        return listed.asked_at > intent.created_at and intent.token not in self._launcher.own_tokens

    def _resolve(self, desired: Desired, listed: Listed, intent: Intent) -> None:
        node = next((node for node in listed.nodes if node.token == intent.token), None)
        if node is not None and node.state is not NodeState.GONE:
            self._journal.note(
                EntryKind.LIFECYCLE, Subject.replica(intent.replica_id), "adopt", f"node {node.id} found by its token"
            )
            self._launcher.created(intent, node)
        elif node is not None:
            self._abandon(intent, f"its node {node.id} ended: {node.exit_reason or 'gone'}")
        elif desired.phase is Phase.UP and self._records.get(intent.replica_id) is not None:
            self._look_up_again(desired, intent)

    def _look_up_again(self, desired: Desired, intent: Intent) -> None:
        now_s = self._world.clock.monotonic_s()
        if now_s - self._asked_s.get(intent.token, float("-inf")) < _AGAIN_S:
            return
        self._asked_s = {intent.token: now_s, **{t: s for t, s in self._asked_s.items() if now_s - s < _AGAIN_S}}
        reason = "its order was cut off and no node has its token: ordered again by the same token"
        self._journal.note(EntryKind.LIFECYCLE, Subject.replica(intent.replica_id), "create", reason)
        self._launcher.create(desired, intent)

    def _abandon(self, intent: Intent, fault: str) -> None:
        self._launcher.close(intent, fault, is_final=False)
