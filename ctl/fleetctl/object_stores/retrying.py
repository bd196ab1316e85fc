"""Calls to a store of objects that change nothing when made twice, until they are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, TypeVar

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_AGAIN_S, _AGAIN_S_MAX = 0.1, 2.0


class UnansweredError(StateError):
    """The same call may succeed in a moment."""


def until_answered(
    call: Callable[[], T], *, translate: Callable[[Exception], NoReturn], deadline_s: float, location: str, hint: str
) -> T:
    """Return a call's result, made again while `translate` raises UnansweredError for its error.

    `translate` raises an error of the state for one of a call's, or that itself. Raises StateError after `deadline_s`.
    """
    until_s, pause_s = SYSTEM_CLOCK.monotonic_s() + deadline_s, _AGAIN_S
    while True:
        try:
            return call()
        except Exception as exc:  # noqa: BLE001  # sorted by what it is, and raised again
            try:
                translate(exc)
            except UnansweredError as passing:
                if SYSTEM_CLOCK.monotonic_s() + pause_s > until_s:
                    raise StateError(
                        f"{location} has not answered for {deadline_s:g} s: {passing.message}", hint=hint
                    ) from exc
                SYSTEM_CLOCK.sleep_blocking(pause_s)
                pause_s = min(2 * pause_s, _AGAIN_S_MAX)
