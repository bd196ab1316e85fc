"""Which events of a stream show a client nothing yet, so that they may be held back until one does."""

from __future__ import annotations

from typing import Any

from fleetctl.gateway import wire
from fleetctl.gateway.event_shape import read_event


def only_open(events: bytes) -> bool:
    """Whether these complete events say nothing of the answer: comments, and who speaks.

    Engines send them with their first token or right before it. A stream that is lost until then starts over elsewhere,
    whatever it asks for.
    """
    return all(event.find(b"data:") < 0 or _opens(read_event(event)) for event in wire.events(events))


def _opens(event: dict[str, Any] | None) -> bool:
    if event is None:
        return False
    choices = event.get("choices")
    return isinstance(choices, list) and bool(choices) and all(_is_empty(choice) for choice in choices)


def _is_empty(choice: object) -> bool:
    """Whether a choice has neither text, nor anything else of an answer, nor an end."""
    if not isinstance(choice, dict) or choice.get("finish_reason") is not None or choice.get("logprobs"):
        return False
    delta = choice.get("delta")
    if delta is None:
        return choice.get("text") == ""
    return isinstance(delta, dict) and not any(value for key, value in delta.items() if key != "role")
