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


class EventFormat(Protocol):
    """Spells one response's events. Texts are plain ASCII words: they need no escaping."""

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


def usage(all_progress: Items[ChoiceProgress], *, with_details: bool = True, prompts: int = 1) -> dict[str, Any]:
    """Return the usage figures; a prompt shared by several choices counts once."""
    per_prompt = len(all_progress) // prompts
    prompt = sum(progress.prompt_tokens for progress in all_progress[::per_prompt])
    made = sum(progress.generated for progress in all_progress)
    figures: dict[str, Any] = {
        "prompt_tokens": prompt,
        "total_tokens": prompt + made,
        "completion_tokens": made,
    }
    if with_details:
        figures["prompt_tokens_details"] = {
            "cached_tokens": sum(progress.cached_tokens for progress in all_progress[::per_prompt])
        }
    return figures


class OpenAiFormat:
    """Spells chats and completions as vLLM does. SGLang's differ only in fields nobody reads."""

    def __init__(  # noqa: PLR0913  # they are a response's constant fields
        self,
        *,
        is_chat: bool,
        request_id: str,
        created_s: int,
        model: str,
        wants_usage: bool,
        wants_continuous_usage: bool,
        prompts: int = 1,
    ) -> None:
        self._is_chat = is_chat
        self._wants_usage = wants_usage
        self._continuous = wants_continuous_usage
        self._prompts = prompts
        kind = ("chat.completion", "chat.completion.chunk") if is_chat else ("text_completion", "text_completion")
        self._whole = {"id": request_id, "object": kind[0], "created": created_s, "model": model}
        self._chunk = {"id": request_id, "object": kind[1], "created": created_s, "model": model}

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
        prompt = progress.prompt_tokens
        figures = {"prompt_tokens": prompt, "total_tokens": prompt, "completion_tokens": 0}
        return self._event([choice], figures if self._continuous else None)

    def frame(self, index: int) -> tuple[bytes, bytes] | None:
        """Return what surrounds a token's text."""
        choices = [self._choice(index, _MARK)]
        whole = event(self._chunk | {"choices": choices} | ({"usage": {}} if self._continuous else {}))
        head, _, tail = whole.partition(_MARK.encode())
        return head, tail

    def event(self, progress: ChoiceProgress, text: bytes) -> bytes:
        """Return the event for some more text."""
        figures = usage([progress], with_details=False) if self._continuous else None
        return self._event([self._choice(progress.index, text.decode())], figures)

    def last(self, progress: ChoiceProgress, text: bytes) -> bytes:
        """Return a choice's last text and why it ended."""
        choice = self._choice(progress.index, text.decode()) | self._ending(progress)
        return self._event([choice], usage([progress], with_details=False) if self._continuous else None)

    def closing(self, all_progress: Items[ChoiceProgress]) -> bytes:
        """Return the usage, if wanted, and [DONE]."""
        if not self._wants_usage:
            return DONE
        return event(self._chunk | {"choices": [], "usage": usage(all_progress, prompts=self._prompts)}) + DONE

    def whole(self, all_progress: Items[ChoiceProgress]) -> bytes:
        """Return the JSON body."""
        choices = [self._whole_choice(progress) for progress in all_progress]
        return msgspec.json.encode(
            self._whole
            | {
                "choices": choices,
                "service_tier": None,
                "system_fingerprint": None,
                "usage": usage(all_progress, prompts=self._prompts),
                "prompt_logprobs": None,
                "kv_transfer_params": None,
            }
        )

    def _whole_choice(self, progress: ChoiceProgress) -> dict[str, Any]:
        text = progress.text.decode()
        content: dict[str, Any] = {"text": text}
        if self._is_chat:
            content = {"message": {"role": "assistant", "content": text, "refusal": None, "tool_calls": []}}
        return {"index": progress.index} | content | {"logprobs": None} | self._ending(progress)

    def _ending(self, progress: ChoiceProgress) -> dict[str, Any]:
        return {"finish_reason": progress.finish_reason, "stop_reason": progress.stop_reason}

    def _choice(self, index: int, text: str) -> dict[str, Any]:
        content: dict[str, Any] = {"delta": {"content": text}} if self._is_chat else {"text": text}
        return {"index": index} | content | {"logprobs": None, "finish_reason": None}

    def _event(self, choices: list[dict[str, Any]], figures: dict[str, Any] | None) -> bytes:
        return event(self._chunk | {"choices": choices} | ({"usage": figures} if figures else {}))
