"""Which keys a section of a YAML file may hold, and what each means: read from its shape."""

from __future__ import annotations

from typing import Any

from fleetctl.config.section import ProfileSection


def known_keys(root: type[ProfileSection], path: tuple[str | int, ...]) -> list[str]:
    """Return the keys a section at this path may hold; empty when the path is no section of that root."""
    return list(_entries(root, path))


def describe(root: type[ProfileSection], path: tuple[str | int, ...]) -> str:
    """Return what the key at this path means, or nothing for a key there is not."""
    return _entries(root, path[:-1]).get(str(path[-1]), "")


def _entries(root: type[ProfileSection], path: tuple[str | int, ...]) -> dict[str, str]:
    """Return key -> description of the section at this path."""
    kind: Any = root
    for part in path:
        kind = _section_below(kind, part)
    if isinstance(kind, type) and issubclass(kind, ProfileSection):
        return {entry.alias or name: entry.description or "" for name, entry in kind.model_fields.items()}
    return {}


def _section_below(kind: Any, part: str | int) -> Any:  # noqa: ANN401  # annotations have no narrower type
    if isinstance(kind, type) and issubclass(kind, ProfileSection):
        found = [entry for name, entry in kind.model_fields.items() if (entry.alias or name) == part]
        return _unwrap(found[0].annotation) if found else None
    return kind[0] if isinstance(kind, tuple) else None


def _unwrap(annotation: Any) -> Any:  # noqa: ANN401
    """Return the section an annotation names; a one-tuple of it when it is a mapping or a list of sections."""
    if isinstance(annotation, type) and issubclass(annotation, ProfileSection):
        return annotation
    inner = [_unwrap(part) for part in getattr(annotation, "__args__", ())]
    sections = [part for part in inner if part is not None]
    if not sections:
        return None
    is_collection = getattr(annotation, "__origin__", None) in (dict, list)
    return (sections[0],) if is_collection else sections[0]
