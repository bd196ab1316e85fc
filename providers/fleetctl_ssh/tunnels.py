"""Ports of our loopback that lead through ssh to engines on a machine's: opened again wherever a connection was lost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fleetctl.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl_ssh.connection import SshConnection

_log = logging.getLogger(__name__)
_DEADLINE_S = 5.0


class Tunnels:
    """The forwarded ports of one machine. Any number of processes may keep the same ones."""

    def __init__(self, connection: SshConnection) -> None:
        self._connection = connection
        self._master = ""  # the shared connection that carries them
        self._open: set[int] = set()
        self._failing: set[int] = set()

    async def keep(self, ports: Iterable[int], ended: Iterable[int] = ()) -> None:
        """Have these ports open, and none that has `ended`; what fails is tried again the next time, and logged once."""
        wanted = set(ports)
        unwanted = self._open.intersection(ended) - wanted
        if not wanted and not unwanted:
            return
        master = await self._connection.master(deadline_s=_DEADLINE_S)
        if master != self._master:
            self._master, self._open = master, set()
        for port in sorted(unwanted):
            await self._connection.unforward(port, deadline_s=_DEADLINE_S)
            self._open.discard(port)
        for port in sorted(wanted - self._open):
            await self._opened(port)

    async def _opened(self, port: int) -> None:
        try:
            await self._connection.forward(port, deadline_s=_DEADLINE_S)
        except ProviderError as exc:
            if port not in self._failing:
                _log.warning("%s", exc.message)
            self._failing.add(port)
        else:
            self._open.add(port)
            self._failing.discard(port)
