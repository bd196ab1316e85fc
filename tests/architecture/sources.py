"""What the rules of the house look at in each file, found in one pass: a tree is the most of what a rule costs."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
# Names that are other people's.
FOREIGN_NAMES = {"collections.OrderedDict", "hypothesis.Phase"}


@cache
def _tracked() -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607  # whichever git is first
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return tuple(path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file())


def tracked(*suffixes: str) -> list[Path]:
    """Return the project's own files: those git knows."""
    return [path for path in _tracked() if path.name.endswith(suffixes)]


def source_files() -> list[Path]:
    return [path for path in tracked(".py") if path.parts[len(ROOT.parts)] in ("ctl", "providers")]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What one file holds; each with its line."""

    docstring: str | None
    classes: tuple[tuple[str, str], ...]  # every class's name and docstring
    public_classes: tuple[str, ...]  # of the module itself
    functions: tuple[tuple[int, str, int], ...]  # the line, name and length of each
    identifiers: tuple[tuple[int, str], ...]  # each once, at one of its places
    strings: tuple[tuple[int, str], ...]


@cache
def facts_of(path: Path) -> SourceFacts:
    """Return what a file holds."""
    tree = ast.parse(path.read_bytes())
    nodes = list(walked(tree))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    return SourceFacts(
        docstring=ast.get_docstring(tree),
        classes=tuple((node.name, ast.get_docstring(node) or "") for node in classes),
        public_classes=tuple(
            node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        ),
        functions=tuple(
            (node.lineno, node.name, (node.end_lineno or 0) - node.lineno)
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        identifiers=tuple((line, name) for name, line in _identifiers(nodes).items()),
        strings=tuple(
            (node.lineno, node.value)
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ),
    )


def walked(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every node of a tree, as `ast.walk` does in another order and a third of the time."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for value in node.__dict__.values():
            if isinstance(value, ast.AST):
                waiting.append(value)
            elif isinstance(value, list):
                waiting.extend([item for item in value if isinstance(item, ast.AST)])


def _identifiers(nodes: list[ast.AST]) -> dict[str, int]:
    """Return a line of every name of a file's own: variables, parameters, attributes, functions, classes."""
    foreign = {
        alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if f"{node.module}.{alias.name}" in FOREIGN_NAMES
    }
    found: dict[str, int] = {}
    for node in nodes:
        for name in _names_in(node):
            if name not in foreign:
                found.setdefault(name, getattr(node, "lineno", 0))
    return found


def _names_in(node: ast.AST) -> list[str]:
    """Return the identifiers that a node itself holds."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.keyword(arg=str(name)) | ast.ExceptHandler(name=str(name)):
            return [name]
        case ast.ImportFrom(names=names):
            return [alias.asname or alias.name for alias in names]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return list(names)
        case _:
            return []
