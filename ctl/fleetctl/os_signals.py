"""Ctrl-C and requests to end, for commands: raised in the main thread, and raised anew where that went nowhere.

What a Python signal handler raises is raised wherever the main thread is. In a finalizer (an HTTP response that is freed),
in a weak reference's callback (an import that ends) or in a coroutine that takes its cancellation for something else it is
lost, and the command goes on as if nobody had asked. So what is raised here tells when it is freed without having ended
anything, and then is raised again; and an event loop is never broken open, its coroutine is ended.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Iterator, Mapping
    from types import FrameType, TracebackType
    from typing import Self

_Result = TypeVar("_Result")
_AGAIN_S = 0.01  # whatever it was lost in is over by then


class _Arriving:
    """An exception that calls `on_freed` when it is freed, unless it has arrived."""

    on_freed: Callable[[], None] | None = None

    def __del__(self) -> None:
        if self.on_freed is not None:
            self.on_freed()


class Interrupted(_Arriving, KeyboardInterrupt):
    """Ctrl-C, or what ends a command the same way."""


class Terminated(_Arriving, SystemExit):
    """A request to end, with the exit code that shells give it."""


class OsSignals:
    """What a command makes of signals while it runs; one for a process, found by the handler that is installed."""

    def __init__(self) -> None:
        self._depth = 0
        self._before: dict[int, Any] = {}
        self._unwinding: frozenset[int] = frozenset()  # raised as SystemExit; others as KeyboardInterrupt
        self._pending: list[int] = []  # arrived, and raised nowhere yet
        # What the next signals do in place of being raised, for each block that is under way, the innermost last.
        self._instead: list[list[Callable[[], object]]] = []
        self._has_alarm = False
        self._complain = sys.unraisablehook

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth == 1:
            self._complain = sys.unraisablehook
            sys.unraisablehook = self._complain_of_others
            self._has_alarm = signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
            if self._has_alarm:
                self._take(signal.SIGALRM)
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as shells start what runs in the background
                self._take(signal.SIGINT)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._depth -= 1
        if self._depth:
            return
        accept(error)
        if self._has_alarm:
            signal.setitimer(signal.ITIMER_REAL, 0.0)  # without us it would end the process
        self._give_back(*self._before)
        sys.unraisablehook = self._complain
        if error is None:
            self._deliver()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Raise what a signal stands for, or do what a block has in place of that."""
        del frame
        if number != signal.SIGALRM:
            self._pending.append(number)
        if not self._pending:
            return
        steps = self._instead[-1] if self._instead else []
        if steps:
            steps.pop(0)()
        else:
            self._deliver()

    @contextmanager
    def taking(self, numbers: Mapping[int, type[BaseException]]) -> Iterator[None]:
        """Have more signals unwind a block, as Ctrl-C does (KeyboardInterrupt) or with their exit code (SystemExit)."""
        before = self._unwinding
        self._unwinding |= {number for number, kind in numbers.items() if issubclass(kind, SystemExit)}
        taken = [number for number in numbers if number not in self._before]
        for number in taken:
            self._take(number)
        try:
            yield
        finally:
            self._give_back(*taken)
            self._unwinding = before

    @contextmanager
    def replaced(self, *steps: Callable[[], object]) -> Iterator[None]:
        """Have the next signals do these steps, one each, and only those after them be raised."""
        left = list(steps)
        self._instead.append(left)
        if self._pending:
            left.pop(0)()
        try:
            yield
        finally:
            self._instead.pop()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have a signal wait for the end of a block; the second is raised at once."""
        self._instead.append([_nothing])
        try:
            yield
        finally:
            self._instead.pop()
            if not (self._instead and self._instead[-1]):  # nothing around it holds: signals are let through there
                self._deliver()

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Have signals raised at once in a block, those too that one around it has held."""
        self._instead.append([])
        try:
            self._deliver()
            yield
        finally:
            self._instead.pop()

    def take_pending(self) -> bool:
        """Say whether a signal waits to be raised, and raise it no more."""
        found = bool(self._pending)
        self._pending.clear()
        return found

    def _take(self, number: int) -> None:
        self._before[number] = signal.signal(number, self) or signal.SIG_DFL

    def _give_back(self, *numbers: int) -> None:
        for number in numbers:
            signal.signal(number, self._before.pop(number))

    def _deliver(self) -> None:
        if not self._pending:
            return
        number = self._pending[0]
        self._pending.clear()
        # In no variable of this frame, which its traceback holds: it would be freed no sooner than by the collector.
        raise self._exception(number)

    def _exception(self, number: int) -> BaseException:
        def on_freed() -> None:
            # Nobody caught it. Raised from here it would be lost once more.
            if self._depth:
                self._pending.append(number)
                if self._has_alarm:
                    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)

        error = Terminated(128 + number) if number in self._unwinding else Interrupted()
        error.on_freed = on_freed
        return error

    def _complain_of_others(self, unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, _Arriving):
            self._complain(unraisable)


