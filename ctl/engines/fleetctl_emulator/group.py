"""One engine of several machines: its leader waits for the others, and the engine ends with the first of them.

As vLLM does without Ray: further machines join the leader's address by their rank, serve nobody themselves, and go when it goes.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.clock import Clock
    from fleetctl_emulator.options import EmulatorOptions

JOIN_TIMEOUT_S = 600.0  # torch.distributed's own, which vLLM keeps
_RETRY_S = 0.5
_RANK_S = 10.0  # for a machine that has connected to say which one it is
_ENDS = b"ends\n"  # the leader was told to end, and all end with it


class GroupLeader:
    """The first machine's side: who has joined, and whether one of them has gone."""

    def __init__(self, options: EmulatorOptions, on_lost: Callable[[str], None]) -> None:
        self._options = options
        self._on_lost = on_lost
        self._members: dict[int, asyncio.StreamWriter] = {}
        self._all_here = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._ends = False

    async def listen(self) -> None:
        """Let further machines join. Raises ConfigError where the port is taken."""
        host, port = self._options.host, self._options.leader_port
        try:
            self._server = await asyncio.start_server(self._joined, host, port)
        except OSError as error:
            raise ConfigError(
                f"{host}:{port} cannot be bound for the group's machines: {error.strerror}",
                hint="another group's leader may run there: --leader-port",
            ) from error

    async def gather(self) -> None:
        """Wait until every machine has joined. Raises TimeoutError after as long as the real one waits."""
        if self._options.nodes > 1:
            async with asyncio.timeout(JOIN_TIMEOUT_S):
                await self._all_here.wait()

    async def end(self) -> None:
        """Have every machine end."""
        self._ends = True
        for writer in self._members.values():
            with suppress(OSError):
                writer.write(_ENDS)
                writer.close()
        if self._server is not None:
            self._server.close()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rank = await _rank(reader)
        if rank is None or not 0 < rank < self._options.nodes or rank in self._members:
            writer.close()
            return
        self._members[rank] = writer
        if len(self._members) == self._options.nodes - 1:
            self._all_here.set()
        with suppress(OSError):
            await reader.read()  # it says no more: this is its end
        if not self._ends:
            self._on_lost(f"machine {rank} of the group has gone")


async def _rank(reader: asyncio.StreamReader) -> int | None:
    with suppress(OSError, ValueError, TimeoutError):
        async with asyncio.timeout(_RANK_S):
            return int(await reader.readline())
    return None


async def run_member(options: EmulatorOptions, clock: Clock) -> int:
    """Join the leader and stay until it ends or this is to end; return the exit status: 1 where the leader was lost."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    member, stopped = asyncio.create_task(_membership(options, clock)), asyncio.create_task(stop.wait())
    await asyncio.wait((member, stopped), return_when=asyncio.FIRST_COMPLETED)
    if member.done():
        stopped.cancel()
        return member.result()
    member.cancel()
    return 0


async def _membership(options: EmulatorOptions, clock: Clock) -> int:
    where = f"{options.leader_host}:{options.leader_port}"
    try:
        async with asyncio.timeout(JOIN_TIMEOUT_S):
            reader, writer = await _connected(options, clock)
    except TimeoutError:
        sys.stderr.write(f"error: the group's leader at {where} was not reached within {JOIN_TIMEOUT_S:.0f} s\n")
        return 1
    try:
        writer.write(b"%d\n" % options.node_rank)
        last = await reader.read()
    except OSError:
        last = b""
    finally:
        writer.close()
    if last == _ENDS:
        return 0
    sys.stderr.write(f"error: the group's leader at {where} has gone\n")
    return 1


async def _connected(options: EmulatorOptions, clock: Clock) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        with suppress(OSError):  # neither its name nor its port is there until it has started
            return await asyncio.open_connection(options.leader_host, options.leader_port)
        await clock.sleep(_RETRY_S)
