"""Facts that are written once: whoever needs them asks the place that holds them."""

from __future__ import annotations

import ast

from fleetctl.model.ladder import LadderStep
from tests.architecture.test_house import name_of, source_files

LADDER_FILE = "ctl/fleetctl/model/ladder.py"
# The steps whose names are words of nothing else, as they are written and as they used to be.
SPELLINGS = {text for step in LadderStep if "-" in step.value for text in (step.value, step.value.replace("-", "_"))}


def trees() -> list[tuple[str, ast.Module]]:
    return [(name_of(path), ast.parse(path.read_text())) for path in source_files()]


def strings(tree: ast.AST) -> list[str]:
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def is_step(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "LadderStep"


def test_nobody_else_spells_a_ladder_step() -> None:
    found = [name for name, tree in trees() if name != LADDER_FILE and SPELLINGS & set(strings(tree))]
    assert found == []


def test_nobody_else_keeps_a_table_of_ladder_steps() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        if name != LADDER_FILE
        for node in ast.walk(tree)
        if (isinstance(node, ast.Dict) and any(is_step(key) for key in node.keys))
        or (isinstance(node, ast.Tuple | ast.List | ast.Set) and sum(is_step(item) for item in node.elts) > 1)
    ]
    assert found == []


def test_nobody_makes_a_steps_spelling_of_its_name() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "name" and ast.unparse(node.value).endswith("step")
    ]
    assert found == []
