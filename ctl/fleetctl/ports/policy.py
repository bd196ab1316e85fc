"""What decides over a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.decision import Decision, Memory
    from fleetctl.model.desired import Desired
    from fleetctl.model.observation import Observation


class Policy(Protocol):
    """Decides what should be done now: the controller, the simulations and `--dry-run` call it alike.

    It must be pure (the same arguments give the same decision) and idempotent (asked about the state its own actions
    lead to, it decides nothing more). Whatever it wants to know next time goes into the decision's memory.
    """

    def __call__(self, desired: Desired, observation: Observation, memory: Memory, now: datetime, /) -> Decision:
        """Return the actions, the memory, when to ask again, and why."""
        ...
