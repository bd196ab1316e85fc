"""Which replicas may take a request: what no profile can switch off."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from fleetctl.core.routing.candidate import Candidate, PromptLoad


def usable(
    candidates: Iterable[Candidate],
    *,
    now_s: float,
    prompt: PromptLoad | None = None,
    tried: Collection[str] = (),
    beyond_limit: bool = False,
    must_continue: bool = False,
) -> list[Candidate]:
    """Return those in rotation, not tried yet, not ejected, with a free slot and room in the KV cache for the prompt.

    An ejected one whose time is over takes one request at a time until it has answered, of the gateway that may probe it. `beyond_limit` drops these
    limits: for requests already accepted whose replica died, which the engine's own queue can hold better than nobody.
    `must_continue` asks for replicas that can go on with a stream another one lost.
    """
    found = [
        c
        for c in candidates
        if c.in_rotation
        and (c.in_flight < c.concurrency_max or beyond_limit)
        and (not c.ejected_until_s or (c.ejected_until_s <= now_s and not c.in_flight and c.may_probe))
    ]
    if prompt is not None and not beyond_limit:
        tokens = prompt.prompt_tokens
        for candidate in found:
            if candidate.kv.free_tokens < tokens:  # seldom: what is cached has to be looked up then
                found = [c for c in found if prompt.uncached(c.id) <= c.kv.free_tokens]
                break
    if tried or must_continue:
        return [c for c in found if c.id not in tried and (c.continues or not must_continue)]
    return found


def serving(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return those that requests are sent to at all, with a free slot or without.

    An ejection never empties a lane: where it would, those count that answer, however badly. Which are hung or cannot
    be reached do not: Envoy's panic threshold, without the hosts that are known to be gone.
    """
    in_rotation = [c for c in candidates if c.in_rotation]
    return [c for c in in_rotation if not c.ejected_until_s] or [c for c in in_rotation if not c.is_convicted]


def least_bad(
    candidates: Sequence[Candidate], *, tried: Collection[str], beyond_limit: bool, must_continue: bool
) -> list[Candidate]:
    """Return those that may take a request although they are ejected, as all are."""
    if any(c.in_rotation and not c.ejected_until_s for c in candidates):
        return []
    return [
        c
        for c in serving(candidates)
        if (c.has_slot or beyond_limit) and c.id not in tried and (c.continues or not must_continue)
    ]
