"""Calls to a store of objects that change nothing when made twice, until they are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, TypeVar

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_AGAIN_S, _AGAIN_S_MAX = 0.1, 2.0
# An address that was never reached is wrong, or blocked, more often than it is about to come up: whoever gives a command is
# not kept waiting for the whole deadline, which is there to ride out an outage.
_UNREACHED_S = 5.0


class UnansweredError(StateError):
    """The same call may succeed in a moment."""


class UnreachedError(UnansweredError):
    """Nothing came through to whoever was to answer."""


def until_answered(
    call: Callable[[], T],
    *,
    translate: Callable[[Exception], NoReturn],
    deadline_s: float,
    location: str,
    hint: str,
    was_reached: bool = True,
) -> T:
    """Return a call's result, made again while `translate` raises UnansweredError for its error.

    `translate` raises an error of the state for one of a call's, or that itself. Raises StateError after `deadline_s`; where
    nobody `was_reached` there before, nor now, after five seconds.
    """
    begun_s, pause_s = SYSTEM_CLOCK.monotonic_s(), _AGAIN_S
    while True:
        try:
            return call()
        except Exception as exc:  # noqa: BLE001  # sorted by what it is, and raised again
            try:
                translate(exc)
            except UnansweredError as passing:
                is_dead = isinstance(passing, UnreachedError) and not was_reached
                limit_s = min(deadline_s, _UNREACHED_S) if is_dead else deadline_s
                if SYSTEM_CLOCK.monotonic_s() + pause_s > begun_s + limit_s:
                    what = "is not reached" if is_dead else f"has not answered for {limit_s:g} s"
                    raise StateError(f"{location} {what}: {passing.message}", hint=hint) from exc
                SYSTEM_CLOCK.sleep_blocking(pause_s)
                pause_s = min(2 * pause_s, _AGAIN_S_MAX)
