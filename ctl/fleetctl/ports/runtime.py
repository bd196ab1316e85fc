"""What a host gives the processes of a fleet that it keeps: its controller and its gateways."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from fleetctl.units import format_duration

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from fleetctl.clock import Clock
    from fleetctl.model.desired import Desired
    from fleetctl.ports.lease import LeaseHolder


class StallKind(StrEnum):
    """The ways in which a process lives and does not progress."""

    STOPPED = "stopped"  # by SIGSTOP, or a debugger
    HUNG = "hung"  # its loop stands still


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A process that holds its lock and does not progress."""

    pid: int
    kind: StallKind
    for_s: float

    def __str__(self) -> str:
        """Return it in words, the process's number among them."""
        if self.kind is StallKind.STOPPED:
            return f"process {self.pid} is stopped, for {format_duration(self.for_s)}"
        return f"process {self.pid} hangs: no progress for {format_duration(self.for_s)}"


class GatewayHost(Protocol):
    """Holds the public port and a gateway's process, for one controller; the first of several."""

    def is_alive(self) -> bool:
        """Whether a gateway process lives, ours or one we adopted."""
        ...

    def stall(self) -> Stall | None:
        """Return what keeps the gateway's process from progressing; asked every tick; None: nothing."""
        ...

    def is_beating(self) -> bool:
        """Whether its signs of life came lately, as `stall` saw them; True where it leaves none."""
        ...

    def lost_s(self) -> float:
        """Return how many seconds since the last call say nothing about its silence; called every tick.

        In them it computed, or it or this process was kept waiting for a processor or the disk; a wait that began before
        counts whole at its end. 0.0: not known.
        """
        ...

    def numbered(self, number: int) -> GatewayHost:
        """Return the keeper of another of the fleet's gateways, on the same port; itself for 1."""
        ...

    def living(self) -> tuple[int, ...]:
        """Return the numbers of all gateways of the fleet that live."""
        ...

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Have `on_exit` called as soon as the gateway that lives now ends; repeated every tick."""
        ...

    def start(self, desired: Desired) -> int:
        """Start a gateway and return its pid. Raises FleetctlError when the port cannot be had."""
        ...

    async def stop(self, *, within_s: float) -> None:
        """End the gateway: asked first, made to after `within_s`."""
        ...

    def release_port(self) -> bool:
        """Let go of the public port; return whether it was held."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAddress:
    """Where a gateway takes a controller's calls over TCP, and the token that it asks for."""

    host: str
    port: int
    token: str = field(repr=False)


@runtime_checkable
class RemoteGateways(Protocol):
    """Capability of a GatewayHost whose gateways somebody else starts, as a Deployment does; they are called over TCP.

    `start` is never asked of it; `stop` ends one that is then replaced. Numbers are those that gateways were given.
    """

    def lead(self, epoch: int) -> None:
        """Begin to look for them, for the controller under a lease of this epoch; return once that was done, within 5 s."""
        ...

    def address_of(self, number: int) -> GatewayAddress:
        """Return where one is called. Raises UnavailableError where none of this number lives."""
        ...

    def is_leaving(self, number: int) -> bool:
        """Whether one is being ended, and finishes what it has."""
        ...

    def place_of(self, number: int) -> str:
        """Return what it is called where it is kept, and on which machine, for people; empty: none of this number lives."""
        ...


class ControllerRuntime(Protocol):
    """What a host gives a fleet's controller process."""

    def claim(self) -> None:
        """Be the fleet's only controller until `release`. Raises LockHeldError naming the one that is."""
        ...

    def is_claimed(self) -> bool:
        """Whether nobody has claimed it since; a mark of the claim that was removed is put back."""
        ...

    def lease_holder(self) -> LeaseHolder:
        """Return what tells this process from every other."""
        ...

    def place(self) -> str:
        """Return what the process is called where its host keeps it, for people; empty: this machine, and its pid tells it."""
        ...

    def beat(self, now_s: float) -> None:
        """Leave a sign of life, about once a second; `now_s` on CLOCK_MONOTONIC."""
        ...

    def release(self) -> None:
        """Let another controller be; also happens when this process dies."""
        ...

    def gateway_host(self, clock: Clock) -> GatewayHost:
        """Return the keeper of the fleet's public port and gateway; called once. Raises ConfigError."""
        ...


class GatewayRuntime(Protocol):
    """What a host gives a fleet's gateway process."""

    def claim(self) -> None:
        """Be the fleet's only gateway until `release`. Raises LockHeldError naming the one that is."""
        ...

    def is_claimed(self) -> bool:
        """Whether nobody has claimed it since; a mark of the claim that was removed is put back."""
        ...

    def beat(self, now_s: float) -> None:
        """Leave a sign of life, about once a second; `now_s` on CLOCK_MONOTONIC."""
        ...

    def release(self) -> None:
        """Let another gateway be; also happens when this process dies."""
        ...

    def listeners(self) -> list[socket.socket]:
        """Return the listening sockets handed over; empty: the gateway binds its own. Raises ConfigError."""
        ...

    def ensure_controller(self, now_s: float, listeners: Sequence[socket.socket]) -> bool:
        """Start a controller if there is none, with backoff, and hand it the sockets; return whether one was started.

        Called once a second while the fleet should be up, `now_s` on a clock that never goes back.
        """
        ...
