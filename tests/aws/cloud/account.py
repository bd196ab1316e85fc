"""What the cloud keeps of one run of its server beside moto's own backends."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends

from fleetctl.clock import SYSTEM_CLOCK
from tests.aws.cloud.capacity import CapacityModel
from tests.aws.cloud.fair_lock import FairLock

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCOUNT = DEFAULT_ACCOUNT_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """What was seen as an instance was launched."""

    region: str
    instance: Any  # moto's Instance
    launched_s: float  # of the monotonic clock
    token: str
    seen_from_s: float  # no listing shows it before


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUse:
    """What a ClientToken was used for first: the parameters and the response to repeat."""

    digest: str
    result: Any
    instance_ids: tuple[str, ...]


@dataclass
class CloudAccount:
    """One account: the behaviour a test has set, and what was launched. All of it is under `lock`."""

    lag_s: float = 0.0  # how long a new instance is unseen in listings
    pending_s: float = 0.0  # how long a new instance is pending; one that boots is until it has booted
    ending_s: float = 0.0  # how long a terminated instance is shutting-down
    capacity: CapacityModel = field(default_factory=CapacityModel)
    launches: dict[str, LaunchRecord] = field(default_factory=dict)  # by instance id
    tokens: dict[tuple[str, str, str, str], TokenUse] = field(default_factory=dict)  # action, region, zone, token
    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)  # state changes to come
    on_launch: list[Callable[[LaunchRecord], None]] = field(default_factory=list)
    on_state: list[Callable[[LaunchRecord, str], None]] = field(default_factory=list)
    machine_ends: Callable[[LaunchRecord], bool] | None = None  # begins a machine's end; False: it has none
    lock: FairLock = field(default_factory=FairLock)

    def now_s(self) -> float:
        return SYSTEM_CLOCK.monotonic_s()

    def after(self, seconds: float, change: Callable[[], None]) -> None:
        """Make a change when it is due; at once where that is now."""
        if seconds <= 0:
            change()
        else:
            self.due.append((self.now_s() + seconds, change))

    def advance(self) -> None:
        """Make the changes that are due."""
        with self.lock:
            now_s = self.now_s()
            ready = sorted((each for each in self.due if each[0] <= now_s), key=lambda each: each[0])
            self.due = [each for each in self.due if each[0] > now_s]
            for _, change in ready:
                try:
                    change()
                except Exception:  # noqa: BLE001  # one that fails must not keep the others from their turn
                    traceback.print_exc()

    def record(self, region: str, instance: Any, *, token: str) -> LaunchRecord:
        now_s = self.now_s()
        record = LaunchRecord(
            region=region, instance=instance, launched_s=now_s, token=token, seen_from_s=now_s + self.lag_s
        )
        self.launches[instance.id] = record
        self.set_state(record, "pending", 0)
        for observe in self.on_launch:
            observe(record)
        if not self.on_launch:
            self.after(self.pending_s, lambda: self.started(record))
        return record

    def started(self, record: LaunchRecord) -> None:
        """Say that an instance runs, unless it has been ended meanwhile."""
        with self.lock:
            if record.instance.state == "pending":
                self.set_state(record, "running", 16)

    def set_state(self, record: LaunchRecord, name: str, code: int) -> None:
        record.instance._state.name = name
        record.instance._state.code = code
        for observe in self.on_state:
            observe(record, name)

    def hidden(self) -> set[str]:
        """Return the instances that no listing shows yet."""
        now_s = self.now_s()
        return {each.instance.id for each in self.launches.values() if each.seen_from_s > now_s}

    def instances(self, region: str) -> Iterator[Any]:
        for reservation in list(ec2_backends[ACCOUNT][region].reservations.values()):
            yield from reservation.instances

    def end(self, record: LaunchRecord, *, code: str, message: str, transition: str) -> None:
        """End an instance for a reason; one that is ending already keeps its first."""
        with self.lock:
            instance = record.instance
            if instance.state not in ("pending", "running", "stopped"):
                return
            instance.terminate()
            instance.state_reason.code = code
            instance.state_reason.message = f"{code}: {message}"
            instance._reason = transition
            self.set_state(record, "shutting-down", 32)
            if self.machine_ends is None or not self.machine_ends(record):
                self.after(self.ending_s, lambda: self.ended(record))

    def ended(self, record: LaunchRecord) -> None:
        """Say that nothing of an instance is left."""
        with self.lock:
            if record.instance.state != "terminated":
                self.set_state(record, "terminated", 48)
