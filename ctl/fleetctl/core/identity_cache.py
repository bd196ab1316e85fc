"""Keeping what pure functions say of large frozen nouns that are the same objects in one decision after another."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


def cached_by_identity(maxsize: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that keeps a pure function's latest results by which objects it was given.

    By identity, for to hash a plan takes longer than most that is asked of one. The arguments are kept with the result, so
    that no other object gets the id of one of them meanwhile.
    """

    def decorate(call: Callable[P, R]) -> Callable[P, R]:
        known: dict[tuple[int, ...], tuple[tuple[object, ...], R]] = {}

        @wraps(call)
        def cached(*args: P.args, **kwargs: P.kwargs) -> R:
            given = (*args, *kwargs.values())
            key = (len(args), *map(id, given))
            found = known.get(key)
            if found is None:
                if len(known) >= maxsize:
                    known.pop(next(iter(known)), None)
                found = known[key] = (given, call(*args, **kwargs))
            return found[1]

        return cached

    return decorate
