"""Work that outlasts a tick: creates, warm-ups, stops, probes. One of a name at a time; an end may wake the loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from fleetctl.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class BackgroundTasks:
    """Runs named coroutines in a task group that outlives any tick."""

    def __init__(
        self, group: asyncio.TaskGroup, *, on_end: Callable[[], None], on_error: Callable[[str, Exception], None]
    ) -> None:
        self._group = group
        self._on_end = on_end
        self._on_error = on_error
        self._running: dict[str, asyncio.Task[None]] = {}
        self._counts: Counter[str] = Counter()  # by kind

    def start(self, key: str, work: Callable[[], Coroutine[object, object, None]], *, wakes: bool = True) -> bool:
        """Begin `work` unless one of this name is under way; return whether it was begun."""
        if key in self._running:
            return False
        task = self._group.create_task(self._guarded(key, work), name=key)
        self._running[key] = task
        self._counts[_kind(key)] += 1
        task.add_done_callback(lambda _: self._ended(key, wakes=wakes))
        return True

    def is_running(self, key: str) -> bool:
        """Whether work of this name is under way."""
        return key in self._running

    def count(self, kind: str) -> int:
        """Return how much work of a kind is under way: what stands before the first slash of its name."""
        return self._counts[kind]

    def cancel(self, key: str) -> None:
        """Give up work of this name; nothing happens if there is none."""
        task = self._running.get(key)
        if task is not None:
            task.cancel()

    async def settle(self, prefix: str, *, within_s: float) -> None:
        """Wait a moment for work whose name begins so."""
        tasks = [task for key, task in self._running.items() if key.startswith(prefix)]
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)

    def cancel_all(self) -> None:
        """Give up everything."""
        for task in list(self._running.values()):
            task.cancel()

    async def _guarded(self, key: str, work: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await work()
        except FencedError:
            raise  # ends the controller
        except Exception as exc:  # noqa: BLE001  # journalled: one replica's bug must not end the whole controller
            self._on_error(key, exc)

    def _ended(self, key: str, *, wakes: bool) -> None:
        del self._running[key]
        self._counts[_kind(key)] -= 1
        if wakes:
            self._on_end()


def _kind(key: str) -> str:
    return key.partition("/")[0]
