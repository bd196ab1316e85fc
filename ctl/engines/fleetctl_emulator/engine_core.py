"""The engine at work: steps paced on the event loop, sequences handed in and their tokens handed out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl_emulator.sequence import SequenceStatus

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from fleetctl.clock import Clock
    from fleetctl_emulator.engine_metrics import EngineMetrics
    from fleetctl_emulator.scheduler import Scheduler
    from fleetctl_emulator.sequence import Sequence

# A step begins when the one before it was due to end, not when the machine got round to it, so lateness does not add
# up. Beyond this much the machine is too busy to keep the modelled pace, and the rest of the debt is written off.
CATCH_UP_S = 0.1


class EngineCore:
    """Steps a scheduler in real time. Nothing runs and no timer is set while there is nothing to do."""

    def __init__(
        self, scheduler: Scheduler, metrics: EngineMetrics, *, loop: asyncio.AbstractEventLoop, clock: Clock
    ) -> None:
        self.scheduler = scheduler
        self.metrics = metrics
        self.steps = 0
        self.lag_s = 0.0  # of the last step's end behind its due time
        self.written_off_s = 0.0  # debt given up: the engine ran slower than modelled by this much in all
        self.open_at_last_step = 0  # unfinished sequences, as a front end that is told once per step knows them
        self._loop, self._clock = loop, clock
        self._open: set[Sequence] = set()
        self._numbers = 0
        self._due_s = 0.0
        self._next: asyncio.Handle | None = None
        self._is_stuck = False

    @property
    def open(self) -> int:
        """Return how many sequences are unfinished, waiting or running."""
        return len(self._open)

    @property
    def is_stuck(self) -> bool:
        """Return whether a fault has stopped the steps."""
        return self._is_stuck

    def next_number(self) -> int:
        """Return a new sequence's number."""
        self._numbers += 1
        return self._numbers

    def now(self) -> float:
        """Return the clock that sequences are timed by, in seconds."""
        # Not the loop's own: uvloop's counts whole milliseconds.
        return self._clock.monotonic_s()

    def submit(self, sequences: Iterable[Sequence]) -> None:
        """Queue sequences; the step that takes them begins as soon as the running one has ended."""
        now = self.now()
        for sequence in sequences:
            sequence.queued_s = now
            self.scheduler.add(sequence)
            self._open.add(sequence)
        self._wake()

    def withdraw(self, sequences: Iterable[Sequence]) -> None:
        """Drop sequences that nobody waits for any more; finished ones are no matter."""
        for sequence in sequences:
            self.scheduler.abort(sequence)
            self._open.discard(sequence)

    def get_stuck(self) -> None:
        """Stop stepping: a fault."""
        self._is_stuck = True
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def get_going(self) -> None:
        """Step again."""
        self._is_stuck = False
        if self._open:
            self._wake()

    def _wake(self) -> None:
        if self._next is None and not self._is_stuck:
            self._due_s = self.now()
            # Not at once: what else this turn of the loop reads from its sockets joins the same step.
            self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now = self.now()
        self.lag_s = max(0.0, now - self._due_s)
        if self.lag_s > CATCH_UP_S:
            self.written_off_s += self.lag_s - CATCH_UP_S
            self._due_s = now - CATCH_UP_S
        self._next = None
        result = self.scheduler.step(now)
        if result.duration_s is not None:
            self.steps += 1
            self._due_s += result.duration_s
            self._next = self._loop.call_later(max(0.0, self._due_s - self.now()), self._turn)
        self.metrics.stepped(result)
        for sequence in result.sampled:
            if sequence.status is SequenceStatus.FINISHED:
                self._open.discard(sequence)
            if sequence.sink is not None:
                sequence.sink.on_token(sequence)
        self.open_at_last_step = len(self._open)
