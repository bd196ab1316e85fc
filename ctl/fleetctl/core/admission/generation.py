"""Which bounds hold for a request's answer, and what becomes of the length that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from fleetctl.model.generation import BoundReason, GenerationSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

Amount = TypeVar("Amount", int, float)


def stricter(lane: GenerationSpec, key: GenerationSpec) -> GenerationSpec:
    """Return the bounds under both: of each the lower one, and the stop sequences of either. The lane says how it counts."""
    return GenerationSpec(
        default_max_tokens=_least(lane.default_max_tokens, key.default_max_tokens),
        max_tokens=_least(lane.max_tokens, key.max_tokens),
        stop=tuple(dict.fromkeys((*lane.stop, *key.stop))),
        max_duration_s=_least(lane.max_duration_s, key.max_duration_s),
        loop=lane.loop,
        capped_is=lane.capped_is,
    )


def strictest(lane: GenerationSpec, *own: GenerationSpec | None) -> GenerationSpec:
    """Return the bounds under a lane's and those of the tier and the key that a request has; None: it has none of its own."""
    for each in own:
        lane = lane if each is None else stricter(lane, each)
    return lane


def default_tokens(bounds: GenerationSpec, *, prompt_tokens: int, max_model_len: int, least: int = 0) -> int | None:
    """Return the length of an answer whose request names none. None: the engine's own.

    A default that the prompt leaves no room for would have engines refuse what they serve without: what they give it then
    is less. `least` is what the client insists on (min_tokens); the maximum is the server's last word.
    """
    usual = bounds.default_max_tokens or bounds.max_tokens
    if usual is None:
        return None
    if max_model_len and prompt_tokens + usual > max_model_len:
        return None
    usual = max(usual, least)
    return usual if bounds.max_tokens is None else min(usual, bounds.max_tokens)


def default_reason(bounds: GenerationSpec, tokens: int) -> BoundReason:
    """Return which bound it is that a request of no length of its own got."""
    return BoundReason.DEFAULT_MAX_TOKENS if bounds.default_max_tokens == tokens else BoundReason.MAX_TOKENS


def most_tokens(bounds: Iterable[GenerationSpec]) -> int | None:
    """Return the longest answer that any of these lets through. None: one sets no maximum."""
    found = [each.max_tokens for each in bounds]
    return max((most for most in found if most is not None), default=None) if None not in found else None


def _least(one: Amount | None, other: Amount | None) -> Amount | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
