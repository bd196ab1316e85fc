"""Published request traces, read as they are: each row becomes one with this project's columns.

| format | source | columns |
|---|---|---|
| Azure LLM inference, 2023 and 2024 | github.com/Azure/AzurePublicDataset | TIMESTAMP (date and time), ContextTokens, GeneratedTokens |
| BurstGPT | github.com/HPMLL/BurstGPT | Timestamp (s), Request tokens, Response tokens |
| Mooncake, JSON a line | github.com/kvcache-ai/Mooncake | timestamp (ms), input_length, output_length, hash_ids of 512 tokens |
| Qwen-Bailian, JSON a line | github.com/alibaba-edu/qwen-bailian-usagetraces-anon | the same, timestamp in s, hash_ids of 16 tokens, chat_id |

Times are told from the first row on. A JSON a line with this project's own names is read too.
"""

from __future__ import annotations

import json
import math
import zlib
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fleetctl.config.csv_rows import number_from_zero, open_csv, read_csv_rows
from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Cells = dict[str, str]
    Rows = Iterator[tuple[str, Cells]]

REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
CACHED = "cached_prefix_tokens_inf"  # the column; a trace without it does not tell what is cached
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_BURSTGPT = ("Timestamp", "Request tokens", "Response tokens")
_LENGTHS = ("timestamp", "input_length", "output_length")
_OTHERS = "traces of Azure, BurstGPT, Mooncake and Qwen-Bailian are read as they are published"
_MOONCAKE_BLOCK, _QWEN_BLOCK = 512, 16  # tokens that one of hash_ids stands for
_BLOCKS_MAX = 4_000_000  # blocks that are remembered; what comes for the first time after these counts as never cached
_LINE_CHARS_MAX = 8_000_000


def read_trace_rows(path: Path) -> Rows:
    """Yield of every row where it stands (FILE:LINE) and its cells by this project's columns. Raises ConfigError, NotFoundError."""
    first = _first_line(path)
    if first.startswith("{"):
        return _json_rows(path)
    names = {name.strip() for name in first.split(",")}
    if not names.issuperset(REQUIRED):
        if names.issuperset(_AZURE):
            return _renamed(path, _AZURE, _DateTimes())
        if names.issuperset(_BURSTGPT):
            return _renamed(path, _BURSTGPT, _Seconds(_BURSTGPT[0]))
    return read_csv_rows(path, REQUIRED, what="trace", others=_OTHERS)


def _first_line(path: Path) -> str:
    """Return the line that says what a file is; empty where it cannot be read, which is said by who reads it as a CSV."""
    try:
        with open_csv(path) as stream:
            return stream.readline(_LINE_CHARS_MAX).strip()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return ""


def _renamed(path: Path, columns: tuple[str, str, str], seconds: Callable[[str, str], float]) -> Rows:
    at, prompt, output = columns
    for where, cells in read_csv_rows(path, columns, what="trace"):
        arrival_s = seconds(cells[at], where)
        yield where, dict(zip(REQUIRED, (repr(arrival_s), cells[prompt], cells[output]), strict=True))


class _DateTimes:
    """Seconds since the first of several dates and times."""

    def __init__(self) -> None:
        self._first: datetime | None = None

    def __call__(self, text: str, where: str) -> float:
        try:
            at = datetime.fromisoformat(text)
            self._first = self._first or at
            return (at - self._first).total_seconds()
        except (ValueError, TypeError) as error:  # some have a zone, and some have none
            raise ConfigError(f"{where}: TIMESTAMP {text!r} is no date and time as those above it: {error}") from error


class _Seconds:
    """Seconds since the first of several numbers, each of so many a second."""

    def __init__(self, column: str, *, a_second: float = 1.0) -> None:
        self._column, self._a_second = column, a_second
        self._first: float | None = None

    def __call__(self, text: str, where: str) -> float:
        at = number_from_zero(text, self._column, where)
        self._first = at if self._first is None else self._first
        return (at - self._first) / self._a_second


def _json_rows(path: Path) -> Rows:
    """Yield the rows of a file with a JSON object a line."""
    to_cells: Callable[[dict[str, Any], str], Cells] | None = None
    try:
        with open_csv(path) as stream:
            for number, line in enumerate(stream, start=1):
                where = f"{path}:{number}"
                if not line.strip():
                    continue
                row = _object(line, where)
                to_cells = to_cells or _reader_of(row, where)
                yield where, to_cells(row, where)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON, a line a request: {error}") from error


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: is no JSON object")
    return row


def _reader_of(first: dict[str, Any], where: str) -> Callable[[dict[str, Any], str], Cells]:
    if all(name in first for name in REQUIRED):
        return _own_cells
    if all(name in first for name in _LENGTHS):
        return _LengthRows(is_qwen="chat_id" in first, has_blocks="hash_ids" in first)
    missing = ", ".join(name for name in REQUIRED if name not in first)
    raise ConfigError(f"{where}: no {missing} ({_OTHERS})", hint=f"each line must name {', '.join(REQUIRED)}")


def _own_cells(row: dict[str, Any], where: str) -> Cells:
    return {name: _text(row, name, where) for name in (*row, *(name for name in REQUIRED if name not in row))}


def _text(row: dict[str, Any], name: str, where: str) -> str:
    value = row.get(name)
    if isinstance(value, list | dict) or (value is None and name in (*REQUIRED, *_LENGTHS)):
        raise ConfigError(f"{where}: {name} {'is missing' if value is None else 'is no single value'}")
    return "" if value is None else str(value).strip()


class _LengthRows:
    """Lengths and the hashes of a prompt's blocks, each of which stands for itself and all before it: those seen are cached."""

    def __init__(self, *, is_qwen: bool, has_blocks: bool) -> None:
        self._seconds = _Seconds("timestamp", a_second=1.0 if is_qwen else 1000.0)
        self._block, self._has_blocks = _QWEN_BLOCK if is_qwen else _MOONCAKE_BLOCK, has_blocks
        self._seen: set[int] = set()

    def __call__(self, row: dict[str, Any], where: str) -> Cells:
        at, prompt, output = (_text(row, name, where) for name in _LENGTHS)
        cells = dict(zip(REQUIRED, (repr(self._seconds(at, where)), prompt, output), strict=True))
        if self._has_blocks:
            cached, group = self._cached(row.get("hash_ids"), where)
            # The last token is computed, whatever is cached.
            most = number_from_zero(prompt, "input_length", where) - 1
            cells |= {CACHED: str(max(0, math.floor(min(cached, most)))), "prefix_group": group}
        return cells

    def _cached(self, blocks: object, where: str) -> tuple[int, str]:
        if not isinstance(blocks, list) or not all(isinstance(each, int) for each in blocks):
            raise ConfigError(f"{where}: hash_ids is no list of whole numbers")
        seen = self._seen
        known = next((place for place, block in enumerate(blocks) if block not in seen), len(blocks))
        if len(seen) < _BLOCKS_MAX:
            seen.update(blocks[known:])
        return known * self._block, str(blocks[0]) if blocks else ""
