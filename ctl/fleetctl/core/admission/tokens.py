"""How many tokens a prompt is, without a tokenizer, and between which bounds."""

from __future__ import annotations

import msgspec

_START_BYTES_PER_TOKEN = 4.0  # English text under byte-pair tokenizers
_MIN, _MAX = 0.5, 16.0
_WEIGHT = 0.05
_PROMPT_BYTES_MIN = 64  # below this the chat template is most of the prompt
# How far a prompt may be from its estimate: four times what requests were off by of late, within these. The least is
# what one client's language or code may differ by where all others agree.
_MARGIN_MIN, _MARGIN_MAX = 0.2, 0.75
_MARGIN_DEVIATIONS = 4.0
_START_DEVIATION = 0.15

# What a chat template puts around a message (start, role, end, line breaks) and around the whole: Llama 3's, with which
# ChatML's agrees by a token.
MESSAGE_TOKENS = 5
CHAT_TOKENS = 5
# OpenAI's own figures: an image of low detail, and one of 1024 x 1024 otherwise. Engines take from 64 to 16,384 by
# model and size, so an image widens the bounds, and what a request with one used teaches nothing about text.
IMAGE_TOKENS_LOW_DETAIL = 85
IMAGE_TOKENS = 765
_IMAGE_TOKENS_LEAST, _IMAGE_TOKENS_MOST = 64, 16_384


# No cycle passes through one, and there is one for every request: not for the garbage collector to track.
class PromptSize(msgspec.Struct, frozen=True, gc=False):
    """What a prompt is made of."""

    text_bytes: int  # of all that the engine tokenizes: messages, tools, calls and their results
    messages: int = 0  # 0: no chat, so no template
    images: int = 0
    image_tokens: int = 0  # estimated, all together
    token_ids: int | None = None  # it came as so many token ids; nothing is estimated

    @property
    def fixed_tokens(self) -> int:
        """Return the tokens that are not text."""
        template = self.messages * MESSAGE_TOKENS + CHAT_TOKENS if self.messages else 0
        return template + self.image_tokens


class RequestTokens(msgspec.Struct, frozen=True, gc=False):
    """What an engine must hold of one request: its prompt, as estimated and between its bounds, and its answer."""

    prompt: int
    prompt_least: int
    prompt_most: int
    output: int = 0  # as asked, never negative; 0: whatever the engine has left

    def bounded(self, output: int) -> RequestTokens:
        """Return the same request with an answer of so many tokens."""
        return RequestTokens(self.prompt, self.prompt_least, self.prompt_most, output)

    @property
    def expected(self) -> int:
        """Return the whole request; an answer of one token at least."""
        return self.prompt + (self.output or 1)

    @property
    def least(self) -> int:
        """Return what no engine can do without: the shortest the prompt may be and a token, or the answer asked for.

        vLLM shortens an answer to what the prompt leaves of its context, and refuses only one longer than the whole.
        """
        return max(self.prompt_least + 1, self.output)

    @property
    def most(self) -> int:
        """Return what the request can be at most."""
        return self.prompt_most + max(1, self.output)

    def needed(self, max_model_len: int) -> int:
        """Return the tokens to ask of an engine in a lane that holds so many: all of the request, where any holds it."""
        expected = self.prompt + (self.output or 1)  # the property, spelt out: this is asked of every request
        return expected if expected <= max_model_len or not max_model_len else self.least


class TokenRatio:
    """Bytes of text per token and how far off that is, learned from what engines report as usage.prompt_tokens."""

    __slots__ = ("bytes_per_token", "deviation")

    def __init__(self) -> None:
        self.bytes_per_token = _START_BYTES_PER_TOKEN
        self.deviation = _START_DEVIATION  # mean of |seen / expected - 1|

    def tokens(self, text_bytes: int) -> int:
        """Return the estimate, at least 1."""
        return max(1, round(text_bytes / self.bytes_per_token))

    def prompt_tokens(self, size: PromptSize) -> int:
        """Return the estimate for a whole prompt, at least 1; exact where it came as token ids."""
        if size.token_ids is not None:
            return max(1, size.token_ids)
        return round(size.text_bytes / self.bytes_per_token) + size.fixed_tokens or 1

    def request_tokens(self, size: PromptSize, prompt_tokens: int, output: int) -> RequestTokens:
        """Return the bounds of a request whose prompt is estimated at `prompt_tokens`."""
        if size.token_ids is not None:
            return RequestTokens(prompt_tokens, prompt_tokens, prompt_tokens, output)
        margin = _MARGIN_DEVIATIONS * self.deviation
        if not _MARGIN_MIN <= margin <= _MARGIN_MAX:
            margin = _MARGIN_MIN if margin < _MARGIN_MIN else _MARGIN_MAX
        text = prompt_tokens - size.image_tokens
        return RequestTokens(
            prompt_tokens,
            int(text * (1.0 - margin)) + size.images * _IMAGE_TOKENS_LEAST,
            # No token is shorter than a byte.
            size.text_bytes + size.fixed_tokens - size.image_tokens + size.images * _IMAGE_TOKENS_MOST,
            output,
        )

    def learn(self, size: PromptSize, *, prompt_tokens: int) -> None:
        """Move towards what one answered request showed."""
        text_tokens = prompt_tokens - size.fixed_tokens
        if size.text_bytes < _PROMPT_BYTES_MIN or size.images or size.token_ids is not None or text_tokens <= 0:
            return
        seen = size.text_bytes / text_tokens
        if not _MIN <= seen <= _MAX:
            seen = _MIN if seen < _MIN else _MAX
        self.deviation += _WEIGHT * (abs(seen / self.bytes_per_token - 1.0) - self.deviation)
        self.bytes_per_token += _WEIGHT * (seen - self.bytes_per_token)
