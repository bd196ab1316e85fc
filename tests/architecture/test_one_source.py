"""Facts that are written once: whoever needs them asks the place that holds them."""

from __future__ import annotations

import ast

import pytest

from fleetctl.model.ladder import LadderStep
from tests.architecture.sources import facts_of, name_of, source_files, walked

pytestmark = pytest.mark.xdist_group("sources")  # whose facts one process finds once

LADDER_FILE = "ctl/fleetctl/model/ladder.py"
# The steps whose names are words of nothing else, as they are written and as they used to be.
SPELLINGS = {text for step in LadderStep if "-" in step.value for text in (step.value, step.value.replace("-", "_"))}


def trees_with(*texts: str) -> list[tuple[str, ast.Module]]:
    """Return the files in whose text all of these are: a file without what a rule is about needs no tree."""
    found = [(name_of(path), path.read_text()) for path in source_files()]
    return [(name, ast.parse(text)) for name, text in found if all(each in text for each in texts)]


def is_step(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "LadderStep"


def test_nobody_else_spells_a_ladder_step() -> None:
    found = [
        name_of(path)
        for path in source_files()
        if name_of(path) != LADDER_FILE and not SPELLINGS.isdisjoint(text for _, text in facts_of(path).strings)
    ]
    assert found == []


def test_nobody_else_keeps_a_table_of_ladder_steps() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees_with("LadderStep")
        if name != LADDER_FILE
        for node in walked(tree)
        if (isinstance(node, ast.Dict) and any(is_step(key) for key in node.keys))
        or (isinstance(node, ast.Tuple | ast.List | ast.Set) and sum(is_step(item) for item in node.elts) > 1)
    ]
    assert found == []


def test_nobody_makes_a_steps_spelling_of_its_name() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees_with("step", "name")
        for node in walked(tree)
        if isinstance(node, ast.Attribute) and node.attr == "name" and ast.unparse(node.value).endswith("step")
    ]
    assert found == []
