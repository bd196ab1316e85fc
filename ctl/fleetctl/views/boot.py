"""How far a start has come, phase by phase, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.boot_phases import phase_times_s
from fleetctl.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from fleetctl.model.node import BootProgress
    from fleetctl.model.status import FleetStatus, ReplicaStatus

_SHOWN_MAX = 8  # a fleet of 60 that starts has 60 of the same


def start_text(replica: ReplicaStatus, now: datetime) -> str:
    """Return which phase a start is in, how far and for how long: "image 40 % for 1m10s"; empty: nothing is known."""
    text = phase_text(replica)
    if not text or not replica.boot_steps:
        return text
    phase = replica.boot_steps[-1].phase
    taken = dict(phase_times_s(replica.boot_steps, until=now))[phase]
    return f"{text} for {_seconds(taken)}"


def phase_text(replica: ReplicaStatus, *, is_coarse: bool = False) -> str:
    """Return which phase a start is in and how far; empty: it has started, or nothing is known."""
    if replica.record.ready_at is not None or not replica.record.state.is_live:
        return ""
    phase = replica.boot_steps[-1].phase if replica.boot_steps else ""
    if replica.boot is not None and phase in ("", replica.boot.phase):
        return coarse_boot_text(replica.boot) if is_coarse else boot_text(replica.boot)
    return phase


def phases_text(replica: ReplicaStatus, now: datetime) -> str:
    """Return what each phase of a start took: "ordered 2s, image 2m10s, loading 40s so far"; empty: none is known."""
    ready_at = replica.record.ready_at
    times = phase_times_s(replica.boot_steps, until=ready_at or now)
    shown = ", ".join(f"{phase} {_seconds(taken)}" for phase, taken in times)
    if not times or ready_at is not None:
        return shown
    return f"{shown} so far"


def start_lines(status: FleetStatus) -> Iterator[str]:
    """Yield what each replica that starts has gone through, and what takes longer than usual."""
    starting = [r for r in status.replicas if r.boot_steps and r.record.state.is_live and r.record.ready_at is None]
    width = max((len(r.record.id) for r in starting), default=0)
    for replica in starting[:_SHOWN_MAX]:
        yield f"{replica.record.id:<{width}}  {phases_text(replica, status.at)}"
        if replica.boot_concern:
            yield f"{'':<{width}}  {replica.boot_concern}"
    late = [r for r in starting[_SHOWN_MAX:] if r.boot_concern]
    if len(starting) > _SHOWN_MAX:
        yield f"and {len(starting) - _SHOWN_MAX} more" + (f", {len(late)} of them late" if late else "")


def concerns(replicas: Iterable[ReplicaStatus]) -> Iterator[str]:
    """Yield what takes longer than usual, once a replica and phase."""
    for replica in replicas:
        if replica.boot_concern:
            yield f"{replica.record.id}: {replica.boot_concern}"


def _seconds(taken_s: float) -> str:
    return format_duration(float(round(taken_s)))


def boot_text(boot: BootProgress) -> str:
    """Return "image 40 %", or of a download "weights 3.2GiB of 15.3GiB, 110MiB/s, 2m left"."""
    if not boot.done_bytes:
        return boot.phase if boot.fraction is None else f"{boot.phase} {boot.fraction * 100:.0f} %"
    parts = [f"{boot.phase} {format_bytes(boot.done_bytes)}"]
    if boot.total_bytes:
        parts[0] += f" of {format_bytes(boot.total_bytes)}"
    if boot.bytes_per_s:
        parts.append(f"{format_bytes(boot.bytes_per_s)}/s")
    left_bytes = boot.total_bytes - boot.done_bytes
    if boot.bytes_per_s and left_bytes > 0:
        parts.append(f"{format_duration(float(round(left_bytes / boot.bytes_per_s)))} left")
    return ", ".join(parts)


def coarse_boot_text(boot: BootProgress) -> str:
    """Return the same in steps of a tenth, for readers who get each change as a line."""
    if not boot.done_bytes:
        return boot_text(boot)
    total = f" of {format_bytes(boot.total_bytes)}" if boot.total_bytes else ""
    tenths = "" if boot.fraction is None else f" {int(boot.fraction * 10) * 10} %"
    return f"{boot.phase}{tenths}{total}"
