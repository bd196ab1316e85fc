"""The faults that are in force, and what they do now."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from fleetctl_emulator.faults import STREAM_BREAKS, InjectedFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleetctl_emulator.engine_core import EngineCore
    from fleetctl_emulator.timing import StepTimer

# What a shell reports of a process that a segmentation fault ended.
_CRASH_STATUS = 128 + 11


class FaultInjector:
    """Holds the faults in force; each kind once, the latest counts."""

    def __init__(self, engine: EngineCore, timer: StepTimer) -> None:
        self._engine, self._timer = engine, timer
        self._faults: dict[str, InjectedFault] = {}
        self._unhung = asyncio.Event()
        self._unhung.set()
        self._crash: asyncio.TimerHandle | None = None
        self._requests_to_crash = 0
        self._frozen_page: str | None = None
        self._watchers: list[Callable[[], None]] = []

    def __contains__(self, kind: str) -> bool:
        return kind in self._faults

    def __str__(self) -> str:
        return ", ".join(str(fault) for fault in self._faults.values()) or "none"

    @property
    def in_force(self) -> tuple[InjectedFault, ...]:
        """Return every fault in force, oldest first."""
        return tuple(self._faults.values())

    @property
    def refuses_connections(self) -> bool:
        """Return whether the port is to be closed."""
        return "refuse" in self._faults and self._faults["refuse"].spelling == "connect"

    def watch(self, changed: Callable[[], None]) -> None:
        """Have `changed` called whenever the faults in force change."""
        self._watchers.append(changed)

    def put(self, faults: Iterable[InjectedFault]) -> None:
        """Put faults in force."""
        for fault in faults:
            self._faults[fault.kind] = fault
            if fault.kind == "crash":
                self._arm(fault)
        self._apply()

    def clear(self, kind: str = "") -> None:
        """End one kind of fault, or all."""
        for name in [kind] if kind else list(self._faults):
            self._faults.pop(name, None)
        if "crash" not in self._faults:
            self._disarm()
        self._apply()

    async def until_answered(self) -> None:
        """Wait while the fault `hang` is in force; the client's patience is the deadline."""
        await self._unhung.wait()

    def count_request(self) -> None:
        """Count an inference request: one of them may be the one that crashes."""
        if self._requests_to_crash:
            self._requests_to_crash -= 1
            if not self._requests_to_crash:
                _die()

    def metrics(self, write: Callable[[bool], str]) -> str:
        """Return the metrics page that the faults allow; `write` takes whether figures are NaN."""
        if "frozen-metrics" in self._faults:
            if self._frozen_page is None:
                self._frozen_page = write("nan-metrics" in self._faults)
            return self._frozen_page
        self._frozen_page = None
        return write("nan-metrics" in self._faults)

    def break_at(self, *, is_stream: bool) -> int:
        """Return the first token at which a response's faults must be looked at; 0: never."""
        return min((int(fault.value) or 1 for fault in self._breaks(is_stream=is_stream)), default=0)

    def breaks_due(self, generated: int, *, is_stream: bool) -> frozenset[str]:
        """Return the kinds that strike a response with so many tokens."""
        return frozenset(f.kind for f in self._breaks(is_stream=is_stream) if generated >= (int(f.value) or 1))

    def _breaks(self, *, is_stream: bool) -> Iterable[InjectedFault]:
        for kind in STREAM_BREAKS if is_stream else ("fail-generation", "hang-mid-stream"):
            if kind in self._faults:
                yield self._faults[kind]

    def _apply(self) -> None:
        self._timer.slowdown = self._faults["slow"].value if "slow" in self._faults else 1.0
        if "hang" in self._faults:
            self._unhung.clear()
        else:
            self._unhung.set()
        if self._engine.is_stuck and "hang-mid-stream" not in self._faults:
            self._engine.get_going()
        for changed in self._watchers:
            changed()

    def _arm(self, fault: InjectedFault) -> None:
        self._disarm()
        if fault.spelling == "after_requests" and fault.value >= 1:
            self._requests_to_crash = int(fault.value)
        else:
            self._crash = asyncio.get_running_loop().call_later(fault.value, _die)

    def _disarm(self) -> None:
        self._requests_to_crash = 0
        if self._crash is not None:
            self._crash.cancel()
            self._crash = None


def _die() -> None:
    os._exit(_CRASH_STATUS)
