"""The end of a stream that a bound of the server's ends: a finish reason, the usage where it was asked for, [DONE]."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl.gateway import wire
from fleetctl.gateway.event_shape import read_event
from fleetctl.gateway.prompt_count import PromptCount
from fleetctl.gateway.splicer import end_of_stream, finish_event
from fleetctl.gateway.transcript import gives_finish
from fleetctl.gateway.usage import Usage, shown_usage
from fleetctl.gateway.watched_relay import WatchedRelay
from fleetctl.model.generation import BoundReason

if TYPE_CHECKING:
    from fleetctl.gateway.limits import GatewayLimits
    from fleetctl.gateway.loop_watch import LoopWatch
    from fleetctl.gateway.relay import EventRelay
    from fleetctl.model.generation import GenerationSpec

# As where max_tokens is reached: of OpenAI's reasons the one that says that the answer would have gone on.
FINISH_REASON = "length"
_LENGTH = re.compile(rb'"finish_reason"\s*:\s*"length"')
_STOP_REASON = re.compile(rb'"(?:stop_reason|matched_stop)"\s*:\s*("(?:[^"\\]|\\.)*")')
_ENVELOPE = ("id", "created", "model")


class ChoicesRelay(WatchedRelay):
    """A relay that knows, of an answer of several choices or more than text, which choices have ended."""

    __slots__ = ("envelope", "finished")

    def __init__(self, limits: GatewayLimits, watch: LoopWatch | None = None) -> None:
        super().__init__(limits, watch)
        self.finished: set[int] = set()
        self.envelope: dict[str, Any] = {}

    def feed(self, data: bytes) -> bytes:
        """Return the complete events to pass on."""
        events = super().feed(data)
        if not self.envelope or gives_finish(events):
            self._note_choices(events)
        return events

    def _note_choices(self, events: bytes) -> None:
        for event in wire.events(events):
            read = read_event(event) or {}
            self.envelope = {key: read[key] for key in _ENVELOPE if key in read} or self.envelope
            choices = read.get("choices")
            for choice in choices if isinstance(choices, list) else ():
                if isinstance(choice, dict) and choice.get("finish_reason") is not None:
                    self.finished.add(choice.get("index", 0))


def last_events(
    relay: EventRelay, request_body: bytes, reason: BoundReason, *, is_chat: bool, prompt_tokens: int
) -> bytes:
    """Return what ends a stream of which this much was passed on; `prompt_tokens` where its engine has not counted them."""
    if isinstance(relay.splice, PromptCount):
        return relay.splice.end()
    request: dict[str, Any] = msgspec.json.decode(request_body)
    options = request.get("stream_options")
    shown = shown_usage(msgspec.json.encode(options) if options is not None else b"")
    counted, tokens = relay.counts()
    usage = Usage(counted if counted is not None else prompt_tokens, tokens)
    if isinstance(relay, ChoicesRelay):
        envelope, count = relay.envelope, request.get("n") or 1
        open_choices = [index for index in range(count) if index not in relay.finished]
    else:
        envelope = relay.transcript.envelope if relay.transcript is not None else _envelope_of(relay.last)
        open_choices = [] if relay.is_finished else [0]
    ends = {"finish_reason": FINISH_REASON, "stop_reason": reason.value}
    events = [finish_event(envelope, index, is_chat=is_chat, **ends) for index in open_choices]
    if relay.is_done or relay.is_usage_passed:
        return b"".join(events) + (b"" if relay.is_done else wire.DONE_EVENT)
    return b"".join(events) + end_of_stream(envelope, usage, is_chat=is_chat, shown=shown)


def bound_of(answer: bytes, bounds: GenerationSpec, length_bound: BoundReason | None) -> BoundReason | None:
    """Return which bound an engine ended this answer by, or the last of its events. None: by none of the server's.

    Engines do not say by which of several stop sequences, but for vLLM and SGLang.
    """
    if length_bound is not None and _LENGTH.search(answer):
        return length_bound
    if bounds.stop:
        stopped = _STOP_REASON.search(answer)
        if stopped is not None and msgspec.json.decode(stopped[1]) in bounds.stop:
            return BoundReason.STOP
    return None


def _envelope_of(events: bytes) -> dict[str, Any]:
    """Return what all events of a stream have in common, by the last of these."""
    for event in reversed(wire.events(events)):
        read = read_event(event)
        if read is not None and "choices" in read:
            return {key: read[key] for key in _ENVELOPE if key in read}
    return {}
