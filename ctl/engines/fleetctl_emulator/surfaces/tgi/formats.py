"""What TGI 3.3.7's answers look like on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl_emulator.formats import ChoiceProgress, OpenAiFormat, ResponseFields, event
from fleetctl_emulator.tokens import TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

VERSION = "3.3.7"
_FINGERPRINT = f"{VERSION}-native"


class TgiFormat(OpenAiFormat):
    """Spells chats and completions as TGI does: no ids, the role in every chunk, no event before the first token."""

    def __init__(self, *, is_chat: bool, created_s: int, model: str, wants_usage: bool) -> None:
        super().__init__(ResponseFields(is_chat=is_chat, created_s=created_s, model=model, wants_usage=wants_usage))
        self._chunk["system_fingerprint"] = _FINGERPRINT
        self._whole["system_fingerprint"] = _FINGERPRINT

    def opening(self, progress: ChoiceProgress) -> bytes:
        """Return nothing."""
        del progress
        return b""

    def event(self, progress: ChoiceProgress, text: bytes) -> bytes:
        """Return one event for each token: TGI merges none, however slowly a client reads."""
        return b"".join(super(TgiFormat, self).event(progress, piece) for piece in _token_texts(text))

    def last(self, progress: ChoiceProgress, text: bytes) -> bytes:
        """Return the events of the last tokens, the very last with why it ended."""
        texts = _token_texts(text) or [b""]
        return self.event(progress, b"".join(texts[:-1])) + super().last(progress, texts[-1])

    def _choice(self, index: int, text: str) -> dict[str, Any]:
        choice = super()._choice(index, text)
        if "delta" in choice:
            choice["delta"] = {"role": "assistant", "content": text}
        return choice


class GenerateFormat:
    """Spells /generate and /generate_stream: one event a token, the whole text in the last, no [DONE]."""

    counts = b""  # it has none

    def __init__(self, *, has_details: bool, before: str) -> None:
        self._has_details, self._before = has_details, before

    def opening(self, progress: ChoiceProgress) -> bytes:
        """Return nothing."""
        del progress
        return b""

    def frame(self, index: int) -> tuple[bytes, bytes] | None:
        """Return nothing: events are numbered."""
        del index
        return None  # the type says so

    def event(self, progress: ChoiceProgress, text: bytes) -> bytes:
        """Return one event for each token."""
        first = progress.generated - len(text) // TOKEN_BYTES + 1
        return b"".join(event(self._token(first + at, piece)) for at, piece in enumerate(_token_texts(text)))

    def last(self, progress: ChoiceProgress, text: bytes) -> bytes:
        """Return the last token's event, with the whole text."""
        texts = _token_texts(text) or [b""]
        before = self.event(progress, b"".join(texts[:-1])) if len(texts) > 1 else b""
        tree = self._token(progress.generated, texts[-1])
        tree["generated_text"] = self._before + progress.text.decode()
        if self._has_details:
            tree["details"] = _details(progress) | {"input_length": progress.prompt_tokens}
        return before + event(tree)

    def closing(self, all_progress: Items[ChoiceProgress]) -> bytes:
        """Return nothing."""
        del all_progress
        return b""

    def whole(self, all_progress: Items[ChoiceProgress]) -> bytes:
        """Return the JSON body."""
        progress = all_progress[0]
        tree: dict[str, Any] = {"generated_text": self._before + progress.text.decode()}
        if self._has_details:
            tokens = [_token(piece) for piece in _token_texts(progress.text)]
            tree["details"] = _details(progress) | {"prefill": [], "tokens": tokens}
        return msgspec.json.encode(tree)

    def _token(self, number: int, piece: bytes) -> dict[str, Any]:
        return {"index": number, "token": _token(piece), "generated_text": None, "details": None}


def _token_texts(text: bytes) -> list[bytes]:
    return [text[at : at + TOKEN_BYTES] for at in range(0, len(text), TOKEN_BYTES)]


def _token(piece: bytes) -> dict[str, Any]:
    # The emulator is certain of every token, which is a log probability of 0.
    return {"id": int.from_bytes(piece, "big"), "text": piece.decode(), "logprob": 0.0, "special": not piece}


def _details(progress: ChoiceProgress) -> dict[str, Any]:
    reasons = {"length": "length", "stop": "eos_token" if progress.stop_reason is None else "stop_sequence"}
    return {"finish_reason": reasons[progress.finish_reason], "generated_tokens": progress.generated, "seed": None}
