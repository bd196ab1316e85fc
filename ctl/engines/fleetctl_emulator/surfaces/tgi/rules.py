"""The bounds of sampling parameters as TGI 3.3.7 has them (router/src/validation.rs and lib.rs)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl_emulator.refusals import EngineRefusal, RefusalReason

if TYPE_CHECKING:
    from fleetctl_emulator.bodies import ChatBody, CompletionBody


def check_sampling(body: ChatBody | CompletionBody) -> None:
    """Raise EngineRefusal for the first value out of bounds. A temperature of 0 asks for greedy sampling."""
    temperature, top_p, frequency = body.temperature, body.top_p, body.frequency_penalty
    _refuse(temperature is not None and not temperature >= 0, "`temperature` must be strictly positive")
    # On OpenAI's routes a presence penalty is taken for one of repetition, two lower.
    penalty = body.repetition_penalty if body.presence_penalty is None else body.presence_penalty + 2.0
    _refuse(penalty is not None and not penalty > 0, "`repetition_penalty` must be strictly positive")
    _refuse(
        frequency is not None and not -2 <= frequency <= 2, "`frequency_penalty` must be >= -2.0 and <= 2.0"
    )  # TGI's bounds
    _refuse(top_p is not None and not 0 < top_p < 1, "`top_p` must be > 0.0 and < 1.0")


def _refuse(is_wrong: bool, message: str) -> None:
    if is_wrong:
        raise EngineRefusal(RefusalReason.INVALID, message)
