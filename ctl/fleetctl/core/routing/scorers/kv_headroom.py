"""Scores by how much of its KV cache an engine reports as free."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.core.routing.candidate import Candidate, PromptLoad


def kv_headroom(candidates: Sequence[Candidate], prompt: PromptLoad, now_s: float) -> list[float]:
    """Score by the free share of the KV cache; a full one preempts what it runs, whatever its queue looks like.

    A replica whose figure is not known gets the mean of the others, so that a missing figure neither draws requests nor
    drives them away. None known: none is scored.
    """
    del prompt, now_s
    usages = [c.engine.kv_usage if c.engine is not None else None for c in candidates]
    free = [1.0 - usage if usage is not None else None for usage in usages]
    known = [share for share in free if share is not None]
    if not known:
        return []
    mean = sum(known) / len(known)
    return [share if share is not None else mean for share in free]
