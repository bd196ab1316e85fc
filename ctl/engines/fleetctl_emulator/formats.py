"""What answers look like on the wire, prepared so that a token costs three concatenations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

DONE = b"data: [DONE]\n\n"
_MARK = "\N{WHITE MEDIUM STAR}"  # stands for the text while an event is prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceProgress:
    """How far a choice is: what usage figures and last events tell."""

    index: int
    prompt_tokens: int
    cached_tokens: int
    generated: int
    finish_reason: str
    stop_reason: str | None
    text: bytes  # all that is visible


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFields:
    """What is constant of one response."""

    is_chat: bool
    request_id: str = ""
    created_s: int
    model: str
    wants_usage: bool
    wants_continuous_usage: bool = False
    prompts: int = 1


class EventFormat(Protocol):
    """Spells one response's events. Texts are plain ASCII words: they need no escaping."""

    counts: bytes  # usage between the events of a stream, of its prompt, total and completion tokens, in this order

    def opening(self, progress: ChoiceProgress) -> bytes:
        """Return what comes before a choice's first token."""
        ...

    def frame(self, index: int) -> tuple[bytes, bytes] | None:
        """Return what surrounds one token's text, with an empty usage object where counts belong.

        None if events differ by more than that.
        """
        ...

    def event(self, progress: ChoiceProgress, text: bytes) -> bytes:
        """Return the event for some more text."""
        ...

    def last(self, progress: ChoiceProgress, text: bytes) -> bytes:
        """Return a choice's last event."""
        ...

    def closing(self, all_progress: Items[ChoiceProgress]) -> bytes:
        """Return what ends the stream."""
        ...

    def whole(self, all_progress: Items[ChoiceProgress]) -> bytes:
        """Return the body of a response that is not streamed."""
        ...


def event(tree: object) -> bytes:
    """Return a server-sent event."""
    return b"data: " + msgspec.json.encode(tree) + b"\n\n"


def usage(all_progress: Items[ChoiceProgress], *, prompts: int = 1) -> dict[str, Any]:
    """Return the usage figures; a prompt shared by several choices counts once."""
    per_prompt = len(all_progress) // prompts
    prompt = sum(progress.prompt_tokens for progress in all_progress[::per_prompt])
    made = sum(progress.generated for progress in all_progress)
    cached = sum(progress.cached_tokens for progress in all_progress[::per_prompt])
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + made,
        "completion_tokens": made,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


class OpenAiFormat:
    """Spells chats and completions with what OpenAI's API has; each engine adds keys of its own."""

    counts = b'"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}'

    def __init__(self, fields: ResponseFields) -> None:
        self._is_chat = fields.is_chat
        self._wants_usage = fields.wants_usage
        self._continuous = fields.wants_continuous_usage
        self._prompts = fields.prompts
        chat, text = ("chat.completion", "chat.completion.chunk"), ("text_completion", "text_completion")
        whole, chunk = chat if fields.is_chat else text
        constant: dict[str, Any] = {"created": fields.created_s, "model": fields.model}
        self._whole: dict[str, Any] = {"id": fields.request_id, "object": whole, **constant}
        self._chunk: dict[str, Any] = {"id": fields.request_id, "object": chunk, **constant}

    def opening(self, progress: ChoiceProgress) -> bytes:
        """Return the event with the role, for chats."""
        if not self._is_chat:
            return b""
        choice = {
            "index": progress.index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        figures = self._figures_after(progress, tokens=0) if self._continuous else None
        return self._event([choice], figures, **self._opening_rest())

    def frame(self, index: int) -> tuple[bytes, bytes] | None:
        """Return what surrounds a token's text."""
        choices = [self._choice(index, _MARK)]
        whole = event(self._chunk | {"choices": choices} | ({"usage": {}} if self._continuous else {}))
        head, _, tail = whole.partition(_MARK.encode())
        return head, tail

    def event(self, progress: ChoiceProgress, text: bytes) -> bytes:
        """Return the event for some more text."""
        figures = self._figures_after(progress, tokens=progress.generated) if self._continuous else None
        return self._event([self._choice(progress.index, text.decode())], figures)

    def last(self, progress: ChoiceProgress, text: bytes) -> bytes:
        """Return a choice's last text and why it ended."""
        choice = self._choice(progress.index, text.decode()) | self._ending(progress)
        figures = self._figures_after(progress, tokens=progress.generated) if self._continuous else None
        return self._event([choice], figures, **self._last_rest())

    def closing(self, all_progress: Items[ChoiceProgress]) -> bytes:
        """Return the usage, if wanted, and [DONE]."""
        if not self._wants_usage:
            return DONE
        return self._event([], self._figures(all_progress, is_stream=True), **self._closing_rest()) + DONE

    def whole(self, all_progress: Items[ChoiceProgress]) -> bytes:
        """Return the JSON body."""
        choices = [self._whole_choice(progress) for progress in all_progress]
        figures = self._figures(all_progress, is_stream=False)
        return msgspec.json.encode(self._whole | {"choices": choices} | self._whole_rest(figures))

    def _whole_choice(self, progress: ChoiceProgress) -> dict[str, Any]:
        text = progress.text.decode()
        content = {"message": self._message(text)} if self._is_chat else {"text": text}
        return {"index": progress.index} | content | {"logprobs": None} | self._ending(progress)

    def _message(self, text: str) -> dict[str, Any]:
        return {"role": "assistant", "content": text}

    def _ending(self, progress: ChoiceProgress) -> dict[str, Any]:
        return {"finish_reason": progress.finish_reason}

    def _choice(self, index: int, text: str) -> dict[str, Any]:
        content: dict[str, Any] = {"delta": {"content": text}} if self._is_chat else {"text": text}
        return {"index": index} | content | {"logprobs": None, "finish_reason": None}

    def _figures(self, all_progress: Items[ChoiceProgress], *, is_stream: bool) -> dict[str, Any]:
        """Return the usage of a whole response, or at the end of a stream."""
        del is_stream
        return usage(all_progress, prompts=self._prompts)

    def _figures_after(self, progress: ChoiceProgress, *, tokens: int) -> dict[str, Any]:
        """Return the usage after so many tokens of a choice, as `counts` spells it."""
        prompt = progress.prompt_tokens
        spelled: dict[str, Any] = msgspec.json.decode(b"{%s}" % (self.counts % (prompt, prompt + tokens, tokens)))
        figures: dict[str, Any] = spelled["usage"]
        return figures

    def _whole_rest(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Return what follows the choices of a whole response."""
        return {"usage": figures}

    def _opening_rest(self) -> dict[str, Any]:
        """Return what else a stream's first event of a choice has."""
        return {}

    def _last_rest(self) -> dict[str, Any]:
        """Return what else a choice's last event has."""
        return {}

    def _closing_rest(self) -> dict[str, Any]:
        """Return what else the event with the usage has."""
        return {}

    def _event(self, choices: list[dict[str, Any]], figures: dict[str, Any] | None, **rest: object) -> bytes:
        return event(self._chunk | {"choices": choices} | ({"usage": figures} if figures else {}) | rest)
