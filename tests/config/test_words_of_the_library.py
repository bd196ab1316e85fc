"""Whatever is wrong with a value, the message is in the words of profiles: no library's, and bounds with their unit."""

from __future__ import annotations

import importlib
import pkgutil
from datetime import date
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

import fleetctl.config
from fleetctl.config.forms import FORMS
from fleetctl.config.profile import parse_profile
from fleetctl.config.section import ProfileSection
from fleetctl.config.shape_faults import shape_faults
from fleetctl.config.use_cases import starter
from fleetctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

for module in pkgutil.iter_modules(fleetctl.config.__path__):
    importlib.import_module(f"fleetctl.config.{module.name}")

WRONG: tuple[object, ...] = (
    None, "", " ", "x" * 30_000, -1, 0, 2.5, 10**30, 1e300, float("inf"), float("nan"), [], ["a"] * 1000, {},
    {f"k{number}": {} for number in range(1000)}, {"A B": 1}, {1: 2}, True, "9999999d", "1us", "0%", "200%", "$0.001", "1B",
    "9999TB", "ab\n", b"x", (1,), [[1]], [None], date(2020, 1, 1),
)  # fmt: skip
LIBRARY = ("should ", "validation", "input", "dictionary", "valid ", "pattern", "[a-z", "tuple", "instance")


def sections(root: type[ProfileSection] = ProfileSection) -> Iterator[type[ProfileSection]]:
    for each in root.__subclasses__():
        yield each
        yield from sections(each)


def messages(section: type[ProfileSection]) -> Iterator[str]:
    """Yield what is said of every key of a section with every wrong value."""
    for name, field in section.model_fields.items():
        for value in WRONG:
            try:
                section.model_validate({field.alias or name: value})
            except ValidationError as error:
                yield from (fault.message for fault in shape_faults(error, section))


def _name(section: type[ProfileSection]) -> str:
    return section.__name__


SECTIONS: list[type[ProfileSection]] = sorted(set(sections()), key=_name)


@pytest.mark.parametrize("section", SECTIONS, ids=_name)
def test_no_key_of_any_section_is_refused_in_the_words_of_a_library(section: type[ProfileSection]) -> None:
    for message in set(messages(section)):
        spoken = message.partition(", not ")[0]
        if spoken.startswith(("is missing: ", "unknown key")):  # the key's own description
            continue
        assert not any(word in spoken for word in LIBRARY), message
        assert not (message.startswith("must be") and "e+" in spoken), message


def test_every_form_is_told_in_words() -> None:
    assert len(FORMS) > 3
    assert all(words and "^" not in words for words in FORMS.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("coalesce: {tokens: 4, within: 3s}", "lanes.short.coalesce.within: must be 1s or less, not '3s'"),
        ("coalesce: {tokens: 4, within: 1ms}", "lanes.short.coalesce.within: must be 5ms or more, not '1ms'"),
        ("coalesce: {tokens: 400, within: 60ms}", "lanes.short.coalesce.tokens: must be 256 or less, not 400"),
        ("generation: {stop: [a, b, c, d, e]}", "lanes.short.generation.stop: must have 4 entries at most, not 5"),
        ("queue_max: 100000000", "lanes.short.queue_max: must be 10000000 or less, not 100000000"),
        ("engine_version: {}", "unknown key"),
    ],
)
def test_a_bound_is_told_in_the_unit_of_what_it_bounds(change: str, message: str) -> None:
    base = starter("quickstart")
    assert "\n  short:\n" in base
    with pytest.raises(ConfigError) as caught:
        parse_profile(base.replace("\n  short:\n", f"\n  short:\n    {change}\n", 1), source="p.yaml")
    assert message in caught.value.message
