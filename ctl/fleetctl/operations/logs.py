"""Reads what a fleet's engines, gateway and controller have written, wherever they run."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from fleetctl import os_signals
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.replica import ReplicaState
from fleetctl.operations.lookup import known_fleet
from fleetctl.spelling import suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.model.log import LogChunk
    from fleetctl.model.replica import Replica
    from fleetctl.operations.site import Site

    # A piece of the log after a byte, its end where none is given; at most so many bytes.
    ReadLog = Callable[[int | None, int], LogChunk]

PROCESSES = ("gateway", "controller")
_PIECE_BYTES = 1024 * 1024
_LINE_BYTES_MEAN = 400  # generous: what is read for so many lines
_FOLLOW_S = 0.5
LINES_MAX = 10_000
_LINE_CHARS_MAX = 4000
_REPLICA = re.compile(r"r\d+")
_GATEWAY = re.compile(r"gateway-([2-9]|1[0-6])")  # of several, those beyond the first
# As Python's logging writes it, and vLLM's: 2026-11-22 12:30:09, 11-22 12:30:09.
_TIME = re.compile(r"(?<!\d)(?:(\d{4})-)?(\d{2})-(\d{2})[ T](\d{2}):(\d{2}):(\d{2})")
_TIME_WITHIN = 60  # characters from a line's beginning


def log_of(site: Site, fleet: str, name: str) -> ReadLog:
    """Return how the log of a replica, or of the gateway or the controller, is read.

    Raises NotFoundError, and ConfigError where the provider keeps no logs.
    """
    desired = known_fleet(site, fleet)
    if name in PROCESSES or _GATEWAY.fullmatch(name):
        return lambda after, most: site.host.read_log(fleet, name, after=after, bytes_max=most)
    logs = site.provider_of(desired.profile).capabilities.logs
    if logs is None:
        _replica(site, fleet, name)
        raise ConfigError(
            f"provider {desired.profile.provider} keeps no logs of its nodes",
            hint=f"its engine's last words are in: fleetctl why {name} -f {fleet}",
        )
    owner = site.store.owner

    def read(after: int | None, most: int) -> LogChunk:
        return os_signals.run(logs.read_log(owner=owner, fleet=fleet, replica_id=name, after=after, bytes_max=most))

    # The log of a replica outlives its record: it is kept for days. Who is on record is not looked for in logs first, as each
    # look may be a command on a machine.
    is_on_record = any(record.id == name for record in site.store.replicas(fleet))
    if not is_on_record and not (_REPLICA.fullmatch(name) and read(None, 1).text):
        _replica(site, fleet, name)
    return read


def why_silent(site: Site, fleet: str, name: str) -> str:
    """Return how a replica ended of whose log nothing is kept; empty: it is not on record as one that failed."""
    record = next((each for each in site.store.replicas(fleet) if each.id == name), None)
    if record is None or record.state is not ReplicaState.FAILED:
        return ""
    return f"nothing is kept of what {name} wrote; {record.reason}"


def last_lines(read: ReadLog, count: int) -> tuple[str, int]:
    """Return the last lines of a log, each ended, and the byte behind them."""
    chunk = read(None, min(_PIECE_BYTES, max(1, count) * _LINE_BYTES_MEAN))
    lines = chunk.text.splitlines(keepends=True)
    return "".join(bounded(line) for line in (lines[-count:] if count else [])), chunk.end


def bounded(line: str) -> str:
    """Return a line, its middle left out where it is too long for any screen, with a word on how much."""
    left_out = len(line) - _LINE_CHARS_MAX
    if left_out <= 0:
        return line
    half = _LINE_CHARS_MAX // 2
    return f"{line[:half]}[... {left_out:,} characters left out ...]{line[-half:]}"


def lines_since(text: str, earliest: datetime) -> tuple[str, bool]:
    """Return the lines written at or after an instant, and whether any line says when it was written.

    Times in logs are this machine's local ones; vLLM leaves the year out. A line without one is its forerunner's.
    Where no line has one, all are returned.
    """
    kept: list[str] = []
    is_kept, has_times = False, False
    for line in text.splitlines(keepends=True):
        at = _written_at(line, earliest)
        if at is not None:
            has_times, is_kept = True, at >= earliest.replace(microsecond=0)
        if is_kept:
            kept.append(line)
    return ("".join(kept), True) if has_times else (text, False)


def _written_at(line: str, near: datetime) -> datetime | None:
    found = _TIME.search(line[:_TIME_WITHIN])
    if found is None:
        return None
    year, *rest = found.groups()
    try:
        return datetime(int(year or near.year), *map(int, rest)).astimezone()  # type: ignore[arg-type]  # five numbers
    except ValueError:
        return None  # it only looks like one


def follow(site: Site, read: ReadLog, after: int, *, is_over: Callable[[], bool] = lambda: False) -> Iterator[str]:
    """Yield what is written from now on until `is_over`, which is asked while nothing is."""
    while not is_over():
        chunk = read(after, _PIECE_BYTES)
        after = chunk.end
        if chunk.text:
            yield "".join(map(bounded, chunk.text.splitlines(keepends=True)))
        else:
            site.clock.sleep_blocking(_FOLLOW_S)


def _replica(site: Site, fleet: str, name: str) -> Replica:
    records = {record.id: record for record in site.store.replicas(fleet)}
    if name in records:
        return records[name]
    newest = sorted(records, key=_number)[-5:]
    raise NotFoundError(
        f"fleet {fleet!r} has no replica {name!r}{suggest(name, [*records, *PROCESSES])}",
        hint=f"known: {', '.join([*newest, *PROCESSES])}",
    )


def _number(replica_id: str) -> int:
    found = re.search(r"\d+$", replica_id)
    return int(found[0]) if found else 0
