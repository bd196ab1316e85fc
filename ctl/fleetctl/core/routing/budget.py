"""Which replicas answer in time: the prompts that stand before an engine's next one are what its first token waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.core.routing.candidate import Candidate, PromptLoad

# Of the TTFT promised: what a forecast may fill. The rest is for lengths that are estimates, and for what streams are yet to
# join. In simulations one prompt in a hundred takes over 1.13 times its forecast; .93 loses more to lateness than it admits.
BUDGET_SHARE = 0.9
# Where no TTFT is promised nobody hurries: what waits, waits in the gateway, where it can be moved and counted.
LINE_S_MAX = 1.0


def in_time(  # noqa: PLR0913  # all that it goes by
    candidates: Iterable[Candidate],
    prompt: PromptLoad,
    *,
    left_s: float,
    line_s_max: float,
    now_s: float,
    or_idle: bool = True,
    rank: int | None = None,
) -> list[Candidate]:
    """Return those whose first token is predicted within `left_s`, after a wait for prompts or memory of `line_s_max` at most.

    `or_idle`: one that computes no prompt takes any: none of its kind could be sooner, and a prompt too long for the
    promise is answered late. `rank`: before which prompts it goes at engines that schedule by priority.
    """
    tokens, cached = prompt.prompt_tokens, prompt.cached_tokens
    found = []
    for candidate in candidates:
        line, kv = candidate.line, candidate.kv
        own_tokens = tokens - cached.get(candidate.id, 0)
        wait_s = line.wait_s(now_s, rank if candidate.by_priority else None) if line.count else 0.0
        if own_tokens > kv.free_tokens:
            wait_s = max(wait_s, kv.wait_s(own_tokens, now_s))
        # Those it shares a step with have waited already, and it makes that step longer for them.
        first_token_s = wait_s + line.own_s(own_tokens) + line.oldest_s(now_s)
        if (or_idle and not wait_s and not line.count) or (wait_s <= line_s_max and first_token_s <= left_s):
            found.append(candidate)
    return found
