"""A lock that is had in the order in which it was asked for: under many calls nobody waits for ever."""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """A reentrant lock; whoever waits longest is next."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._holder: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me, turn = threading.get_ident(), threading.Event()
        with self._guard:
            if self._holder in (None, me) and (self._holder == me or not self._waiting):
                self._holder, self._depth = me, self._depth + 1
                return
            self._waiting.append(turn)
        turn.wait()
        with self._guard:
            self._holder, self._depth = me, 1

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._depth -= 1
            if self._depth:
                return
            # It goes to the next at once: nobody who comes now is before them.
            self._holder = -1 if self._waiting else None
            if self._waiting:
                self._waiting.popleft().set()
