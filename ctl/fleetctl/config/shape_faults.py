"""Pydantic's findings on a YAML file as faults: at their path, in plain words, naming the nearest known key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.config.faults import ProfileFault
from fleetctl.config.fields import shown
from fleetctl.config.forms import FORMS
from fleetctl.config.known_keys import describe, known_keys
from fleetctl.errors import ConfigError
from fleetctl.spelling import suggest
from fleetctl.units import (
    format_bytes,
    format_duration,
    format_fraction,
    format_usd,
    parse_bytes,
    parse_duration_s,
    parse_fraction,
    parse_usd,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from fleetctl.config.section import ProfileSection
    from fleetctl.errors import KeyPath


def shape_faults(
    error: ValidationError, root: type[ProfileSection], *, ignores: Callable[[object], bool] = lambda _: False
) -> list[ProfileFault]:
    """Return every fault of a tree that is no `root`; those over an input that `ignores` accepts are left out."""
    details = error.errors(include_url=False)
    return [_fault(detail, root) for detail in details if not ignores(detail["input"])]


def _fault(detail: ErrorDetails, root: type[ProfileSection]) -> ProfileFault:
    """Return one of pydantic's findings as a fault at its path."""
    path: KeyPath = tuple(detail["loc"])
    if path and path[-1] == "[key]":
        path = path[:-1]
    if detail["type"] == "extra_forbidden":
        return _unknown_key(path, root)
    if detail["type"] == "missing":
        return ProfileFault(path=path, message=f"is missing: {describe(root, path) or 'it must be given'}")
    return ProfileFault(path=path, message=_message(detail))


def _unknown_key(path: KeyPath, root: type[ProfileSection]) -> ProfileFault:
    known = known_keys(root, path[:-1])
    near = suggest(str(path[-1]), known)
    return ProfileFault(path=path, message=f"unknown key{near}; known here: {', '.join(known)}")


def _message(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    if "error" in context:  # raised by a validator of ours, whose message is final
        return str(context["error"])
    kind, given = detail["type"], detail["input"]
    if kind in _BOUNDS:
        wanted = _BOUNDS[kind].format(_bound(next(iter(context.values())), given))
    elif kind in _SIZES:
        return f"must have {context['max_length']} {_SIZES[kind]} at most, not {len(given)}"
    elif kind == "string_pattern_mismatch":
        wanted = FORMS.get(context["pattern"], f"text of the form {context['pattern']}")
    elif kind in _WANTED:
        wanted = _WANTED[kind].format(**context)
    else:
        return detail["msg"][0].lower() + detail["msg"][1:]
    return f"must be {wanted}, not {shown(given)}"


def _bound(limit: float, given: object) -> str:
    """Return the bound of a value in the unit that it was written with: what is held in seconds may be given as 300ms."""
    if isinstance(given, str):
        for parse, spell in _UNITS:
            try:
                parse(given)
            except ConfigError:
                continue
            return spell(limit)
    return f"{limit:.15g}"


_UNITS: tuple[tuple[Callable[[str], float], Callable[[float], str]], ...] = (
    (parse_duration_s, format_duration),
    (parse_bytes, format_bytes),
    (parse_usd, format_usd),
    (parse_fraction, format_fraction),
)
_BOUNDS = {
    "greater_than": "more than {}",
    "greater_than_equal": "{} or more",
    "less_than": "less than {}",
    "less_than_equal": "{} or less",
}
_SIZES = {"string_too_long": "characters", "too_long": "entries"}
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a section",
    "model_type": "a section",
    "literal_error": "{expected}",
    "string_too_short": "given",
    "too_short": "given",
    "invalid_key": "a section whose keys are all words",
}
