"""YAML text to a plain tree that remembers the line of every key."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from fleetctl.config.faults import ProfileFault
from fleetctl.errors import KeyPath

# A profile is a page or two; beyond these a file is something else, or aliases multiplied on purpose.
CHARS_MAX = 100_000
NODES_MAX = 50_000
# Brackets open at once, quoted ones too. PyYAML looks at every open one at each token: a thousand take it a second.
BRACKETS_MAX = 100

_MERGE_TAG = "tag:yaml.org,2002:merge"


@dataclass(slots=True, kw_only=True)
class Document:
    """A parsed file: its tree, where each key stands, and what was wrong with it as YAML."""

    tree: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    faults: list[ProfileFault] = field(default_factory=list)
    nodes: int = 0


class _ProfileLoader(yaml.SafeLoader):
    """Reads scalars by YAML 1.2's core schema: `no` is a word, 1:30 is not ninety, dates stay text."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  # PyYAML's own shape: replaced, so that 1.1's resolvers are gone


for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?[0-9]+$", list("-+0123456789")),
    (
        "float",
        (
            r"^(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
        list("-+0123456789."),
    ),
    ("merge", r"^<<$", ["<"]),
):
    _ProfileLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def read_document(text: str, *, advice: str = "`fleetctl init` writes a starter profile") -> Document:
    """Return the tree of the one YAML document in `text`; faults are collected in it, never raised.

    `advice` says where to begin if it is empty.
    """
    document = Document()
    if len(text) > CHARS_MAX:
        document.faults.append(ProfileFault(path=(), line=1, message=f"is longer than {CHARS_MAX:,} characters"))
        return document
    if _has_brackets_too_deep(text):
        document.faults.append(ProfileFault(path=(), line=1, message="is nested too deeply"))
        return document
    try:
        root = yaml.compose(text, Loader=_ProfileLoader)
    except yaml.YAMLError as error:
        document.faults.append(_syntax_fault(error, text))
        return document
    except RecursionError:
        document.faults.append(ProfileFault(path=(), line=1, message="is nested too deeply"))
        return document
    if root is None:
        document.faults.append(ProfileFault(path=(), line=1, message=f"is empty; {advice}"))
        return document
    document.tree = _value(root, (), document, ())
    return document


def _has_brackets_too_deep(text: str) -> bool:
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        if depth > BRACKETS_MAX:
            return True
    return False


def _syntax_fault(error: yaml.YAMLError, text: str) -> ProfileFault:
    mark = getattr(error, "problem_mark", None)
    if mark is None:  # a character YAML forbids: the reader has only its position
        position = getattr(error, "position", 0)
        line = text.count("\n", 0, position if isinstance(position, int) else 0) + 1
        return ProfileFault(path=(), line=line, message="is not YAML: a control character is not allowed")
    # The problem, never the snippet around it: the line may hold something that is not ours to print.
    problem = str(getattr(error, "problem", None) or "it cannot be read")
    source_lines = text.splitlines()
    at = source_lines[mark.line] if mark.line < len(source_lines) else ""
    if "'\\t'" in problem or re.match(r"[ ]*\t", at):
        problem += "; indent with spaces, not tabs"
    elif re.search(r":\s*>=?\s*\d", "\n".join(source_lines[max(0, mark.line - 1) : mark.line + 1])):
        problem += '; write a condition in quotes: ">= 512"'
    return ProfileFault(path=(), line=mark.line + 1, message=f"is not YAML: {problem}")


def _value(node: yaml.Node, path: KeyPath, document: Document, above: tuple[int, ...]) -> Any:  # noqa: ANN401
    """Return a node as plain values, noting lines and faults; `above` are the nodes it lies in."""
    document.lines.setdefault(path, node.start_mark.line + 1)
    document.nodes += 1
    if id(node) in above:
        document.faults.append(ProfileFault(path=path, message="an alias refers to what it lies in"))
        return None
    if document.nodes > NODES_MAX:
        if document.nodes == NODES_MAX + 1:
            document.faults.append(ProfileFault(path=path, message=f"holds more than {NODES_MAX:,} values"))
        return None
    inner = (*above, id(node))
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document, inner)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, index), document, inner) for index, item in enumerate(node.value)]
    return _scalar(node, path, document)


def _mapping(node: yaml.MappingNode, path: KeyPath, document: Document, above: tuple[int, ...]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    first_lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            document.faults.append(ProfileFault(path=path, line=line, message="a key must be a plain word"))
            continue
        if key.tag == _MERGE_TAG:
            merged.update(_merge(value, path, document, above))
            continue
        name = str(key.value)
        if name in first_lines:
            message = f"is given twice (first on line {first_lines[name]})"
            document.faults.append(ProfileFault(path=(*path, name), line=line, message=message))
            continue
        first_lines[name] = line
        document.lines[(*path, name)] = line
        result[name] = _value(value, (*path, name), document, above)
    return {**merged, **result}


def _merge(node: yaml.Node, path: KeyPath, document: Document, above: tuple[int, ...]) -> dict[str, Any]:
    """Return what `<<: *anchor` brings in; of a list of anchors the earlier wins, as YAML has it."""
    value = _value(node, path, document, above)
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in parts):
        line = node.start_mark.line + 1
        document.faults.append(ProfileFault(path=path, line=line, message="<< must name an anchored mapping"))
        return {}
    return {name: item for part in reversed(parts) for name, item in part.items()}


def _scalar(node: yaml.Node, path: KeyPath, document: Document) -> object:
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    text = str(node.value)
    if kind in ("str", "merge"):
        return text
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int" and len(text) <= 18:
        return int(text)
    if kind in ("int", "float"):
        return _float(text)
    document.faults.append(ProfileFault(path=path, message=f"the YAML tag {node.tag!r} is not used in profiles"))
    return None


def _float(text: str) -> float:
    plain = text.lower().lstrip("+-")
    if plain == ".nan":
        return math.nan
    if plain == ".inf":
        return -math.inf if text.startswith("-") else math.inf
    return float(text)
