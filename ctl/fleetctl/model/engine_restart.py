"""The restart of a replica's engine on the node that it has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class RestartPhase(StrEnum):
    """How far a restart has come."""

    REQUESTED = "requested"  # decided; the provider has not answered yet
    STARTING = "starting"  # the old engine has ended, another starts
    FAILED = "failed"  # the provider could not: the engine is as it was
    OVER = "over"  # in rotation again since


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRestart:
    """The last restart of a replica's engine."""

    at: datetime
    by_operator: bool  # a person asked for it; else the engine had ceased to work
    started_before: datetime  # an engine that was started later is left at it
    orders: int = 0  # of people's orders to restart this replica, so many have been followed
    phase: RestartPhase = RestartPhase.REQUESTED
    fault: str = ""  # why the provider could not

    @property
    def is_under_way(self) -> bool:
        """Whether its engine is to come up anew."""
        return self.phase in (RestartPhase.REQUESTED, RestartPhase.STARTING)
