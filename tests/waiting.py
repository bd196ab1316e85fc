"""How tests of real processes wait: for what is to be so, with a deadline, and without taking the processor it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from fleetctl.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

Seen = TypeVar("Seen")

_PAUSE_S = 0.1
_PAUSE_S_MAX = 1.0


def until(
    is_so: Callable[[], Seen],
    what: str,
    *,
    within_s: float = 60.0,
    rest_s: float = 0.0,
    explain: Callable[[], object] | None = None,
) -> Seen:
    """Wait until something is so, and return what it was; `explain` is called if it does not come to be.

    Who looks by command line for what comes in minutes rests `rest_s` between the looks. Raises AssertionError after
    `within_s`.
    """
    seen = seen_within(is_so, within_s=within_s, rest_s=rest_s)
    more = "" if seen or explain is None else f"\n{explain()}"
    assert seen, f"not within {within_s:g} s: {what}{more}"
    return seen


def seen_within(is_so: Callable[[], Seen], *, within_s: float, rest_s: float = 0.0) -> Seen:
    """Look until something is so, or the time is over; return what was seen last.

    It rests as long as a look takes, a second at most, or `rest_s`: a look by command line keeps a core busy, and who
    looks all the time keeps what is waited for from coming.
    """
    end_s = SYSTEM_CLOCK.monotonic_s() + within_s
    while True:
        begun_s = SYSTEM_CLOCK.monotonic_s()
        seen = is_so()
        looked_s = SYSTEM_CLOCK.monotonic_s()
        if seen or looked_s >= end_s:
            return seen
        SYSTEM_CLOCK.sleep_blocking(max(min(max(looked_s - begun_s, _PAUSE_S), _PAUSE_S_MAX), rest_s))
