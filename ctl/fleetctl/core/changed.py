"""Changing frozen nouns where most often nothing is to be changed: a decision does so some twenty times a lane."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    N = TypeVar("N", bound=DataclassInstance)


def changed(noun: N, **values: Any) -> N:  # noqa: ANN401  # as `replace` takes them
    """Return a dataclass with other values of these fields; itself where none is another, for a copy takes up to 20 us."""
    for name, value in values.items():
        known = getattr(noun, name)
        if known is not value and known != value:
            return replace(noun, **values)
    return noun
