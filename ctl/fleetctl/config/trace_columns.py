"""A whole trace as columns: read once, by the CSV reader's own loops, for those who need all of it at once.

Half a million rows are a second of computing, where one row at a time they are five. What is wrong in a trace is found by
`trace.read_rows`, which names its line: whatever is not plain here is read by it.
"""

from __future__ import annotations

import csv
import zlib
from array import array
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice, repeat
from operator import gt
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from fleetctl.config.csv_rows import open_csv
from fleetctl.config.trace import TOKENS_MAX, TraceRow, parse_name, parse_truth, read_rows
from fleetctl.config.trace_formats import CACHED, REQUIRED
from fleetctl.core.busiest import busiest_rps
from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

_BATCH = 1 << 15  # rows that are held as texts
_MARKS = ("model", "lane", "stream", "batch")
_BY_ROW = ("workflow", "after")  # columns whose rows are linked to each other, and checked one by one


class TraceMark(NamedTuple):
    """What rows say of themselves beside their lengths; many are alike."""

    model: str = ""
    lane: str = ""
    stream: bool | None = None
    batch: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceColumns:
    """The rows of a trace, in order; nobody changes them."""

    arrival_s: array[float]
    prompt_tokens: array[int]
    output_tokens: array[int]
    cached_tokens: array[int]  # of the prompt, shared with earlier requests; empty: the trace does not tell
    marks: tuple[TraceMark, ...]  # those that there are
    mark_of: array[int]  # each row's place among them
    peak_rps: float  # in the busiest minute; 0: there are none


class _NotPlainError(Exception):
    """A row is read by itself: its text says more than columns hold, or is wrong."""


def read_columns(path: Path, *, models: Collection[str] = ()) -> TraceColumns:
    """Return the whole trace; of `models`, where there are any, each row's must be one. The last one is kept, as long as its file is the same.

    Raises ConfigError naming file and line, NotFoundError.
    """
    try:
        found = path.stat()
    except OSError:
        return _by_row(path)  # which says what there is in its place
    columns = _kept(_TraceFile((found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns), path))
    if models and any(mark.model and mark.model not in models for mark in columns.marks):
        for _ in read_rows(path, models=models):  # raises at the row that names another
            pass
    return columns


@dataclass(frozen=True, slots=True)
class _TraceFile:
    """A file as it was found: the same one by whatever path, and another one once it is changed."""

    identity: tuple[int, int, int, int]
    path: Path = field(compare=False)


@lru_cache(maxsize=1)
def _kept(found: _TraceFile) -> TraceColumns:
    try:
        return _plain(found.path)
    except (_NotPlainError, ValueError, OverflowError, OSError, EOFError, zlib.error, csv.Error, ConfigError):
        return _by_row(found.path)


def _plain(path: Path) -> TraceColumns:
    """Return the trace column by column. Raises for whatever is not plainly right."""
    arrival_s, prompts, outputs, cached, mark_of = array("d"), array("q"), array("q"), array("q"), array("l")
    marks: dict[tuple[str, ...], int] = {}
    with open_csv(path) as stream:
        names = next(csv.reader(stream), [])
        if set(names) & set(_BY_ROW) or not set(names).issuperset(REQUIRED) or len(set(names)) < len(names):
            raise _NotPlainError
        place = {name: number for number, name in enumerate(names)}
        marked = [place[name] for name in _MARKS if name in place]
        for columns in _batches(stream, len(names)):
            arrival_s.extend(map(float, columns[place["arrival_s"]]))
            prompts.extend(_tokens(columns[place["prompt_tokens"]], at_least=1))
            outputs.extend(_tokens(columns[place["output_tokens"]], at_least=0))
            if CACHED in place:
                cached.extend(_tokens([text.strip() or "0" for text in columns[place[CACHED]]], at_least=0))
            for name in {"client", "tier"} & place.keys():
                for text in set(columns[place[name]]):
                    parse_name(text.strip(), name, "")
            if marked:
                cells = [columns[number] for number in marked]
                for each in dict.fromkeys(zip(*cells, strict=True)):
                    marks.setdefault(each, len(marks))
                mark_of.extend(map(marks.__getitem__, zip(*cells, strict=True)))
    _check_times(arrival_s)
    found = [_mark({names[number]: text.strip() for number, text in zip(marked, each, strict=True)}) for each in marks]
    return TraceColumns(
        arrival_s=arrival_s,
        prompt_tokens=prompts,
        output_tokens=outputs,
        cached_tokens=cached,
        marks=tuple(found) if marked else (TraceMark(),),
        mark_of=mark_of if marked else array("l", bytes(mark_of.itemsize * len(arrival_s))),
        peak_rps=busiest_rps(arrival_s) if arrival_s else 0.0,
    )


