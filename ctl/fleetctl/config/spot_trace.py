"""Spot availability traces: CSV or CSV.gz, read row by row and strictly."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from fleetctl.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator
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
    if not path.is_file():
        raise NotFoundError(f"no spot trace at {path}", hint=f"it is a CSV or CSV.gz of {','.join(_COLUMNS)}")
    with _open_text(path) as stream:
        try:
            rows = tuple(_parse(stream, path))
        except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
            raise ConfigError(f"{path}: cannot be read as CSV: {error}") from error
    if not rows:
        raise ConfigError(f"{path}: holds no rows")
    return tuple(sorted(rows, key=lambda row: row.at_s))


def _open_text(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _parse(stream: TextIO, path: Path) -> Iterator[SpotRow]:
    reader = csv.DictReader(stream)
    missing = [column for column in _COLUMNS if column not in (reader.fieldnames or [])]
    if missing:
        raise ConfigError(
            f"{path}:1: no column {', '.join(missing)}", hint=f"the first line names {','.join(_COLUMNS)}"
        )
    for cells in reader:
        where = f"{path}:{reader.line_num}"
        if None in cells or None in cells.values():
            raise ConfigError(f"{where}: has another number of cells than the first line")
        at_s, available = _number(cells["t_s"], "t_s", where), _number(cells["available"], "available", where)
        yield SpotRow(at_s=at_s, zone=cells["zone"].strip(), available=int(available))


def _number(text: str, column: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ConfigError(f"{where}: {column} {text!r} is no number from 0 on")
    return value
