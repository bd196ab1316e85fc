"""A request, free of its wire form; and what the engine will generate for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl_emulator.lengths import natural_tokens
from fleetctl_emulator.tokens import TOKEN_BYTES, Prompt, token_count

if TYPE_CHECKING:
    from fleetctl_emulator.tokens import AnswerText


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """What a client wants. `prompts` has one entry but for completions with a list."""

    prompts: tuple[Prompt, ...]
    seed: str
    n: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    ignores_eos: bool = False
    stop: tuple[str, ...] = ()
    is_stream: bool = False
    wants_usage: bool = False
    wants_continuous_usage: bool = False
    priority: int = 0
    request_id: str = ""

    @property
    def sequences(self) -> int:
        """Return how many sequences this takes."""
        return len(self.prompts) * self.n

    def choice_seed(self, index: int) -> str:
        """Return the seed of a choice's text; only the first of several answers like a lone one."""
        return f"{self.seed}/{index}" if index else self.seed


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedAnswer:
    """An answer, known before it is generated. `text` is what will be visible; a stop string is not."""

    text: bytes
    output_tokens: int
    finish_reason: str  # "stop" or "length"
    stop_reason: str | None = None


def predict_answer(
    generation: GenerationRequest, prompt: Prompt, answer: AnswerText, *, tokens_max: int
) -> PredictedAnswer:
    """Return what will be generated for one prompt; at most `tokens_max`."""
    start = prompt.resumed_tokens
    ceiling = tokens_max if generation.max_tokens is None else min(generation.max_tokens, tokens_max)
    length, reason = ceiling, "length"
    if not generation.ignores_eos:
        # A continued answer is as long in all as it would have been, so its parts fit together.
        natural = max(0, natural_tokens(prompt.question, seed=answer.seed) - start, generation.min_tokens)
        if natural < ceiling:
            length, reason = natural, "stop"
    text = answer.tokens(start, start + length)
    found = min(((at, word) for word in generation.stop if (at := text.find(word.encode())) >= 0), default=None)
    if found is not None:
        at, word = found
        return PredictedAnswer(
            text=text[:at],
            output_tokens=token_count(at + len(word.encode())),
            finish_reason="stop",
            stop_reason=word,
        )
    # An answer that has nothing left to say still takes the step that finds that out.
    return PredictedAnswer(text=text, output_tokens=max(1, len(text) // TOKEN_BYTES), finish_reason=reason)
