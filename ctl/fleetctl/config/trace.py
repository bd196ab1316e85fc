"""Request traces: CSV or CSV.gz, read row by row and strictly, and their summary for planning."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.config.call_rows import CallRow, call_row
from fleetctl.config.csv_rows import number_from_zero, read_csv_rows
from fleetctl.errors import ConfigError
from fleetctl.model.profile import Distribution
from fleetctl.printable import printable
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
_TOKENS_MAX = 100_000_000
_NAME_CHARS_MAX = 128  # it becomes a header, and a row's name
_PEAK_WINDOW_S = 60.0


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
    cached_prefix_tokens: int = 0  # of the prompt, shared with earlier requests of the group
    lane: str | None = None
    stream: bool | None = None
    batch: bool | None = None  # whether it carries the batch hint
    call: CallRow | None = None  # of a workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What planning needs of a trace."""

    requests: int
    duration_s: float
    peak_rps: float  # in the busiest 60 s
    prompt_tokens: Distribution
    output_tokens: Distribution


def read_rows(path: Path, *, tiers: Collection[str] = (), models: Collection[str] = ()) -> Iterator[TraceRow]:
    """Yield the rows in order, holding one at a time; of `tiers` and `models`, where there are any, each row's must be one.

    Raises ConfigError naming file and line, NotFoundError.
    """
    before_s = -math.inf
    for where, cells in read_csv_rows(path, _REQUIRED, what="trace"):
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


def summarize(path: Path) -> TraceSummary:
    """Return rate and length percentiles of a whole trace. Raises ConfigError, also for an empty one."""
    prompts: list[int] = []
    outputs: list[int] = []
    window: deque[float] = deque()
    busiest, first_s, last_s = 0, 0.0, 0.0
    for row in read_rows(path):
        first_s = row.arrival_s if not prompts else first_s
        last_s = row.arrival_s
        prompts.append(row.prompt_tokens)
        outputs.append(row.output_tokens)
        window.append(row.arrival_s)
        while window[0] <= row.arrival_s - _PEAK_WINDOW_S:
            window.popleft()
        busiest = max(busiest, len(window))
    if not prompts:
        raise ConfigError(f"{path}: holds no requests")
    duration_s = last_s - first_s
    return TraceSummary(
        requests=len(prompts),
        duration_s=duration_s,
        # A trace shorter than the window is as busy as it is long; one instant counts as a second.
        peak_rps=busiest / min(_PEAK_WINDOW_S, max(duration_s, 1.0)),
        prompt_tokens=_percentiles(prompts),
        output_tokens=_percentiles(outputs),
    )


def check_ends_by(path: Path, most_s: float, *, rule: str) -> None:
    """Raise ConfigError naming file and line of the first row that arrives later than `most_s`; `rule` says why it may not."""
    for where, cells in read_csv_rows(path, _REQUIRED, what="trace"):
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
        client=_name(text.get("client", ""), "client", where),
        tier=_name(text.get("tier", ""), "tier", where),
        model=_name(text.get("model", ""), "model", where),
        prefix_group=text.get("prefix_group", ""),
        cached_prefix_tokens=_tokens(
            text.get("cached_prefix_tokens_inf") or "0", "cached_prefix_tokens_inf", where, at_least=0
        ),
        lane=text.get("lane") or None,
        stream=_truth(text.get("stream", ""), "stream", where),
        batch=_truth(text.get("batch", ""), "batch", where),
        call=call_row(text, where) if "workflow" in text or "after" in text else None,
    )


def _name(text: str, column: str, where: str) -> str:
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
    if not math.isfinite(value) or value != int(value) or not at_least <= value <= _TOKENS_MAX:
        raise ConfigError(f"{where}: {column} {text!r} is not a whole number of tokens from {at_least} on")
    return int(value)


def _truth(text: str, column: str, where: str) -> bool | None:
    spellings = {"": None, "true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in spellings:
        raise ConfigError(f"{where}: {column} {text!r} is neither true nor false")
    return spellings[text.lower()]


def _percentiles(values: list[int]) -> Distribution:
    ranked = sorted(values)

    def at(fraction: float) -> float:
        # Zero-token rows exist in real traces (aborted requests); a lognormal has no zero.
        return float(max(1, ranked[max(0, math.ceil(fraction * len(ranked)) - 1)]))

    return Distribution(p50=at(0.5), p99=at(0.99))
