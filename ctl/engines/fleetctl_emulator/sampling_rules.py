"""The bounds of sampling parameters: each engine's own, checked before anything is generated, though words are drawn without them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl_emulator.refusals import EngineRefusal, RefusalReason

if TYPE_CHECKING:
    from fleetctl_emulator.bodies import ChatBody, CompletionBody

_PENALTY_MAX = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRules:
    """What one engine allows, of a vocabulary of so many tokens."""

    vocabulary: int
    temperature_max: float = math.inf
    repetition_max: float = math.inf
    greedy_is_single: bool = False  # n over 1 needs a temperature

    def check(self, body: ChatBody | CompletionBody) -> None:
        """Raise EngineRefusal for the first value that is out of bounds."""
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(body, name)
            _refuse(value is not None and not abs(value) <= _PENALTY_MAX, f"{name} must be in [-2, 2], got {value}.")
        repetition = _or(body.repetition_penalty, 1.0)
        _refuse(
            not 0 < repetition <= self.repetition_max or math.isinf(repetition),
            f"repetition_penalty must be greater than zero and finite, got {repetition}.",
        )
        temperature, top_p, top_k = _or(body.temperature, 1.0), _or(body.top_p, 1.0), body.top_k or 0
        _refuse(
            not 0 <= temperature <= self.temperature_max or math.isinf(temperature),
            f"temperature must be in [0, {self.temperature_max:g}], got {temperature}.",
            "temperature",
        )
        _refuse(not 0 < top_p <= 1, f"top_p must be in (0, 1], got {top_p}.", "top_p")
        _refuse(top_k < -1, f"top_k must be 0 (disable), or at least 1, got {top_k}.")
        min_p = _or(body.min_p, 0.0)
        _refuse(not 0 <= min_p <= 1, f"min_p must be in [0, 1], got {min_p}.")
        _refuse("" in body.bad_words, "bad_words cannot contain an empty string.")
        _refuse(
            self.greedy_is_single and temperature == 0 and (body.n or 1) > 1,
            f"n must be 1 when using greedy sampling, got {body.n}.",
        )
        self._check_tokens(body)

    def _check_tokens(self, body: ChatBody | CompletionBody) -> None:
        allowed = body.allowed_token_ids
        _refuse(allowed == [], "allowed_token_ids is not None and empty!", "allowed_token_ids")
        _refuse(
            any(not 0 <= token < self.vocabulary for token in allowed or ()),
            "allowed_token_ids contains out-of-vocab token id!",
            "allowed_token_ids",
        )
        for token in body.logit_bias or {}:
            is_known = token.lstrip("-").isdecimal() and 0 <= int(token) < self.vocabulary
            _refuse(not is_known, f"token_id {token} in logit_bias is out of the vocabulary.", "logit_bias")


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _refuse(is_wrong: bool, message: str, param: str | None = None) -> None:
    if is_wrong:
        raise EngineRefusal(RefusalReason.INVALID, message, param=param)
