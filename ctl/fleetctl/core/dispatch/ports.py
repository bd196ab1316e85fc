"""What the dispatcher asks of whoever holds the sockets and the timers."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.core.admission.refusal import Refusal
    from fleetctl.core.dispatch.state import RequestEvent
    from fleetctl.model.generation import BoundReason


class Wakeup(Protocol):
    """A call that is due."""

    def cancel(self) -> None:
        """Make sure that the call is not made."""
        ...


class WakeAt(Protocol):
    """The shell's timer."""

    def __call__(self, at_s: float, call: Callable[[], None]) -> Wakeup:
        """Make a call at `at_s` of the dispatcher's clock or a little later, never earlier."""
        ...


class Resumption(Enum):
    """Whether another replica can go on with a stream that was lost."""

    POSSIBLE = "possible"  # the rest can be asked of another replica; the next `send` asks for it
    ONLY_END_MISSING = "only-end-missing"  # everything but the stream's end has been passed on
    UNLAWFUL = "unlawful"  # the client would not get the answer it asked for


class ExchangePort(Protocol):
    """One request's bytes: its client on one side, a replica on the other.

    `refuse`, `fail`, `pass_on`, `end_stream`, `end_early` and `break_stream` each write the end of the response; then comes `over`.
    """

    def send(self, replica_id: str) -> None:
        """Send the request to this replica; report to the dispatcher what comes of it."""
        ...

    def cancel(self) -> None:
        """Break off what is under way at the replica."""
        ...

    def refuse(self, refusal: Refusal, *, retry_after_s: float) -> None:
        """Tell the client that it is turned away, why, and when to come back."""
        ...

    def fail(self, reason: RequestEvent) -> None:
        """Tell a client that has got nothing yet how its request failed."""
        ...

    def pass_on(self) -> None:
        """Give the client what the last replica answered, an error though it is."""
        ...

    def resumption(self, *, may_continue: bool) -> Resumption:
        """Say whether a lost stream can go on; without `may_continue` only whether it lacks nothing but its end."""
        ...

    def end_stream(self) -> None:
        """Write the end of a stream that lacked only that."""
        ...

    def end_early(self, reason: BoundReason) -> None:
        """Write the end of an answer that its replica was not done with: what there is of it, and why no more."""
        ...

    def break_stream(self, reason: RequestEvent) -> None:
        """End an answer the client has part of, so that no client takes it for whole."""
        ...

    def over(self) -> None:
        """Let go of the client: the request has ended."""
        ...
