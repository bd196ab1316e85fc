"""The gateway of a run, as its controller sees it: tables by epoch and version, snapshots, deaths and silences."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from fleetctl.codec import decode
from fleetctl.errors import UnavailableError
from fleetctl.model.gateway import GatewaySnapshot, LaneSnapshot, LaneWindow, ReplicaSnapshot, RoutingTable
from fleetctl.model.slo import Quantiles
from fleetctl.testing.samples import EPOCH
from tests.torture.faults import FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fleetctl.model.desired import Desired
    from fleetctl.model.gateway import SignalFeed
    from fleetctl.model.slo_feed import SloFeed
    from fleetctl.ports.runtime import Stall
    from fleetctl.testing.clocks import LoopClock
    from tests.torture.faults import Injector

_START_S = 0.5
_WINDOWS_S = (10.0, 60.0, 300.0, 3600.0)
# What was in flight when a replica left rotation has finished after this.
_FINISHED_S = 3.0
_PID = 4242


class TortureGateway:
    """Implements GatewayClient and GatewayHost. `on_table` is told of every table it takes."""

    def __init__(self, clock: LoopClock, injector: Injector, table_file: Path) -> None:
        self._clock = clock
        self._injector = injector
        self._table_file = table_file
        self._up_at_s: float | None = None
        self._out_since_s: dict[str, float] = {}
        self._on_exit: Callable[[], None] | None = None
        self.table: RoutingTable | None = None
        self.load: dict[str, float] = {}  # lane -> requests per second
        self.on_table: Callable[[RoutingTable], None] = lambda _table: None
        self.answering_since_s: float | None = None
        self.lanes: tuple[str, ...] = ()

    @property
    def answers(self) -> bool:
        """Whether it would answer now."""
        up_at_s = self._up_at_s
        is_up = up_at_s is not None and self._clock.monotonic_s() >= up_at_s
        return is_up and not self._injector.is_open(FaultKind.GATEWAY_SILENT)

    def in_rotation(self) -> set[str]:
        """Return the replicas that get new requests."""
        return {r.id for r in self.table.replicas if r.in_rotation} if self.table is not None else set()

    def kill(self) -> None:
        """Let its process end."""
        self._up_at_s, self.table = None, None
        if self._on_exit is not None:
            self._on_exit()

    # GatewayHost

    def numbered(self, number: int) -> TortureGateway:
        assert number == 1
        return self

    def living(self) -> tuple[int, ...]:
        return (1,) if self.is_alive() else ()

    def watch(self, on_exit: Callable[[], None]) -> None:
        self._on_exit = on_exit if self.is_alive() else None

    def is_alive(self) -> bool:
        return self._up_at_s is not None

    def stall(self) -> Stall | None:
        return None

    def is_beating(self) -> bool:
        return True

    def lost_s(self) -> float:
        return 0.0

    def start(self, desired: Desired) -> int:
        if self.is_alive():
            raise UnavailableError("a gateway holds the lock")
        self.lanes = tuple(spec.name for spec in desired.profile.lanes)
        self._up_at_s = self._clock.monotonic_s() + _START_S
        self._take(self._read())
        return _PID

    async def stop(self, *, within_s: float) -> None:
        await self._clock.sleep(min(1.0, within_s))
        self.kill()

    def release_port(self) -> bool:
        return False

    # GatewayClient

    async def snapshot(self) -> GatewaySnapshot:
        self._must_answer()
        table = self.table
        return GatewaySnapshot(
            fleet="demo",
            at=self._clock.now(),
            started_at=EPOCH + timedelta(seconds=self._up_at_s or 0.0),
            table_version=table.version if table else 0,
            table_generation=table.generation if table else 0,
            pid=_PID,
            lanes=tuple(self._lane(route.name) for route in table.lanes) if table else (),
            replicas=tuple(
                ReplicaSnapshot(id=route.id, in_flight=int(self._is_busy(route.id)), failures=0, consecutive_failures=0)
                for route in (table.replicas if table else ())
            ),
        )

    async def put_table(self, table: RoutingTable) -> int:
        self._must_answer()
        if self.table is not None and table.order <= self.table.order:
            return self.table.version
        self._take(table)
        if self._injector.strikes(FaultKind.GATEWAY_LOSES_REPLY):
            raise UnavailableError("the gateway's answer was lost")
        return table.version

    async def put_signals(self, feed: SignalFeed) -> None:
        del feed
        self._must_answer()

    async def put_slo(self, feed: SloFeed) -> None:
        del feed
        self._must_answer()

    def _take(self, table: RoutingTable | None) -> None:
        if table is None:
            return
        self.table = table
        now_s, there = self._clock.monotonic_s(), self.in_rotation()
        self._out_since_s = {r.id: self._out_since_s.get(r.id, now_s) for r in table.replicas if r.id not in there}
        self.on_table(table)

    def _read(self) -> RoutingTable | None:
        try:
            return decode(RoutingTable, self._table_file.read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _is_busy(self, replica_id: str) -> bool:
        since_s = self._out_since_s.get(replica_id)
        return since_s is None or self._clock.monotonic_s() - since_s < _FINISHED_S

    def _lane(self, name: str) -> LaneSnapshot:
        """Return figures that get worse as load nears what the lane's replicas in rotation carry, 1 rps each."""
        load = self.load.get(name, 0.5)
        ready = sum(r.lane == name and r.in_rotation for r in self.table.replicas) if self.table else 0
        crowding = load / ready if ready else 2.5
        ttft_s = 0.1 if crowding <= 1 else 0.3 * crowding
        quantiles = Quantiles(count=200, p50_s=ttft_s / 2, p95_s=ttft_s, p99_s=ttft_s, max_s=ttft_s)
        windows = tuple(
            LaneWindow(seconds=s, offered=round(load * s), good=100, finished=100, ttft=quantiles) for s in _WINDOWS_S
        )
        return LaneSnapshot(name=name, in_flight=0, queued=0, oldest_wait_s=0.0, windows=windows)

    def _must_answer(self) -> None:
        if not self.answers:
            raise UnavailableError("the gateway does not answer")
