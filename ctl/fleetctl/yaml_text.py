"""YAML by libyaml's parser, where PyYAML was built with it: seven times as fast as PyYAML's own."""

from __future__ import annotations

from typing import Any


def load_yaml(text: str | bytes) -> Any:  # noqa: ANN401  # what a file holds is for its reader to check
    """Return what `yaml.safe_load` does: plain values of one document. Raises yaml.YAMLError."""
    import yaml  # which not every command that opens a provider needs

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(text, Loader=loader)  # noqa: S506  # safe_load's own, or its twin in C
