"""Rows of a CSV or CSV.gz, read one at a time and strictly: every error names the file and the line."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from typing import TYPE_CHECKING, TextIO

from fleetctl.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def read_csv_rows(
    path: Path, columns: tuple[str, ...], *, what: str, others: str = ""
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield of every row where it stands (FILE:LINE) and its cells by column, stripped.

    `columns` must be there, more may be; `what` names such a file in errors, `others` says what else may be read. Raises ConfigError, NotFoundError.
    """
    if not path.is_file():
        raise NotFoundError(f"no {what} at {path}", hint=f"it is a CSV or CSV.gz of {','.join(columns)}")
    with open_csv(path) as stream:
        try:
            yield from _rows(stream, path, columns, others)
        except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
            raise ConfigError(f"{path}: cannot be read as CSV: {error}") from error


def number_from_zero(text: str, column: str, where: str) -> float:
    """Return the number in a cell. Raises ConfigError unless it is finite and at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ConfigError(f"{where}: {column} {text!r} is no number from 0 on")
    return value


def open_csv(path: Path) -> TextIO:
    """Return the text of a CSV or CSV.gz."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")  # a spreadsheet's export begins with a mark


def _rows(stream: TextIO, path: Path, columns: tuple[str, ...], others: str) -> Iterator[tuple[str, dict[str, str]]]:
    reader = csv.DictReader(stream)
    missing = [column for column in columns if column not in (reader.fieldnames or [])]
    if missing:
        known = f" ({others})" if others else ""
        hint = f"the first line must name {', '.join(columns)}"
        raise ConfigError(f"{path}:1: no column {', '.join(missing)}{known}", hint=hint)
    for cells in reader:
        where = f"{path}:{reader.line_num}"
        if None in cells or None in cells.values():
            raise ConfigError(f"{where}: has another number of cells than the first line")
        yield where, {column: cell.strip() for column, cell in cells.items()}
