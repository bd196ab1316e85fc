"""One sequence in the engine: what it asks for, how far it is, and when things happened to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from fleetctl_emulator.blocks import BLOCK_TOKENS, chain_hashes
from fleetctl_emulator.tokens import AnswerText, Prompt


class SequenceStatus(StrEnum):
    """The status of a sequence, as in vLLM."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    ABORTED = "aborted"


class Sink(Protocol):
    """Takes a sequence's tokens as they come."""

    def on_token(self, sequence: Sequence) -> None:
        """Note that `sequence.generated` has grown by one; its status says whether this was the last."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """One sequence of tokens; only the scheduler changes it once it was added."""

    number: int  # order of arrival
    prompt: Prompt
    answer: AnswerText
    output_tokens: int  # how many it will generate
    output_budget: int = 0  # how many it may generate: max_tokens, as the engine knows it
    finish_reason: str = "length"  # that it will end with
    is_streamed: bool = False
    choices: int = 1  # the request's `n`, told by its first sequence; 0 on the others
    priority: int = 0
    arrived_s: float
    sink: Sink | None = None

    status: SequenceStatus = SequenceStatus.WAITING
    computed: int = 0  # tokens whose keys and values are in the cache
    generated: int = 0
    blocks: list[int] = field(default_factory=list)
    extra_blocks: list[int] = field(
        default_factory=list
    )  # of layers with a window or a state, whose content none shares
    hashes: list[int] = field(default_factory=list)
    cached_tokens: int = 0  # of the prompt, found in the prefix cache when first scheduled
    preemptions: int = 0
    awaits_resume: bool = False  # preempted, and not running again yet
    queued_s: float = 0.0  # when the front end handed it to the engine
    scheduled_s: float = 0.0
    first_token_s: float = 0.0
    last_token_s: float = 0.0
    previous_token_s: float = 0.0

    @property
    def tokens(self) -> int:
        """Return prompt and generated tokens together."""
        return self.prompt.tokens + self.generated

    @property
    def remaining(self) -> int:
        """Return the tokens to compute before the next one can be sampled."""
        return self.prompt.tokens + self.generated - self.computed

    @property
    def decodes(self) -> bool:
        """Return whether the next step only adds one token to what is resident."""
        return self.generated > 0 and self.remaining == 1

    def content_hashes(self, full_blocks: int) -> list[int]:
        """Return the chained hashes of the first full blocks, of prompt and answer as one text."""
        if len(self.hashes) < full_blocks:
            first = self.prompt.resumed_tokens
            needed = full_blocks * BLOCK_TOKENS - self.prompt.tokens
            emitted = self.answer.tokens(first, first + needed) if needed > 0 else b""
            self.hashes = chain_hashes(self.prompt.content + emitted, full_blocks, self.hashes)
        return self.hashes[:full_blocks]
