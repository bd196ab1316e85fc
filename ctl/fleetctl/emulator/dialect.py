"""What differs between the flavours, as the HTTP front needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiohttp import web

    from fleetctl.emulator.engine import Engine
    from fleetctl.emulator.refusals import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownManners:
    """What SIGTERM does. `drain_s` None: there is no deadline; 0: what runs is aborted."""

    drain_s: float | None
    refuses_new: bool  # new requests are answered 500 while draining
    keeps_listening: bool
    is_healthy: bool  # what /health says while draining


class Dialect(Protocol):
    """Speaks for one flavour."""

    name: str
    manners: ShutdownManners
    warms_up_listening: bool  # /health is 503 for the last part of start-up, instead of the port being closed

    def refuse(self, refusal: Refusal) -> web.Response:
        """Return the response that says why a request is not served."""
        ...

    def refuse_in_stream(self, refusal: Refusal, *, is_chat: bool) -> bytes:
        """Return the events that say so when the response has begun."""
        ...

    def is_full(self, engine: Engine, *, sequences: int, before_begin: bool) -> bool:
        """Return whether the queue has no place, by what is known before a response begins, or at its beginning."""
        ...

    def needs_key(self, path: str) -> bool:
        """Return whether a path is served only with the API key."""
        ...

    def is_inference(self, path: str) -> bool:
        """Return whether a path makes the engine work."""
        ...