def _batches(stream: TextIO, width: int) -> Iterator[Sequence[Sequence[str]]]:
    """Yield the columns of many rows at a time. Raises for a row of another number of cells.

    Without a quote in it, a row's cells are what lies between its commas: all of them are parted at once, in a third of the time
    that the CSV reader takes. It reads the rest of a trace from where there is a quote.
    """
    while lines := list(islice(stream, _BATCH)):
        text = "".join(lines)
        if '"' in text or "\r" in text:
            yield from _quoted_batches(chain(lines, stream), width)
            return
        rows = list(filter(None, text.split("\n")))  # as the other reader has it, blank lines are none
        if set(map(str.count, rows, repeat(","))) - {width - 1}:
            raise _NotPlainError
        cells = ",".join(rows).split(",")
        if rows:
            yield [cells[number::width] for number in range(width)]


def _quoted_batches(lines: Iterable[str], width: int) -> Iterator[Sequence[Sequence[str]]]:
    reader = csv.reader(lines)
    while rows := list(islice(reader, _BATCH)):
        rows = [row for row in rows if row]
        if set(map(len, rows)) - {width}:
            raise _NotPlainError
        if rows:
            yield list(zip(*rows, strict=True))


def _tokens(texts: Sequence[str], *, at_least: int) -> list[int]:
    try:
        found = list(map(int, texts))
    except ValueError:
        numbers = list(map(float, texts))
        found = list(map(int, numbers))
        if found != numbers:
            raise _NotPlainError from None
    if min(found) < at_least or max(found) > TOKENS_MAX:
        raise _NotPlainError
    return found


def _check_times(arrival_s: array[float]) -> None:
    # A NaN is neither more nor less than its neighbours, and makes the sum one.
    is_finite = sum(arrival_s) < float("inf")
    if not is_finite or (arrival_s and arrival_s[0] < 0) or any(map(gt, arrival_s, islice(arrival_s, 1, None))):
        raise _NotPlainError


def _mark(cells: Mapping[str, str]) -> TraceMark:
    return TraceMark(
        model=parse_name(cells.get("model", ""), "model", ""),
        lane=cells.get("lane", ""),
        stream=parse_truth(cells.get("stream", ""), "stream", ""),
        batch=parse_truth(cells.get("batch", ""), "batch", ""),
    )


def _by_row(path: Path) -> TraceColumns:
    return columns_of(read_rows(path))


def columns_of(rows: Iterable[TraceRow]) -> TraceColumns:
    """Return rows that were read one by one as columns."""
    arrival_s, prompts, outputs, cached, mark_of = array("d"), array("q"), array("q"), array("q"), array("l")
    marks: dict[TraceMark, int] = {}
    for row in rows:
        arrival_s.append(row.arrival_s)
        prompts.append(row.prompt_tokens)
        outputs.append(row.output_tokens)
        if row.cached_prefix_tokens is not None:  # it is so of all rows of a trace, or of none
            cached.append(row.cached_prefix_tokens)
        mark_of.append(marks.setdefault(TraceMark(row.model, row.lane or "", row.stream, row.batch), len(marks)))
    return TraceColumns(
        arrival_s=arrival_s,
        prompt_tokens=prompts,
        output_tokens=outputs,
        cached_tokens=cached,
        marks=tuple(marks),
        mark_of=mark_of,
        peak_rps=busiest_rps(arrival_s) if arrival_s else 0.0,
    )
