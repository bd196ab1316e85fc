"""What compiling asks of the sources beyond their types: found here in a second, and by compiling in minutes."""

from __future__ import annotations

import ast
import importlib
import typing
from dataclasses import is_dataclass
from pathlib import Path

import fleetctl

_PACKAGE = Path(fleetctl.__file__).parent
_HOOK = _PACKAGE.parent / "compile_hook.py"


def compiled_modules() -> list[str]:
    """Return what the wheel's hook compiles, which needs the wheel's builder to be imported."""
    (named,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(_HOOK.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED"
    )
    places = [_PACKAGE / each for each in named]
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.glob("*.py")))]
    return [
        ".".join(file.relative_to(_PACKAGE.parent).with_suffix("").parts) for file in files if file.stem != "__init__"
    ]


def test_records_are_of_what_is_there_when_they_are_made() -> None:
    """A compiled one, named tuple or dataclass, looks up its fields' types as it is made; one that is not leaves them as text."""
    names = compiled_modules()
    assert len(names) > 50
    records = [
        each
        for name in names
        for each in vars(importlib.import_module(name)).values()
        if isinstance(each, type) and each.__module__ == name and (hasattr(each, "_fields") or is_dataclass(each))
    ]
    assert len(records) > 30
    for each in records:
        typing.get_type_hints(each)  # raises NameError for what is imported for type checkers alone
