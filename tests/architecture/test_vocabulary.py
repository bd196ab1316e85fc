"""One word for one thing: class names, identifiers and the glossary."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from tests.architecture.test_house import ROOT, name_of, source_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Words with a meaning of our own making; each had a standard term that a reader of Envoy, Nomad, Karpenter or
# Kubernetes knows. Never part of an identifier: as snake_case or CamelCase words.
PRIVATE_WORDS = {
    "door", "doors", "doorway", "stray", "strays", "rung", "rungs", "climb", "climbs", "hotter", "calmer", "wish",
    "wishes", "wished", "relapse", "relapses", "sick", "sickness", "occupant", "foresee", "gladly", "leftovers",
    "manners", "narrate", "narrator", "attend", "scene", "scenes", "seats", "cards", "steer", "steering",
}  # fmt: skip
# Fine inside a longer name (`in_flight`, `text_line`), private as a name of their own.
PRIVATE_NAMES = {
    "Ask", "Flight", "flight", "flights", "Answer", "Room", "room", "room_left", "Word", "Effects", "Moment", "Pulse",
    "Sized", "Hands", "hands", "own_idea", "leave_first", "leave_line", "put_back", "pump", "told", "said",
    "seat", "board", "front", "examine", "remembered", "ordered", "orphans", "Outcome",
}  # fmt: skip


def identifiers(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every name in a file, those in f-strings apart."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def words_of(identifier: str) -> list[str]:
    """Split `orphanedNode_id` into its lower-case words."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", identifier)]


def test_a_class_name_is_defined_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in source_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_identifier_is_a_private_word() -> None:
    found = defaultdict(list)
    for path in source_files():
        for line, identifier in identifiers(path):
            if identifier.lstrip("_") in PRIVATE_NAMES or PRIVATE_WORDS.intersection(words_of(identifier)):
                found[identifier].append(f"{name_of(path)}:{line}")
    assert {identifier: places[:3] for identifier, places in found.items()} == {}


def test_no_module_is_named_by_a_private_word() -> None:
    names = {part for path in source_files() for part in path.relative_to(ROOT).with_suffix("").parts}
    private = {name for name in names if name in PRIVATE_NAMES or PRIVATE_WORDS.intersection(words_of(name))}
    assert private == set()


def model_classes() -> set[str]:
    """Return the public classes of the model."""
    return {
        node.name
        for path in (ROOT / "ctl" / "fleetctl" / "model").glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
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
