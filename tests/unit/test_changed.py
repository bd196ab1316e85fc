"""A noun that is not changed is not copied."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fleetctl.core.changed import changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Noun:
    number: int = 1
    names: tuple[str, ...] = ("a",)


def test_a_noun_is_copied_only_where_a_value_is_another():
    noun = Noun()
    assert changed(noun, number=1, names=("a",)) is noun
    assert changed(noun, number=2) == Noun(number=2)
    assert noun == Noun()


def test_a_field_that_is_not_there_is_an_error():
    with pytest.raises(AttributeError):
        changed(Noun(), size=1)
