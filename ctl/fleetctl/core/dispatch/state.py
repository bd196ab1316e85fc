"""The states of a request and every way from one to the next: whatever may change a state is in this file."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class RequestState(StrEnum):
    """Where a request is."""

    QUEUED = "queued"  # has arrived; no replica has been chosen for it yet
    CONNECTING = "connecting"  # holds a slot of a replica; not a byte has been sent there
    SENT = "sent"  # written to the replica; nothing of this replica's answer has been passed on
    STREAMING = "streaming"  # part of this replica's answer has been passed on to the client
    DISPLACED = "displaced"  # has lost its replica, and waits for another one or for its end
    OVER = "over"  # the client has its answer or its error, or has gone; nothing is held any more


class RequestEvent(StrEnum):
    """Why a request changes its state."""

    # What the dispatcher decides.
    DISPATCHED = "dispatched"  # a replica takes it
    REFUSED = "refused"  # admission turns it away
    EXPIRED = "expired"  # it has waited as long as it may
    GIVEN_UP = "given-up"  # no replica may, or ever could, take it after the one that failed it
    TIMED_OUT = "timed-out"  # it has taken longer than a request may, from its first replica on
    BOUNDED = "bounded"  # a bound of the server's ends its answer: what there is of it is whole
    # What happens on the way to a replica and back.
    CONNECTED = "connected"  # its bytes are on their way
    PASSED_ON = "passed-on"  # the client gets the first bytes of this replica's answer
    ANSWERED = "answered"  # the client has the whole answer
    CLIENT_GONE = "client-gone"  # nobody is there to answer
    # How a replica fails a request; what each asks for is in `failure`.
    UNREACHABLE = "unreachable"  # no connection could be made: the replica has not seen the request
    STALE_CONNECTION = "stale-connection"  # an idle connection turned out to be closed as the request was written
    CLOSED = "closed"  # the connection ended before the answer did
    PROTOCOL_ERROR = "protocol-error"  # the answer breaks HTTP, or a bound that is set to it
    STALLED = "stalled"  # a stream has been silent for too long
    PREEMPTED = "preempted"  # one has, at a replica that streams to others and whose KV cache is full
    UNHEALTHY = "unhealthy"  # silent at a replica that the controller has found unhealthy
    BUSY = "busy"  # the replica answers that it has no room now
    ERROR = "error"  # the replica answers that it failed, or breaks its stream off with an error
    TOO_LONG = "too-long"  # the replica's engine does not hold a request this long
    REJECTED = "rejected"  # the replica will not go on with another one's stream


_OVER: Final = RequestState.OVER
_DISPLACED: Final = RequestState.DISPLACED

# Where each event leads from each state. A pair that is not here cannot happen.
TRANSITIONS: Final[Mapping[RequestState, Mapping[RequestEvent, RequestState]]] = {
    RequestState.QUEUED: {
        RequestEvent.DISPATCHED: RequestState.CONNECTING,
        RequestEvent.REFUSED: _OVER,
        RequestEvent.EXPIRED: _OVER,
        RequestEvent.CLIENT_GONE: _OVER,
    },
    RequestState.CONNECTING: {
        RequestEvent.CONNECTED: RequestState.SENT,
        RequestEvent.BOUNDED: _OVER,
        RequestEvent.UNREACHABLE: _DISPLACED,
        RequestEvent.UNHEALTHY: _DISPLACED,
        RequestEvent.TIMED_OUT: _OVER,
        RequestEvent.CLIENT_GONE: _OVER,
    },
    RequestState.SENT: {
        RequestEvent.PASSED_ON: RequestState.STREAMING,
        RequestEvent.ANSWERED: _OVER,
        RequestEvent.BOUNDED: _OVER,
        RequestEvent.STALE_CONNECTION: _DISPLACED,
        RequestEvent.CLOSED: _DISPLACED,
        RequestEvent.PROTOCOL_ERROR: _DISPLACED,
        RequestEvent.STALLED: _DISPLACED,
        RequestEvent.PREEMPTED: _DISPLACED,
        RequestEvent.UNHEALTHY: _DISPLACED,
        RequestEvent.BUSY: _DISPLACED,
        RequestEvent.ERROR: _DISPLACED,
        RequestEvent.TOO_LONG: _DISPLACED,
        RequestEvent.REJECTED: _DISPLACED,
        RequestEvent.TIMED_OUT: _OVER,
        RequestEvent.CLIENT_GONE: _OVER,
    },
    RequestState.STREAMING: {
        RequestEvent.ANSWERED: _OVER,
        RequestEvent.BOUNDED: _OVER,
        RequestEvent.CLOSED: _DISPLACED,
        RequestEvent.PROTOCOL_ERROR: _DISPLACED,
        RequestEvent.STALLED: _DISPLACED,
        RequestEvent.PREEMPTED: _DISPLACED,
        RequestEvent.UNHEALTHY: _DISPLACED,
        RequestEvent.ERROR: _DISPLACED,
        RequestEvent.TIMED_OUT: _OVER,
        RequestEvent.CLIENT_GONE: _OVER,
    },
    RequestState.DISPLACED: {
        RequestEvent.DISPATCHED: RequestState.CONNECTING,
        RequestEvent.ANSWERED: _OVER,  # nothing but the end of its stream had been missing
        RequestEvent.BOUNDED: _OVER,
        RequestEvent.EXPIRED: _OVER,
        RequestEvent.TIMED_OUT: _OVER,
        RequestEvent.GIVEN_UP: _OVER,
        RequestEvent.CLIENT_GONE: _OVER,
    },
    RequestState.OVER: {},
}


class IllegalTransitionError(Exception):
    """A request was to change its state in a way that TRANSITIONS does not know: a bug of whoever asked for it."""
