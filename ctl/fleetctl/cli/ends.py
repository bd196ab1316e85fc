"""`--for` and `--until`: when something set by hand ends by itself."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.errors import ConfigError
from fleetctl.units import parse_duration_s

if TYPE_CHECKING:
    from fleetctl.operations.terms import Until

For = Annotated[str, typer.Option("--for", metavar="DURATION", help="It ends by itself after this long: 30m, 2h.")]
UntilOption = Annotated[
    str,
    typer.Option("--until", metavar="TIME", help="It ends by itself then: 18:00 (of this machine), 2026-03-02T18:00Z."),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; shown wherever it is.")]
OverrideFreeze = Annotated[
    bool, typer.Option("--override-freeze", help="Do it although the fleet or the lane is frozen.")
]
Force = Annotated[bool, typer.Option("--force", help="Do it although ten like it were done within a minute.")]


def end_of(duration: str, until: str, now: datetime) -> Until:
    """Return the end that two options give together; None: neither was given. Raises ConfigError."""
    if duration and until:
        raise ConfigError("--for and --until exclude each other", hint="leave one out")
    if duration:
        seconds = parse_duration_s(duration)
        if seconds <= 0:
            raise ConfigError(f"--for {duration} is over at once", hint="give a longer one: --for 2h")
        return timedelta(seconds=seconds)
    return _instant(until, now) if until else None


def _instant(text: str, now: datetime) -> datetime:
    """Return an instant given as a time of day, the next one, or as a date and time; local unless a zone is given."""
    local = now.astimezone()
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        return _dated(text)
    found = datetime.combine(local.date(), clock, tzinfo=clock.tzinfo or local.tzinfo)
    return (found if found > now else found + timedelta(days=1)).astimezone(UTC)


def _dated(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError as exc:
        raise ConfigError(f"{text!r} is no time", hint="write 18:00, or 2026-03-02T18:00Z") from exc
