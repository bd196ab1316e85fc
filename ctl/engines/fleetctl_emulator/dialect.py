"""What differs between the engines that are played, as the service needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiohttp import web

    from fleetctl_emulator.engine_core import EngineCore
    from fleetctl_emulator.refusals import EngineRefusal


class Dialect(Protocol):
    """Words refusals, and knows a full queue, as one engine does."""

    server: str  # its header of that name; empty: none
    vary: str  # that header, which it adds for other origins' sake before anybody asks; empty: none
    metrics_type: str  # the content type of /metrics
    redirects_slashes: bool  # /path/ to /path, as FastAPI does
    warms_up_listening: bool  # /health is 503 for the last part of start-up, instead of the port being closed

    def refuse(self, refusal: EngineRefusal) -> web.Response:
        """Return the response that says why a request is not served."""
        ...

    def refuse_in_stream(self, refusal: EngineRefusal, *, is_chat: bool) -> bytes:
        """Return the events that say so when the response has begun."""
        ...

    def is_full(self, engine: EngineCore, *, sequences: int, before_begin: bool) -> bool:
        """Return whether the queue has no place, by what is known before a response begins, or at its beginning."""
        ...

    def needs_key(self, path: str) -> bool:
        """Return whether a path is served only with the API key."""
        ...

    def is_inference(self, path: str) -> bool:
        """Return whether a path makes the engine work."""
        ...
