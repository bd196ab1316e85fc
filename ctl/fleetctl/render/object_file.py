"""A file of Kubernetes objects, as YAML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFile:
    """Objects that are applied together, and what people are to know of them."""

    objects: tuple[Object, ...]
    comment: str = ""  # whole lines, each from its `# ` to its end

    @property
    def text(self) -> str:
        """The documents as YAML."""
        return self.comment + yaml_of(self.objects)


def yaml_of(objects: tuple[Object, ...], *, width: int = 120) -> str:
    """Return objects as a stream of YAML documents, keys in the order they have, texts folded at `width` characters."""
    text: str = yaml.dump_all(
        objects, Dumper=_WithoutAnchors, sort_keys=False, allow_unicode=False, width=width, explicit_start=True
    )
    return text


class _WithoutAnchors(yaml.SafeDumper):
    """Writes a value that occurs twice twice: manifests are read by people, and patched by tools."""

    def ignore_aliases(self, data: object) -> bool:
        """Whether a value is written out wherever it occurs: always."""
        del data
        return True
