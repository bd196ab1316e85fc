"""Of a fleet with several gateways: what is seen and remembered of each, and what the faces show of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fleetctl.model.gateway import GatewaySnapshot

# Of calls over TCP: whoever calls has this token, and is a controller under a lease of this epoch. Not `authorization`, which an
# API server takes off what it passes on.
TOKEN_HEADER = "x-fleetctl-token"  # noqa: S105  # its name
EPOCH_HEADER = "x-fleetctl-epoch"
READYZ, LIVEZ = "/readyz", "/livez"  # asked by whoever supervises the process, without a token


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayIdentity:
    """What tells one gateway process from every other, and the number it was given among them."""

    instance: str
    number: int  # 0: none yet


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedGateway:
    """One gateway in one tick's view; the fields are the Observation's of the only one."""

    number: int  # from 1 on
    snapshot: GatewaySnapshot | None = None  # None: it did not answer
    is_alive: bool = False
    stall: str = ""
    is_beating: bool = True
    lost_s: float = 0.0
    is_wanted: bool = True  # False: the profile has fewer, or whoever keeps it is ending it
    place: str = ""  # of one that somebody else keeps: what it is called there, and its machine

    @property
    def called(self) -> str:
        """What it is named by for people."""
        return f"gateway {self.number}" + (f" ({self.place})" if self.place else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayMemory:
    """What is remembered of one between two ticks; the fields are the Memory's of the only one."""

    missing_since: datetime | None = None
    started_at: datetime | None = None
    starts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStatus:
    """One of several gateways, for people."""

    number: int
    answers: bool
    pid: int = 0  # 0: not known
    stall: str = ""  # why its process does not progress, and for how long
    table_version: int = 0
    in_flight: int = 0  # requests at replicas
    queued: int = 0
    cpu_share: float | None = None  # of one processor, over the last ten seconds; None: not known
    is_leaving: bool = False  # the profile has fewer: it ends once its last request has
    place: str = ""  # where it is not a process beside the controller: what it is called there, and its machine
