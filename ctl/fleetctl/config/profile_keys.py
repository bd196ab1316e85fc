"""Every key a profile may hold, read from its schema, and what one profile says of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from fleetctl.config.provider_names import declared_host_settings, declared_settings
from fleetctl.config.schema import json_schema
from fleetctl.errors import KeyPath

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_ANY = "*"  # a name that the profile gives: of a lane, a tier, a kind


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaKey:
    """A key that holds a value and no section."""

    path: tuple[str, ...]  # with * where a profile gives the name
    default: object  # None: there is none
    description: str

    @property
    def pattern(self) -> str:
        """The key as people write it, `lanes.*.max_wait`."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenKey:
    """A key of one profile: the value it is given, or its default."""

    schema: SchemaKey
    path: KeyPath
    value: object
    is_given: bool

    @property
    def name(self) -> str:
        """The key as people write it, `lanes.short.max_wait`."""
        return ".".join(map(str, self.path))


@cache
def schema_keys() -> tuple[SchemaKey, ...]:
    """Return every key of the language, in the schema's order."""
    schema = json_schema(providers={})
    found: dict[tuple[str, ...], SchemaKey] = {}
    for key in _leaves(schema, schema, (), None, ""):
        found.setdefault(key.path, key)
    return tuple(found.values())


def written_keys(tree: Mapping[str, Any]) -> tuple[WrittenKey, ...]:
    """Return every key as a profile's tree has it; one that stands under a shorter spelling, as in `replicas: 3`, is left out."""
    keys = schema_keys()
    sections = {key.path[:end] for key in keys for end in range(1, len(key.path))}
    return tuple(
        WrittenKey(schema=_described(key, path, tree), path=path, value=value, is_given=is_given)
        for key in keys
        for path, value, is_given in _written(tree, key, (), key.path)
        if not (is_given and isinstance(value, dict) and key.path in sections)
    )


def _written(
    node: object, key: SchemaKey, path: tuple[str, ...], rest: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], object, bool]]:
    """Yield each place where the tree has the key, or could have it."""
    if not rest:
        yield path, node, True
    elif node is not None and not isinstance(node, dict):
        return  # a shorter spelling stands for the section
    elif rest[0] == _ANY:
        for name, child in (node or {}).items():
            if (*key.path[: len(path)], name) not in _named_beside(key.path):
                yield from _written(child, key, (*path, name), rest[1:])
    elif node and rest[0] in node:
        yield from _written(node[rest[0]], key, (*path, rest[0]), rest[1:])
    elif _ANY not in rest:
        yield (*path, *rest), key.default, False


def _described(key: SchemaKey, path: KeyPath, tree: Mapping[str, Any]) -> SchemaKey:
    """Return a key as its provider or host describes it, where it is a setting of that."""
    if key.path == ("provider", _ANY):
        declared = declared_settings().get(tree["provider"].get("kind"), ())
    elif key.path == ("host", _ANY):
        declared = declared_host_settings().get(tree["host"].get("kind"), ())
    else:
        return key
    meaning = next((setting.description for setting in declared if setting.name == path[-1]), key.description)
    return replace(key, description=meaning)


@cache
def _named_beside(pattern: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    """Return the keys that have names of their own where this one admits any."""
    places = {pattern[:end] for end, part in enumerate(pattern) if part == _ANY}
    return frozenset(each.path for each in schema_keys() if each.path[:-1] in places and each.path[-1] != _ANY)


def _leaves(
    schema: dict[str, Any], node: dict[str, Any], path: tuple[str, ...], default: object, description: str
) -> Iterator[SchemaKey]:
    default, description = node.get("default", default), node.get("description", description)
    if "$ref" in node:
        found: Any = schema
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        # What a section is for stands where it is used; the definition's own text is about all its uses.
        yield from _leaves(
            schema, {**found, "description": description or found.get("description", "")}, path, default, ""
        )
    elif "anyOf" in node:
        for choice in node["anyOf"]:
            if choice.get("type") != "null":
                yield from _leaves(schema, choice, path, default, description)
    elif "properties" in node or "patternProperties" in node:
        values = default if isinstance(default, dict) else {}
        for name, child in node.get("properties", {}).items():
            yield from _leaves(schema, child, (*path, name), values.get(name), "")
        for child in node.get("patternProperties", {}).values():
            yield from _leaves(schema, child, (*path, _ANY), None, "")
    else:
        yield SchemaKey(path=path, default=default, description=description)
