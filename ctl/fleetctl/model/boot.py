"""The phases of a replica's start: which one it is in since when, and how long each may take."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

# What the controller sees by itself, whoever sells the node. Between them a provider may have phases of its own.
REQUESTED: Final = "ordered"  # until the provider has named a node
WEIGHTS: Final = "weights"  # the engine fetches its model
LOADING: Final = "loading"  # the engine starts, and loads its model; until it is healthy
WARM_UP: Final = "warm-up"  # until a real completion has come back


@dataclass(frozen=True, slots=True, kw_only=True)
class BootStep:
    """A phase that a start came to; it lasts until the next one's beginning."""

    phase: str
    began_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BootPhase:
    """What is known of a phase before any was measured."""

    name: str
    usual_s: float  # longer is worth a look
    look: str  # where to look then; {fleet}, {replica} and {node} stand for their names
