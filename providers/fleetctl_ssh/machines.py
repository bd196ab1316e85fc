"""The machines of the inventory, each with the way to it and what was last seen on it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fleetctl.errors import ProviderError
from fleetctl.model.boot import LOADING, WEIGHTS
from fleetctl.model.catalogue import Market
from fleetctl.model.node import BootProgress, Node, NodeState, Notice, NoticeKind
from fleetctl_ssh.connection import SshConnection
from fleetctl_ssh.tunnels import Tunnels

if TYPE_CHECKING:
    from fleetctl.clock import Clock
    from fleetctl_ssh.inventory import Machine

_log = logging.getLogger(__name__)
LIST_DEADLINE_S = 8.0
_READINGS = 5
_DOWNLOAD_BYTES_PER_S = 2.0**20  # an engine that starts fetches its model with more; requests and logs are less
_EXPIRY_MARGIN_S = 120.0  # beside the expiry: an engine's grace, and one more look of its supervisor


class MachineWatch:
    """One machine: what it says of a fleet's nodes, and what is to be thought of them while it says nothing."""

    def __init__(self, machine: Machine, clock: Clock, *, expires_s: float) -> None:
        self.machine = machine
        self.connection = SshConnection(machine)
        self._tunnels = Tunnels(self.connection)
        self._clock, self._expires_s = clock, expires_s
        self._seen: dict[tuple[str, str], tuple[tuple[Node, ...], float]] = {}  # by owner and fleet, with when
        self.problem = ""  # why it did not answer the last listing, by its name; empty: it did
        self._received: deque[tuple[float, int]] = deque(maxlen=_READINGS)  # when, and what the machine had got by then

    async def nodes(self, owner: str, fleet: str) -> tuple[Node, ...] | None:
        """Return a fleet's nodes on it; None: it does not answer, and nothing is known of what runs there.

        A machine that has been seen, and does not answer, has its nodes as they were, with the notice NOT_READY. Once no
        engine can live there, as nobody could renew it for so long, they are GONE.
        """
        call = {"owner": owner, "fleet": fleet}
        try:
            answer = await self.connection.call("list", call, deadline_s=LIST_DEADLINE_S)
        except ProviderError as exc:
            self._note(exc.message)
            return self._last_seen(owner, fleet, exc.message)
        self._note("")
        self._received.append((self._clock.monotonic_s(), int(answer.get("received_bytes", 0))))
        nodes = tuple(self.node_of(record) for record in answer["nodes"])
        self._seen[owner, fleet] = nodes, self._clock.monotonic_s()
        await self.reach(nodes)
        return nodes

    async def reach(self, nodes: tuple[Node, ...]) -> None:
        """Have the engines of its nodes reached from here, where that is through ssh."""
        if not self.machine.address:
            living = {node.port for node in nodes if node.state is not NodeState.GONE}
            await self._tunnels.keep(living, ended=(node.port for node in nodes if node.state is NodeState.GONE))

    def node_of(self, record: dict[str, Any]) -> Node:
        """Return a node as the machine shows it."""
        end = record["end"]
        state = NodeState.STOPPING if record["is_stopping"] else NodeState.RUNNING
        return Node(
            id=node_id(self.machine, record["owner"], record["token"]),
            token=record["token"],
            owner=record["owner"],
            fleet=record["fleet"],
            replica_id=record["replica"],
            state=state if end is None else NodeState.GONE,
            market=Market(record["market"]),
            host=self.machine.listens_at,
            port=record["port"],
            created_at=datetime.fromtimestamp(record["created_at_s"], UTC),
            exit_reason="" if end is None else end["reason"],
            log_tail="" if end is None else end["tail"],
            offering=record["offering"],
            machine_id=self.machine.name,
            gpu_indices=tuple(record["gpus"]),
            boot=self._boot(record) if end is None else None,
        )

    def _boot(self, record: dict[str, Any]) -> BootProgress:
        """Return how far an engine's start is, as far as its machine shows: one that gets much is fetching the model."""
        before, rate = record.get("received_bytes"), self._bytes_per_s()
        if before is None or not self._received or rate < _DOWNLOAD_BYTES_PER_S:
            return BootProgress(phase=LOADING)
        done = max(0, self._received[-1][1] - int(before))
        return BootProgress(phase=WEIGHTS, done_bytes=done, bytes_per_s=rate)

    def _bytes_per_s(self) -> float:
        if len(self._received) < 2:  # a rate is between two
            return 0.0
        (first_s, first), (last_s, last) = self._received[0], self._received[-1]
        return max(0.0, (last - first) / (last_s - first_s)) if last_s > first_s else 0.0

    def _last_seen(self, owner: str, fleet: str, problem: str) -> tuple[Node, ...] | None:
        if (owner, fleet) not in self._seen:
            return None
        nodes, seen_s = self._seen[owner, fleet]
        silent_s = self._clock.monotonic_s() - seen_s
        if silent_s > self._expires_s + _EXPIRY_MARGIN_S:
            reason = f"{problem} for {silent_s / 60:.0f} min: its engines have ended by themselves"
            return tuple(
                node if node.state is NodeState.GONE else replace(node, state=NodeState.GONE, exit_reason=reason)
                for node in nodes
            )
        notice = Notice(kind=NoticeKind.NOT_READY, deadline=None, is_certain=False)
        return tuple(node if node.state is NodeState.GONE else replace(node, notice=notice) for node in nodes)

    def _note(self, problem: str) -> None:
        if bool(problem) != bool(self.problem):
            _log.warning("%s", problem or f"{self.machine.name} answers again")
        self.problem = problem


def node_id(machine: Machine, owner: str, token: str) -> str:
    """Return a node's id: it leads back to its machine, and to its record there."""
    return f"{machine.name}/{owner}/{token}"


async def all_nodes(machines: tuple[MachineWatch, ...], owner: str, fleet: str) -> tuple[tuple[Node, ...], bool]:
    """Return a fleet's nodes on all machines, oldest first, and whether every machine could be asked or is remembered."""
    found = await asyncio.gather(*(machine.nodes(owner, fleet) for machine in machines))
    nodes = [node for each in found if each is not None for node in each]
    return tuple(sorted(nodes, key=lambda node: (node.created_at, node.id))), None not in found
