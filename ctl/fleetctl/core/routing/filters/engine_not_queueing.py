"""Keeps away from replicas whose engine reports requests waiting in its own queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.routing.candidate import Candidate, PromptLoad


def engine_not_queueing(candidates: Sequence[Candidate], prompt: PromptLoad) -> list[Candidate]:
    """Return those that report no waiting request, or whose figures are not known."""
    del prompt
    return [c for c in candidates if c.engine is None or not c.engine.waiting]
