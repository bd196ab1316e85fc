"""How many tokens a prompt is, without a tokenizer."""

from __future__ import annotations

_START_BYTES_PER_TOKEN = 4.0  # English text under byte-pair tokenizers
_MIN, _MAX = 0.5, 16.0
_WEIGHT = 0.05
_PROMPT_BYTES_MIN = 64  # below this the chat template is most of the prompt


class TokenRatio:
    """Bytes of prompt per token, learned from what engines report as usage.prompt_tokens."""

    __slots__ = ("bytes_per_token",)

    def __init__(self) -> None:
        self.bytes_per_token = _START_BYTES_PER_TOKEN

    def tokens(self, prompt_bytes: int) -> int:
        """Return the estimate, at least 1."""
        return max(1, round(prompt_bytes / self.bytes_per_token))

    def learn(self, *, prompt_bytes: int, prompt_tokens: int) -> None:
        """Move towards what one answered request showed."""
        if prompt_bytes >= _PROMPT_BYTES_MIN and prompt_tokens > 0:
            seen = min(max(prompt_bytes / prompt_tokens, _MIN), _MAX)
            self.bytes_per_token += _WEIGHT * (seen - self.bytes_per_token)
