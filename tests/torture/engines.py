"""The engines of a run: healthy a while after their node runs, and at times neither healthy nor able to complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.errors import UnavailableError
from tests.torture.faults import FaultKind

if TYPE_CHECKING:
    from fleetctl.testing.clocks import LoopClock
    from tests.torture.cloud import TortureCloud
    from tests.torture.faults import Injector

_PAGE = "running 1\nwaiting 0\nkv_usage 0.1"
_WARM_S = 0.5
BAD_FLAG = "--bad"
_NEVER_S = 1e5


class TortureEngines:
    """Implements EngineClient over the cloud's nodes."""

    def __init__(self, cloud: TortureCloud, clock: LoopClock, injector: Injector) -> None:
        self._cloud = cloud
        self._clock = clock
        self._injector = injector
        self._warm: set[str] = set()  # hosts that have completed something
        self._failed_s: dict[str, float] = {}  # host -> when it last failed

    def is_warm(self, host: str) -> bool:
        """Whether the engine of this host has completed a request."""
        return host in self._warm

    def is_unwell(self, host: str) -> bool:
        """Whether it has failed lately, or its node does not run."""
        return not self._cloud.runs(host) or self._clock.monotonic_s() - self._failed_s.get(host, -1e9) < 90.0

    async def is_healthy(self, host: str, port: int, path: str) -> bool:
        del port, path
        self._must_run(host)
        if BAD_FLAG in self._cloud.wants(host) or self._is_struck(FaultKind.UNHEALTHY, host):
            self._failed_s[host] = self._clock.monotonic_s()
            return False
        return True

    async def get(self, host: str, port: int, path: str) -> str:
        del port, path
        self._must_run(host)
        return _PAGE

    async def complete(self, host: str, port: int, path: str, body: bytes) -> None:
        del port, path, body
        await self._clock.sleep(_NEVER_S if self._is_struck(FaultKind.HUNG_COMPLETION, host) else _WARM_S)
        if self._is_struck(FaultKind.NO_COMPLETION, host):
            self._failed_s[host] = self._clock.monotonic_s()
            raise UnavailableError(f"{host} completes nothing")
        self._must_run(host)
        self._warm.add(host)

    def _is_struck(self, kind: FaultKind, host: str) -> bool:
        """Whether a window of this kind is open and about this host: about half of them, always the same."""
        fault = self._injector.strikes(kind)
        is_it = fault is not None and (int(host.rpartition(".")[2]) + fault.draw) % 2 == 0
        if is_it:
            self._failed_s[host] = self._clock.monotonic_s()
        return is_it

    def _must_run(self, host: str) -> None:
        if not self._cloud.runs(host):
            raise UnavailableError(f"nobody listens on {host}")
