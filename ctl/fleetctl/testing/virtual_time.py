"""An asyncio loop whose clock jumps to the next timer instead of waiting."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class _JumpSelector(selectors.SelectSelector):
    """Polls real IO without blocking and adds up how long it was asked to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("deadlock: no timer is armed and no IO is ready")
        self.elapsed_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs coroutines at simulated speed; `time()` starts at 0 s. Threads and sockets stay real, so use neither."""

    def __init__(self) -> None:
        self._jump = _JumpSelector()
        super().__init__(self._jump)

    def time(self) -> float:
        """Return the simulated seconds since the loop was made."""
        return self._jump.elapsed_s


def run_virtual(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end on a new VirtualTimeLoop. Raises RuntimeError on a deadlock."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
