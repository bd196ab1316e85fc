"""What can become of a stream whose replica was lost, by what its client has of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.dispatch.ports import Resumption
from fleetctl.gateway import continuation, wire
from fleetctl.gateway.splicer import end_of_stream
from fleetctl.gateway.usage import Usage

if TYPE_CHECKING:
    from fleetctl.gateway.relay import EventRelay
    from fleetctl.gateway.usage import ShownUsage


@dataclass(frozen=True, slots=True)
class Resumed:
    """A lost stream's way on: the body that asks for the rest, the events that end it, or what is in the way."""

    found: Resumption
    body: bytes = b""
    last_events: bytes = b""
    obstacle: str = ""


def resume(
    relay: EventRelay | None, request_body: bytes, *, is_chat: bool, shown: ShownUsage, obstacle: str
) -> Resumed:
    """Return how a lost stream goes on, and get its relay ready for that. `obstacle`: why no replica could, if so."""
    if relay is None:
        return Resumed(Resumption.UNLAWFUL, obstacle="it has no events")
    if relay.is_finished:
        last_events = wire.DONE_EVENT if relay.is_done else _end_of(relay, is_chat=is_chat, shown=shown)
        return Resumed(Resumption.ONLY_END_MISSING, last_events=last_events)
    obstacle = continuation.obstacle(request_body, is_chat=is_chat) or obstacle
    transcript = relay.transcript
    if obstacle or transcript is None:
        return Resumed(Resumption.UNLAWFUL, obstacle=obstacle or "no engine could go on with it when it began")
    resumed = continuation.plan(request_body, transcript, relay.counts(), is_chat=is_chat, shown=shown)
    if resumed is None:
        return Resumed(Resumption.UNLAWFUL, obstacle="it is more than plain text, or more of it than is kept")
    if resumed.body is None:
        return Resumed(Resumption.ONLY_END_MISSING, last_events=resumed.splicer.end())
    relay.restart(resumed.splicer)
    return Resumed(Resumption.POSSIBLE, body=resumed.body)


def _end_of(relay: EventRelay, *, is_chat: bool, shown: ShownUsage) -> bytes:
    """Return what follows an answer's last choice, its usage told by the events before."""
    if relay.transcript is None or relay.is_usage_passed:
        return wire.DONE_EVENT
    prompt_tokens, tokens = relay.counts()
    usage = Usage(prompt_tokens, tokens) if prompt_tokens is not None else None
    return end_of_stream(relay.transcript.envelope, usage, is_chat=is_chat, shown=shown)
