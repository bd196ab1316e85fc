"""One word for one thing: class names, identifiers and the glossary."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.architecture.sources import ROOT, facts_of, name_of, source_files

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("sources")  # whose facts one process finds once

# Words with a meaning of our own making; each had a standard term that a reader of Envoy, Nomad, Karpenter or
# Kubernetes knows. Never part of an identifier: as snake_case or CamelCase words.
PRIVATE_WORDS = {
    "door", "doors", "doorway", "stray", "strays", "rung", "rungs", "climb", "climbs", "hotter", "calmer", "wish",
    "wishes", "wished", "relapse", "relapses", "sick", "sickness", "occupant", "foresee", "gladly", "leftovers",
    "manners", "narrate", "narrator", "attend", "scene", "scenes", "seat", "seats", "cards", "steer", "steering",
    "tally", "tallies", "pulse", "narrated", "foreseen", "orphans", "sized",
}  # fmt: skip
# As above, but fine in the sentence that names a test.
PRIVATE_WORDS_OF_CODE = {
    "told", "said", "ordered", "ask", "asks", "board", "front", "hands", "examine", "examined", "remember", "remembered", "pump",
}  # fmt: skip
# Private wherever they stand in a snake_case name.
PRIVATE_PHRASES = ("room_left", "own_idea", "leave_first", "leave_line", "put_back", "in_words", "by_hand")
# Fine inside a longer name (`in_flight`, `text_line`, `hosts_asked`), private as a name of their own.
PRIVATE_NAMES = {
    "asked", "asking", "flight", "flights", "room", "has_room", "effects", "moment", "outcome", "outcomes",
}  # fmt: skip
# What a test streams or types may be words; in the product they are conditions, messages, arguments, tokens.
PRIVATE_NAMES_OF_THE_PRODUCT = {"words"}
# Private as classes: each meant several things, or a thing that has a plainer name.
PRIVATE_CLASSES = {
    "Answer", "Effects", "Flight", "Line", "Moment", "Outcome", "Part", "Phase", "Room", "Word", "Words",
}  # fmt: skip
VAGUE_BEGINNINGS = ("Is ", "Has ", "Does ", "Knows ", "Who ", "Tells ", "Says ")


def python_files() -> list[Path]:
    """Return the product's files and the tests'."""
    return [*source_files(), *sorted((ROOT / "tests").rglob("*.py"))]


@cache
def is_private(identifier: str) -> bool:
    """Return whether a name is, or holds, a word of our own making."""
    bare = identifier.lstrip("_")
    if bare in PRIVATE_CLASSES or bare in PRIVATE_NAMES:
        return True
    parts = words_of(identifier)
    if not PRIVATE_WORDS.isdisjoint(parts):
        return True
    if parts[:1] == ["test"]:
        return False
    return not PRIVATE_WORDS_OF_CODE.isdisjoint(parts) or any(f"_{p}_" in f"_{bare}_" for p in PRIVATE_PHRASES)


def words_of(identifier: str) -> list[str]:
    """Split `orphanedNode_id` into its lower-case words."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", identifier)]


def test_a_class_name_is_defined_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in source_files():
        for name, _ in facts_of(path).classes:
            places[name].append(name_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_identifier_is_a_private_word() -> None:
    found = defaultdict(list)
    for path in python_files():
        for line, identifier in facts_of(path).identifiers:
            if is_private(identifier):
                found[identifier].append(f"{name_of(path)}:{line}")
    assert {identifier: places[:3] for identifier, places in found.items()} == {}


def test_nothing_of_the_product_is_called_words() -> None:
    found = [
        f"{name_of(path)}:{line}"
        for path in source_files()
        for line, identifier in facts_of(path).identifiers
        if identifier.lstrip("_") in PRIVATE_NAMES_OF_THE_PRODUCT
    ]
    assert found == []


def test_no_module_is_named_by_a_private_word() -> None:
    names = {part for path in python_files() for part in path.relative_to(ROOT).with_suffix("").parts}
    assert {name for name in names if is_private(name)} == set()


def test_no_class_docstring_has_to_be_guessed() -> None:
    """A class is described as a noun, or by what it does; "Is the ..." and "Knows ..." name neither."""
    found = [
        f"{name_of(path)}: {name}"
        for path in source_files()
        for name, docstring in facts_of(path).classes
        if docstring.startswith(VAGUE_BEGINNINGS)
    ]
    assert found == []


def model_classes() -> set[str]:
    """Return the public classes of the model."""
    return {
        name for path in (ROOT / "ctl" / "fleetctl" / "model").glob("*.py") for name in facts_of(path).public_classes
    }


def test_the_glossary_covers_every_noun_of_the_model() -> None:
    glossary = (ROOT / "ARCHITECTURE.md").read_text().partition("## Glossary")[2]
    explained = set(re.findall(r"`(\w+)`", glossary))
    assert model_classes() - explained == set()


@pytest.mark.parametrize(
    ("identifier", "words"),
    [("GatewayDoor", ["gateway", "door"]), ("in_flight", ["in", "flight"]), ("HTTPDoor2", ["http", "door", "2"])],
)
def test_identifiers_are_split_into_words(identifier: str, words: list[str]) -> None:
    assert words_of(identifier) == words


def test_names_are_found_wherever_python_holds_them(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "from asyncio import run as go\n"
        "class Door: sick: int\n"
        "def wish(ask, *told, said=1, **hands):\n"
        "    board.front = call(outcome=f'{rung}')\n"
    )
    names = {name for _, name in facts_of(path).identifiers}
    assert names >= {"go", "Door", "sick", "wish", "ask", "told", "said", "hands", "board", "front", "outcome", "rung"}


@pytest.mark.parametrize(
    "name",
    [
        "told",
        "_told",
        "is_said",
        "was_ordered",
        "ORDERED",
        "AskQueue",
        "GatewayDoor",
        "wish_of",
        "Phase",
        "Line",
        "asked",
    ],
)
def test_private_names_are_told_from_plain_ones(name: str) -> None:
    assert is_private(name)
    assert not any(is_private(plain) for plain in ("in_flight", "hosts_asked", "DesiredPhase", "test_told_to_stop"))
