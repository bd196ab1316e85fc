"""What the metrics of every engine that is played are given to count; how they name it is theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fleetctl_emulator.scheduler import StepResult


class EngineMetrics(Protocol):
    """Counts what the engine does and writes its /metrics page."""

    def stepped(self, result: StepResult) -> None:
        """Count what an ended step brought."""
        ...

    def received(self, *, prompt_tokens: int, max_tokens: int) -> None:
        """Count a sequence that was validated and given to the engine."""
        ...

    def rejected(self) -> None:
        """Count a request refused because the queue is full."""
        ...

    def failed(self, kind: str) -> None:
        """Count a request that ended in an error of the client ("validation") or the engine ("generation")."""
        ...

    def answered(self, *, route: str, method: str, status: int, took_s: float, sizes: tuple[int, int]) -> None:
        """Count an HTTP exchange and its (request, response) bytes."""
        ...

    def page(self, *, as_nan: bool = False) -> str:
        """Return the /metrics page."""
        ...
