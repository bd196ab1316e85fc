"""Kinds of JSON values as engines on FastAPI take them: what pydantic converts is converted, all else is refused by its path."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl_emulator.refusals import EngineRefusal, RefusalReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Where = tuple[str | int, ...]
    Kind = Callable[[object, Where], object]  # returns the converted value; raises EngineRefusal

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE = frozenset({"0", "off", "f", "false", "n", "no"})


def wrong(where: Where, message: str) -> EngineRefusal:
    """Return the refusal of a value at this place of the body."""
    path = ".".join(str(part) for part in ("body", *where))
    return EngineRefusal(RefusalReason.MALFORMED, f"1 validation error:\n  {path}: {message}", param=path)


def anything(value: object, where: Where) -> object:
    """Take whatever it is."""
    del where
    return value


def text(value: object, where: Where) -> str:
    """Take text."""
    if not isinstance(value, str):
        raise wrong(where, "Input should be a valid string")
    return value


def flag(value: object, where: Where) -> bool:
    """Take true and false, and what stands for them: 0, 1, "yes", "off" and the like."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and (word := value.strip().lower()) in _TRUE | _FALSE:
        return word in _TRUE
    raise wrong(where, "Input should be a valid boolean")


def number(value: object, where: Where) -> float:
    """Take a number, also as digits in text."""
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass  # it is refused below, as what is no text at all
    raise wrong(where, "Input should be a valid number")


def whole(low: int | None = None, high: int | None = None) -> Kind:
    """Return the kind of a whole number from `low` to `high`, also written as 6.0 or in digits."""

    def check(value: object, where: Where) -> int:
        found = number(value, where)
        if not math.isfinite(found) or not found.is_integer():
            raise wrong(where, "Input should be a valid integer")
        exact = value if isinstance(value, int) else int(found)
        if (low is not None and exact < low) or (high is not None and exact > high):
            raise wrong(where, f"Input should be from {low} to {high}")
        return int(exact)

    return check


def optional(kind: Kind) -> Kind:
    """Return a kind that is also null."""
    return lambda value, where: None if value is None else kind(value, where)


def list_of(kind: Kind, *, most: int | None = None) -> Kind:
    """Return the kind of a list, of at most so many."""

    def check(value: object, where: Where) -> list[object]:
        if not isinstance(value, list):
            raise wrong(where, "Input should be a valid list")
        if most is not None and len(value) > most:
            raise wrong(where, f"List should have at most {most} items, not {len(value)}")
        return [kind(each, (*where, index)) for index, each in enumerate(value)]

    return check


def mapping_of(kind: Kind) -> Kind:
    """Return the kind of an object with any keys."""

    def check(value: object, where: Where) -> dict[str, object]:
        if not isinstance(value, dict):
            raise wrong(where, "Input should be a valid dictionary")
        return {key: kind(each, (*where, key)) for key, each in value.items()}

    return check


def one_of(*allowed: str) -> Kind:
    """Return the kind of one of these texts."""

    def check(value: object, where: Where) -> str:
        if value not in allowed:
            raise wrong(where, f"Input should be one of {', '.join(allowed)}")
        return str(value)

    return check


def text_or(kind: Kind) -> Kind:
    """Return the kind of text, or else this one."""
    return lambda value, where: value if isinstance(value, str) else kind(value, where)


def section(
    fields: Mapping[str, Kind], *, required: tuple[str, ...] = ()
) -> Callable[[object, Where], dict[str, object]]:
    """Return the kind of an object with these keys; others are left as they are."""

    def check(value: object, where: Where) -> dict[str, object]:
        if not isinstance(value, dict):
            raise wrong(where, "Input should be a valid dictionary")
        found = dict(value)
        for key, kind in fields.items():
            if key in value:
                found[key] = kind(value[key], (*where, key))
            elif key in required:
                raise wrong((*where, key), "Field required")
        return found

    return check
