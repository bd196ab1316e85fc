"""A profile with some of its keys set otherwise: what a runbook's `up` brings up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fleetctl.config.document import read_document
from fleetctl.config.profile import read_profile
from fleetctl.config.use_cases import starter, use_cases
from fleetctl.errors import ConfigError
from fleetctl.operations.profiles import FoundProfile, find_with_source

if TYPE_CHECKING:
    from collections.abc import Mapping


def find_changed(file_or_name: str, changes: Mapping[str, Any], *, fleet: str = "") -> FoundProfile:
    """Return the profile of a file or a packaged name with the keys at these paths set, such as lanes.short.max_wait.

    Raises ConfigError with every fault of what comes of it, NotFoundError.
    """
    if not changes:
        return find_with_source(file_or_name, fleet=fleet)
    path = Path(file_or_name)
    if path.is_file():
        text, base = path.read_text(encoding="utf-8-sig"), path.parent
    elif file_or_name in use_cases():
        text, base = starter(file_or_name, name=fleet), Path()
    else:
        return find_with_source(file_or_name, fleet=fleet)  # raises what is to be said
    tree = read_document(text).tree
    if not isinstance(tree, dict):
        return find_with_source(file_or_name, fleet=fleet)
    for key, value in changes.items():
        _set(tree, key.split("."), value, key)
    if fleet:
        tree["name"] = fleet
    raw = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True).encode()
    found = read_profile(raw, source=f"{file_or_name} with {', '.join(changes)} set", base_dir=base)
    return FoundProfile(profile=found.checked(), source=found.source)


def _set(tree: dict[str, Any], keys: list[str], value: object, path: str) -> None:
    for key in keys[:-1]:
        inner = tree.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigError(
                f"{path}: {key} is no section of the profile", hint="write the path as messages do: a.b.c"
            )
        tree = inner
    tree[keys[-1]] = value
