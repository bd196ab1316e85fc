"""What can become of a stream whose replica was lost, by what its client has of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.core.dispatch.ports import Resumption
from fleetctl.gateway import continuation, wire
from fleetctl.gateway.prompt_count import PromptCount, counting_body
from fleetctl.gateway.splicer import end_of_stream
from fleetctl.gateway.usage import Usage

if TYPE_CHECKING:
    from fleetctl.gateway.relay import EventRelay
    from fleetctl.gateway.splicer import Splicer
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
    if relay.is_finished or isinstance(relay.splice, PromptCount):
        return _ended(relay, request_body, is_chat=is_chat, shown=shown, may_count=not obstacle)
    obstacle = continuation.obstacle(request_body, is_chat=is_chat) or obstacle
    transcript = relay.transcript
    if obstacle or transcript is None:
        return Resumed(Resumption.UNLAWFUL, obstacle=obstacle or "no engine could go on with it when it began")
    resumed = continuation.plan(request_body, transcript, relay.counts(), is_chat=is_chat, shown=shown)
    if resumed is None:
        return Resumed(Resumption.UNLAWFUL, obstacle="it is more than plain text, or more of it than is kept")
    if resumed.body is None:
        return _full(relay, resumed.splicer, request_body, is_chat=is_chat, shown=shown)
    relay.restart(resumed.splicer)
    return Resumed(Resumption.POSSIBLE, body=resumed.body)


def _ended(relay: EventRelay, request_body: bytes, *, is_chat: bool, shown: ShownUsage, may_count: bool) -> Resumed:
    """Return the end of a stream whose client knows why its answer ended."""
    if isinstance(relay.splice, PromptCount):
        return Resumed(Resumption.ONLY_END_MISSING, last_events=relay.splice.end())
    if may_count and _lacks_usage(relay, shown):
        return _counted_elsewhere(relay, request_body, b"", is_chat=is_chat, shown=shown)
    last_events = wire.DONE_EVENT if relay.is_done else _end_of(relay, is_chat=is_chat, shown=shown)
    return Resumed(Resumption.ONLY_END_MISSING, last_events=last_events)


def _full(relay: EventRelay, splicer: Splicer, request_body: bytes, *, is_chat: bool, shown: ShownUsage) -> Resumed:
    """Return the end of a stream that has all the tokens it may have."""
    if _lacks_usage(relay, shown):
        return _counted_elsewhere(relay, request_body, splicer.finish("length"), is_chat=is_chat, shown=shown)
    return Resumed(Resumption.ONLY_END_MISSING, last_events=splicer.end())


def _lacks_usage(relay: EventRelay, shown: ShownUsage) -> bool:
    """Whether the client asked for a usage that only the end of the stream would have told."""
    if not shown.at_end or relay.is_done or relay.is_usage_passed:
        return False
    return relay.transcript is not None and relay.transcript.is_fit and relay.counts()[0] is None


def _counted_elsewhere(
    relay: EventRelay, request_body: bytes, opening: bytes, *, is_chat: bool, shown: ShownUsage
) -> Resumed:
    """Return how another replica is asked for the prompt's tokens, of an answer that has all of its own."""
    envelope = relay.transcript.envelope if relay.transcript is not None else {}
    _, tokens = relay.counts()
    relay.restart(PromptCount(envelope, tokens, opening=opening, is_chat=is_chat, shown=shown))
    return Resumed(Resumption.POSSIBLE, body=counting_body(request_body))


def _end_of(relay: EventRelay, *, is_chat: bool, shown: ShownUsage) -> bytes:
    """Return what follows an answer's last choice, its usage told by the events before."""
    if relay.transcript is None or relay.is_usage_passed:
        return wire.DONE_EVENT
    prompt_tokens, tokens = relay.counts()
    usage = Usage(prompt_tokens, tokens) if prompt_tokens is not None else None
    return end_of_stream(relay.transcript.envelope, usage, is_chat=is_chat, shown=shown)
