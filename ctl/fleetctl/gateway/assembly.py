"""A whole answer put together from a replica's stream: so there is something to give when a clock ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl.gateway import wire
from fleetctl.gateway.event_shape import read_event
from fleetctl.gateway.stream_fault import StreamFault, find_fault, too_long
from fleetctl.gateway.usage import Usage, merged, read_usage

if TYPE_CHECKING:
    from collections.abc import Mapping

# With any of these set a whole answer has more to it than its events would tell.
_UNLAWFUL = (
    "tools", "functions", "logprobs", "top_logprobs", "prompt_logprobs", "echo", "use_beam_search", "return_token_ids",
    "prompt_embeds", "audio", "modalities",
)  # fmt: skip
_TEXTS = ("content", "reasoning_content", "reasoning", "text")
_CHOICE_KEPT = ("stop_reason", "matched_stop")  # of the event that ends a choice; vLLM's and SGLang's words
_ENVELOPE = ("id", "created", "model", "system_fingerprint")


def streamed_body(request_body: bytes, *, is_chat: bool, counts: bool) -> bytes:
    """Return the body that asks for the same answer as a stream, with its usage; b"": it cannot be put together again.

    `counts` asks for the usage so far with every event, of engines that know that.
    """
    body: dict[str, Any] = msgspec.json.decode(request_body)
    if any(body.get(key) not in (None, False, [], 0, "none") for key in _UNLAWFUL):
        return b""
    if any(body.get(key) not in (None, 1) for key in ("n", "best_of")):
        return b""
    prompt = body.get("prompt")
    if not is_chat and not isinstance(prompt, str) and not _is_one_prompt(prompt):
        return b""
    options = merged(None) if counts else {"include_usage": True}
    return msgspec.json.encode({**body, "stream": True, "stream_options": options})


class AnswerAssembly:
    """One choice of text, event by event."""

    __slots__ = (
        "_bytes_max",
        "_choice",
        "_envelope",
        "_is_chat",
        "_pending",
        "_text_bytes",
        "_texts",
        "_usage",
        "events",
        "fault",
    )

    def __init__(self, *, is_chat: bool, bytes_max: int) -> None:
        self._is_chat = is_chat
        self._bytes_max = bytes_max
        self._pending = b""
        self._envelope: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._text_bytes = 0
        self._choice: dict[str, Any] = {}  # what the event that ended it said
        self._usage: dict[str, Any] = {}  # as the engine last reported it
        self.events = 0  # with text
        self.fault: StreamFault | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the engine has said why the answer ended."""
        return "finish_reason" in self._choice

    def feed(self, data: bytes) -> int:
        """Take in what came; return how many of its events have text. Sets `fault` where the stream cannot go on."""
        data = self._pending + data
        end = wire.last_boundary(data)
        self._pending = data[end:]
        before = self.events
        for event in wire.events(data[:end]):
            read = read_event(event)
            found = find_fault(event) if read is not None and "choices" not in read else None
            if found is not None:
                self.fault = found[0]
                break
            if read is not None:
                self._note(read)
        if self._text_bytes + len(self._pending) > self._bytes_max:
            self.fault = too_long()
        return self.events - before

    def usage(self, prompt_tokens: int) -> Usage:
        """Return the tokens as the engine counted them, else as estimated, and an event a token."""
        counted = read_usage(b'"usage"' + msgspec.json.encode(self._usage)) if self._usage else None
        return counted or Usage(prompt_tokens, self.events)

    def body(self, prompt_tokens: int, **ended: str) -> bytes:
        """Return the answer; `ended` is why, where the engine has not said it. `prompt_tokens` where it has not counted them."""
        texts = {key: "".join(pieces) for key, pieces in self._texts.items()}
        ends = self._choice or ended
        if self._is_chat:
            content: dict[str, Any] = {"message": {"role": "assistant", "content": texts.pop("content", ""), **texts}}
            kind = "chat.completion"
        else:
            content, kind = {"text": texts.get("text", "")}, "text_completion"
        choice = {"index": 0, **content, "logprobs": None, **ends}
        usage = {**self.usage(prompt_tokens).as_openai(), **self._usage}
        return msgspec.json.encode({**self._envelope, "object": kind, "choices": [choice], "usage": usage})

    def _note(self, event: dict[str, Any]) -> None:
        if not self._envelope:
            self._envelope = {key: event[key] for key in _ENVELOPE if key in event}
        usage = event.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        delta = choice.get("delta") if self._is_chat else choice
        if isinstance(delta, dict):
            self._add(delta)
        if choice.get("finish_reason") is not None:
            self._choice = {"finish_reason": choice["finish_reason"]}
            self._choice |= {key: choice[key] for key in _CHOICE_KEPT if key in choice}

    def _add(self, delta: Mapping[str, Any]) -> None:
        has_text = False
        for key in _TEXTS:
            text = delta.get(key)
            if isinstance(text, str) and text:
                self._texts.setdefault(key, []).append(text)
                self._text_bytes += len(text)
                has_text = True
        self.events += has_text


def _is_one_prompt(prompt: object) -> bool:
    """Whether a completion's prompt is one, as token ids."""
    return isinstance(prompt, list) and all(isinstance(token, int) for token in prompt)
