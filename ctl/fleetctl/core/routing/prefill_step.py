"""Prompts in an engine's line, and what one of its steps computed to the end: they have their first tokens together."""

from __future__ import annotations

import math

import msgspec

# First tokens that come closer upon each other than this share of what a prompt takes are of one step.
_TOGETHER_SHARE = 0.25


# One for every request, and no cycle passes through it: not for the garbage collector to track.
class PrefillTurn(msgspec.Struct, eq=False, gc=False):
    """One prompt in the line."""

    tokens: int
    since_s: float
    due_s: float = math.inf  # when it is taken to be computed, where its first token is not heard
    is_gone: bool = False
    rank: int = 0  # the engine computes lower ones first; 0 where it goes by arrival


class PrefillStep(msgspec.Struct, gc=False):
    """The last one of an engine, until the next one shows that all of it has been heard."""

    heard_s: float = 0.0  # its first first token
    tokens: int = 0
    prompts: int = 0
    seconds: float = 0.0  # since the step before, or since its first prompt was sent
    beside: int = 0  # streams that the engine had beside

    def has(self, now_s: float, own_s: float) -> bool:
        """Whether a first token that comes now is of this step; a prompt takes `own_s`."""
        return self.prompts > 0 and now_s - self.heard_s <= _TOGETHER_SHARE * own_s
