"""Request traces: CSV or JSON a line, also as .gz, read row by row and strictly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.config.call_rows import CallRow, call_row
from fleetctl.config.csv_rows import number_from_zero
from fleetctl.config.trace_formats import CACHED, read_trace_rows
from fleetctl.errors import ConfigError
from fleetctl.printable import printable
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

TOKENS_MAX = 100_000_000
_NAME_CHARS_MAX = 128  # it becomes a header, and a row's name


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One request of a trace. `lane`, `stream` and `batch` are None when the trace does not say."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    client: str = ""  # whose it is; empty: the trace does not say, as for the next
    tier: str = ""
    model: str = ""  # any name of a model's
    prefix_group: str = ""
    cached_prefix_tokens: int | None = None  # of the prompt, shared with earlier requests of the group; None: not said
    lane: str | None = None
    stream: bool | None = None
    batch: bool | None = None  # whether it carries the batch hint
    call: CallRow | None = None  # of a workflow


def read_rows(path: Path, *, tiers: Collection[str] = (), models: Collection[str] = ()) -> Iterator[TraceRow]:
    """Yield the rows in order, holding one at a time; of `tiers` and `models`, where there are any, each row's must be one.

    Raises ConfigError naming file and line, NotFoundError.
    """
    before_s = -math.inf
    for where, cells in read_trace_rows(path):
        row = _row(cells, where)
        if row.arrival_s < before_s:
            raise ConfigError(
                f"{where}: arrival_s {row.arrival_s:g} is before the row above ({before_s:g})",
                hint="sort the trace by arrival_s",
            )
        _check_known("tier", row.tier, tiers, where)
        _check_known("model", row.model, models, where)
        before_s = row.arrival_s
        yield row


def _check_known(what: str, name: str, known: Collection[str], where: str) -> None:
    if known and name and name not in known:
        raise ConfigError(f"{where}: no {what} {name!r}{suggest(name, known)}", hint=f"there are {', '.join(known)}")


def check_ends_by(path: Path, most_s: float, *, rule: str) -> None:
    """Raise ConfigError naming file and line of the first row that arrives later than `most_s`; `rule` says why it may not."""
    for where, cells in read_trace_rows(path):
        arrival_s = number_from_zero(cells["arrival_s"], "arrival_s", where)
        if arrival_s > most_s:
            raise ConfigError(
                f"{where}: arrival_s {arrival_s:g} is later than {most_s:g}: {rule}",
                hint="--offset and --duration choose a part of it",
            )


def _row(text: dict[str, str], where: str) -> TraceRow:
    return TraceRow(
        arrival_s=number_from_zero(text["arrival_s"], "arrival_s", where),
        prompt_tokens=_tokens(text["prompt_tokens"], "prompt_tokens", where, at_least=1),
        output_tokens=_tokens(text["output_tokens"], "output_tokens", where, at_least=0),
        client=parse_name(text.get("client", ""), "client", where),
        tier=parse_name(text.get("tier", ""), "tier", where),
        model=parse_name(text.get("model", ""), "model", where),
        prefix_group=text.get("prefix_group", ""),
        cached_prefix_tokens=_tokens(text[CACHED] or "0", CACHED, where, at_least=0) if CACHED in text else None,
        lane=text.get("lane") or None,
        stream=parse_truth(text.get("stream", ""), "stream", where),
        batch=parse_truth(text.get("batch", ""), "batch", where),
        call=call_row(text, where) if "workflow" in text or "after" in text else None,
    )


def parse_name(text: str, column: str, where: str) -> str:
    """Return a cell that is a name, or empty. Raises ConfigError."""
    if len(text) > _NAME_CHARS_MAX or not (text.isascii() and text.isprintable()):
        raise ConfigError(
            f"{where}: {column} {printable(text[:_NAME_CHARS_MAX])!r} is no name",
            hint=f"up to {_NAME_CHARS_MAX} printable ASCII characters; empty: it has none",
        )
    return text


def _tokens(text: str, column: str, where: str, *, at_least: int) -> int:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value != int(value) or not at_least <= value <= TOKENS_MAX:
        raise ConfigError(f"{where}: {column} {text!r} is not a whole number of tokens from {at_least} on")
    return int(value)


def parse_truth(text: str, column: str, where: str) -> bool | None:
    """Return a cell that is true or false; None: it is empty. Raises ConfigError."""
    spellings = {"": None, "true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in spellings:
        raise ConfigError(f"{where}: {column} {text!r} is neither true nor false")
    return spellings[text.lower()]
