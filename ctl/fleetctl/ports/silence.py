"""What a host may know of a controller that does not answer."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class SilenceReader(Protocol):
    """Capability of a host that sees its controller's machine or pod from outside."""

    def why_silent(self, fleet: str) -> str:
        """Return what keeps the controller from answering, and what to do, within seconds; empty: not known."""
        ...
