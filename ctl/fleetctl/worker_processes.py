"""Computes what does not depend on each other in several processes at once, forked where that may be done."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import selectors
import signal
import sys
import threading
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar, cast

from fleetctl import os_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1  # prctl(2)
_READ_BYTES = 1 << 20


@dataclass(slots=True)
class _Worker:
    pid: int
    number: int  # of its call
    answer: bytearray = field(default_factory=bytearray)


def spread(calls: Sequence[Callable[[], T]], *, processes: int) -> list[T]:
    """Return what each call returns, in their order, computed by at most so many processes.

    Calls share nothing that they change. They are forked on Linux alone, and from the main thread; elsewhere, and with one
    process or one call, they are computed here, one after another. A call whose process is killed is computed here too. No
    process outlives this call or this process, however either ends; how long a call takes is the caller's affair, who may be
    interrupted. Raises what the first call that fails raises.
    """
    if min(processes, len(calls)) < 2 or sys.platform != "linux" or not _is_main_thread():
        return [call() for call in calls]
    return _Fork(calls, processes).results()


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class _Fork(Generic[T]):
    """The processes of one `spread`."""

    def __init__(self, calls: Sequence[Callable[[], T]], processes: int) -> None:
        self._calls = calls
        self._processes = processes
        self._at_work: dict[int, _Worker] = {}  # by the descriptor its answer is read from
        self._found: dict[int, tuple[bool, object]] = {}  # by the call's number: whether it returned, and what
        self._prctl = ctypes.CDLL(None).prctl

    def results(self) -> list[T]:
        left = iter(range(len(self._calls)))
        try:
            with selectors.DefaultSelector() as selector:
                while self._start(left, selector) or self._at_work:
                    for key, _ in selector.select():
                        self._read(key.fd, selector)
        finally:
            with os_signals.held():
                self._kill()
        return [self._result(number) for number in range(len(self._calls))]

    def _result(self, number: int) -> T:
        if number not in self._found:  # its process was killed, for memory perhaps
            return self._calls[number]()
        has_returned, found = self._found[number]
        if not has_returned:
            raise cast("BaseException", found)
        return cast("T", found)

    def _start(self, left: Iterator[int], selector: selectors.BaseSelector) -> bool:
        """Start as many as may be at work; return whether any is."""
        while len(self._at_work) < self._processes:
            number = next(left, None)
            if number is None:
                break
            with os_signals.held():
                self._fork(number, selector)
        return bool(self._at_work)

    def _fork(self, number: int, selector: selectors.BaseSelector) -> None:
        readable, writable = os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():
            # From Python 3.12 on a fork beside threads warns: those here wait, and a worker calls nothing that they may have locked.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            self._work(self._calls[number], writable, parent)
        os.close(writable)
        self._at_work[readable] = _Worker(pid, number)
        selector.register(readable, selectors.EVENT_READ)

    def _work(self, call: Callable[[], T], writable: int, parent: int) -> NoReturn:
        """Compute in the forked process, and end it."""
        try:
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal it reaches all: the parent ends its workers
            for number in (signal.SIGTERM, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            gc.freeze()  # what the parent had is shared as long as nobody writes to it, and the collector would
            try:
                answer = pickle.dumps((True, call()))
            except Exception as error:  # noqa: BLE001  # raised by the parent
                answer = pickle.dumps((False, error))
            view = memoryview(answer)
            while view:
                view = view[os.write(writable, view) :]
        finally:
            os._exit(0)  # nothing of the parent's is flushed, closed or finalized here

    def _read(self, readable: int, selector: selectors.BaseSelector) -> None:
        worker = self._at_work[readable]
        part = os.read(readable, _READ_BYTES)
        if part:
            worker.answer += part
            return
        selector.unregister(readable)
        with os_signals.held():
            del self._at_work[readable]
            os.close(readable)
            os.waitpid(worker.pid, 0)
        if worker.answer:
            try:
                self._found[worker.number] = pickle.loads(worker.answer)  # noqa: S301  # our own process's
            except (EOFError, pickle.UnpicklingError):
                return  # killed while it wrote

    def _kill(self) -> None:
        for readable, worker in self._at_work.items():
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
            os.close(readable)
        self._at_work.clear()