def _nothing() -> None:
    return


def accept(error: BaseException | None) -> None:
    """Take a signal's exception for arrived, also one that others were raised from: whoever caught it ends by it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, _Arriving):
            error.on_freed = None
        error = error.__cause__ or error.__context__


def _installed() -> OsSignals | None:
    """Return what is installed; None in other threads than the main one, which is the one that signals are raised in."""
    if threading.current_thread() is not threading.main_thread():
        return None
    found = (signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM, signal.SIGTERM))
    return next((each for each in found if isinstance(each, OsSignals)), None)


@contextmanager
def installed() -> Iterator[None]:
    """Have Ctrl-C be raised in this block, and never be lost in it; in other threads than the main one it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _installed() or OsSignals():
        yield


@contextmanager
def taking(numbers: Mapping[int, type[BaseException]]) -> Iterator[None]:
    """Have these signals unwind a block: as Ctrl-C does (KeyboardInterrupt), or with their exit code (SystemExit)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _installed() or OsSignals() as signals, signals.taking(numbers):
        yield


@contextmanager
def held() -> Iterator[None]:
    """Have a signal wait for the end of a block that must be done whole; the second is raised at once."""
    signals = _installed()
    if signals is None:
        yield
        return
    with signals.held():
        yield


@contextmanager
def let_through() -> Iterator[None]:
    """Have a signal raised at once in a block within one that holds them: what has to be done whole is done, and it only waits."""
    signals = _installed()
    if signals is None:
        yield
        return
    with signals.let_through():
        yield


def run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine as `asyncio.run` does. A signal cancels it, and is raised at its end whatever it made of that."""
    import asyncio

    signals = _installed()
    if signals is None:
        return asyncio.run(main)

    async def cancelled_by_signals() -> _Result:
        with signals.replaced(_cancelling()):
            return await main

    with signals.held():
        return asyncio.run(cancelled_by_signals())


def run_until_stopped(main: Callable[[asyncio.Event], Coroutine[Any, Any, _Result]]) -> tuple[_Result, bool]:
    """Run a coroutine that ends early once its event is set; return its result, and whether Ctrl-C or SIGTERM did that.

    The second signal cancels it.
    """
    import asyncio

    async def stopped_by_signals(signals: OsSignals | None) -> _Result:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        if signals is None:
            return await main(stop)
        with signals.replaced(lambda: loop.call_soon_threadsafe(stop.set), _cancelling()):
            return await main(stop)

    with taking({signal.SIGTERM: KeyboardInterrupt}):
        signals = _installed()
        if signals is None:
            return asyncio.run(stopped_by_signals(None)), False
        with signals.held():
            result = asyncio.run(stopped_by_signals(signals))
            return result, signals.take_pending()


def _cancelling() -> Callable[[], object]:
    """Return what cancels the task that calls this, from a signal handler."""
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is None:
        raise AssertionError("called by a task")
    return lambda: loop.call_soon_threadsafe(task.cancel)
