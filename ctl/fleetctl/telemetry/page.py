"""Writes the lines of a Prometheus text page; how a figure is spelt is its owner's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def heading(name: str, kind: str, text: str) -> tuple[str, str]:
    """Return a family's HELP and TYPE lines."""
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def sample_name(name: str, labels: Mapping[str, str]) -> str:
    """Return name{a="x",b="y"}, the labels in their given order; without labels the name alone."""
    if not labels:
        return name
    inside = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
    return f"{name}{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
