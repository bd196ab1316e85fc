"""Spot availability traces: CSV or CSV.gz, read row by row and strictly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.config.csv_rows import number_from_zero, read_csv_rows
from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = ("t_s", "zone", "available")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRow:
    """From `at_s` on a zone has this many spot nodes for us."""

    at_s: float
    zone: str
    available: int


def read_spot_rows(path: Path) -> tuple[SpotRow, ...]:
    """Return the changes of a trace with the columns t_s, zone, available, in order of time.

    Raises ConfigError naming file and line, NotFoundError.
    """
    rows = [
        SpotRow(
            at_s=number_from_zero(cells["t_s"], "t_s", where),
            zone=cells["zone"],
            available=int(number_from_zero(cells["available"], "available", where)),
        )
        for where, cells in read_csv_rows(path, _COLUMNS, what="spot trace")
    ]
    if not rows:
        raise ConfigError(f"{path}: holds no rows")
    return tuple(sorted(rows, key=lambda row: row.at_s))
