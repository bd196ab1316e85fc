"""Tasks that can be stopped where they stand, as SIGSTOP does to a process, while the rest of the loop goes on."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import ContextVar
from types import coroutine
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterator


class StoppableGroup:
    """Every task begun within `members`, and every task those begin, stops at its next await while `stop` holds."""

    def __init__(self) -> None:
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    @contextmanager
    def members(self) -> Iterator[None]:
        """Begin tasks of this group in a block."""
        loop = asyncio.get_running_loop()
        if loop.get_task_factory() is None:
            loop.set_task_factory(cast("Any", _make_task))
        token = _group.set(self)
        try:
            yield
        finally:
            _group.reset(token)

    def stop(self) -> None:
        """Stop all of them."""
        self._goes_on.clear()

    def go_on(self) -> None:
        """Let them go on."""
        self._goes_on.set()

    @coroutine
    def drive(self, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Run a coroutine step by step; no step begins while the group is stopped."""
        failure: BaseException | None = None
        while True:
            while not self._goes_on.is_set():
                yield from self._goes_on.wait().__await__()
            try:
                awaited = work.send(None) if failure is None else work.throw(failure)
            except StopIteration as over:
                return over.value
            failure = None
            try:
                yield awaited
            except BaseException as exc:  # noqa: BLE001  # handed on to whom it is meant for
                failure = exc


_group: ContextVar[StoppableGroup | None] = ContextVar("group", default=None)


def _make_task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    group = _group.get()
    return asyncio.Task(work if group is None else _driven(group, work), loop=loop, **options)


async def _driven(group: StoppableGroup, work: Coroutine[Any, Any, Any]) -> Any:
    return await group.drive(work)
