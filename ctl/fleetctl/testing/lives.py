"""What the providers in memory have in common: nodes that boot and end as a clock passes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fleetctl.errors import ProviderError
from fleetctl.model.catalogue import Market
from fleetctl.model.node import Node, NodeRequest, NodeState, Notice, NoticeKind

if TYPE_CHECKING:
    from fleetctl.clock import Clock

_ENDED_KEPT = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLife:
    """A node and what time will do to it."""

    node: Node
    made_at: datetime  # before this there is nothing, though the create has been taken
    runs_at: datetime | None  # None: never
    ends_at: datetime | None = None
    end_reason: str = ""

    def is_over(self, now: datetime) -> bool:
        """Whether it has ended."""
        return self.ends_at is not None and self.ends_at <= now

    def runs(self, now: datetime) -> bool:
        """Whether it has booted."""
        return self.runs_at is not None and self.runs_at <= now

    def at(self, now: datetime) -> Node:
        """Return the node as it is at this instant."""
        if self.is_over(now):
            return replace(self.node, state=NodeState.GONE, exit_reason=self.end_reason)
        if self.node.state is NodeState.STARTING and self.runs(now):
            return replace(self.node, state=NodeState.RUNNING, pending_reason="", boot=None)
        return self.node

    def ending(self, at: datetime, reason: str) -> NodeLife:
        """Return the life with this end, unless it ends before that anyway."""
        if self.ends_at is not None and self.ends_at <= at:
            return self
        return replace(self, ends_at=at, end_reason=reason)

    def stopping(self, at: datetime) -> NodeLife:
        """Return the life of a node that was told to end and has until `at`."""
        return replace(self, node=replace(self.node, state=NodeState.STOPPING)).ending(at, "stopped")

    def noticed(self, notice: Notice | None) -> NodeLife:
        """Return the life with a notice on its node, or without one; what that announces is up to the caller."""
        return replace(self, node=replace(self.node, notice=notice))


def interruption(deadline: datetime) -> Notice:
    """Return the notice of a spot node that is taken at this instant."""
    return Notice(kind=NoticeKind.INTERRUPTION, deadline=deadline, is_certain=True)


class NodeLives:
    """The base of providers in memory: their nodes by token, and what may be asked of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lives: dict[str, NodeLife] = {}  # by token, in the order of their creation

    def living(self) -> list[Node]:
        """Return the nodes that are there and billed now."""
        now = self._clock.now()
        return [self._seen(life) for life in self._lives.values() if life.made_at <= now and not life.is_over(now)]

    def end(self, token: str, reason: str = "exit 1") -> None:
        """Let a node end now, by its own doing."""
        self._put(token, replace(self._lives[token], ends_at=self._clock.now(), end_reason=reason))

    def notify(self, token: str, notice: Notice | None) -> None:
        """Put a notice on a node, or take it off; what it announces is up to the caller."""
        self._put(token, self._lives[token].noticed(notice))

    def _put(self, token: str, life: NodeLife) -> None:
        self._lives[token] = life

    def _seen(self, life: NodeLife) -> Node:
        """Return a node as a caller is told of it now."""
        return life.at(self._clock.now())

    def _kept(self, owner: str, fleet: str) -> list[NodeLife]:
        """Return the fleet's nodes, those that ended in the last hour included."""
        since = self._clock.now() - _ENDED_KEPT
        mine = [life for life in self._lives.values() if (life.node.owner, life.node.fleet) == (owner, fleet)]
        return [life for life in mine if life.ends_at is None or life.ends_at > since]

    def _living_token(self, node_id: str) -> str | None:
        """Return the token of a node that has not ended; None: there is no such node."""
        now = self._clock.now()
        found = (token for token, life in self._lives.items() if life.node.id == node_id and not life.is_over(now))
        return next(found, None)

    def _known(self, request: NodeRequest) -> NodeLife | None:
        """Return what the order's token has made already. Raises ProviderError where that was another replica's."""
        life = self._lives.get(request.token)
        if life is None:
            return None
        node = life.node
        if (node.owner, node.fleet, node.replica_id) != (request.owner, request.fleet, request.replica_id):
            raise ProviderError(f"token {request.token} already made {node.replica_id}")
        return life

    def _interruptible(self, node_id: str) -> str:
        """Return the token of a living spot node. Raises ProviderError for others."""
        token = self._living_token(node_id)
        if token is None:
            raise ProviderError(f"no living node {node_id}")
        if self._lives[token].node.market is not Market.SPOT:
            raise ProviderError(f"{node_id} is not a spot node, and only spot nodes are interrupted")
        return token
