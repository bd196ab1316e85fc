"""One sequence of tokens in a simulated engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fleetctl.sim.gap_counter import GapCounter


class TokenSink(Protocol):
    """Hears of a sequence's first token and of its end."""

    def first_token(self, now_s: float) -> None:
        """Note the first token of this sequence."""
        ...

    def finished(self, now_s: float) -> None:
        """Note its last token, which may be the first too: then `first_token` came before."""
        ...

    def heard(self, now_s: float) -> None:
        """Note that tokens of it come; its engine is settled."""
        ...

    def lost(self) -> None:
        """Note that its engine has ended."""
        ...


class SimulatedSequence:
    """What a request asks of an engine, and how far it is; the engine alone changes it once it was added.

    While it decodes its progress is implied by the engine's step count: `decodes_from` was the next step when it began.
    """

    __slots__ = (
        "computed",
        "decodes_from",
        "finish_step",
        "gap_base",
        "gap_counter",
        "gaps_over",
        "generated",
        "last_token_s",
        "number",
        "output_budget",
        "output_tokens",
        "preemptions",
        "priority",
        "prompt_tokens",
        "sink",
    )  # fmt: skip

    def __init__(
        self,
        sink: TokenSink,
        prompt_tokens: int,
        output_tokens: int,
        *,
        gap_counter: GapCounter | None = None,
        output_budget: int = 0,
        priority: int = 0,
    ) -> None:
        self.sink = sink
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.output_budget = max(output_budget, output_tokens)
        self.priority = priority  # lower first; 0 where the engine does not look at it
        self.gap_counter = gap_counter  # None: nobody sees its tokens one by one
        self.number = -1  # order of arrival; -1: not in an engine
        self.computed = 0  # tokens in the KV cache; while it decodes, those at `decodes_from`
        self.generated = 0  # the same
        self.decodes_from = -1  # -1: it does not decode
        self.finish_step = -1
        self.gap_base = 0
        self.gaps_over = 0  # gaps over its counter's limit, but for those since `decodes_from`
        self.last_token_s = 0.0
        self.preemptions = 0

    def progress(self, step: int) -> tuple[int, int, float]:
        """Return tokens generated when `step` steps are over, gaps over the limit, and when the last token came.

        0.0 seconds: just now, for it decodes.
        """
        if self.decodes_from < 0:
            return self.generated, self.gaps_over, self.last_token_s
        counter = self.gap_counter
        more = counter.over - self.gap_base if counter is not None else 0
        return self.generated + step - self.decodes_from, self.gaps_over + more, 0.0
