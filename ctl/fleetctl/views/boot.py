"""How far a start has come, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.units import format_bytes, format_duration

if TYPE_CHECKING:
    from fleetctl.model.node import BootProgress


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
