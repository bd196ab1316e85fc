"""Blocks of HCL, as Terraform reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


class Reference(str):
    """An expression, written as it is; any other text is quoted, and may have ${...} in it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Block:
    """A block with its labels, its attributes and the blocks within it."""

    kind: str
    labels: tuple[str, ...]
    attributes: Mapping[str, object]
    blocks: list[Block] = field(default_factory=list)


def hcl_text(blocks: Iterable[Block]) -> str:
    """Return blocks as a file's text."""
    return "\n".join("".join(f"{line}\n" for line in _lines(block)) for block in blocks)


def _lines(block: Block) -> Iterator[str]:
    head = " ".join([block.kind, *(json.dumps(label) for label in block.labels)])
    if not block.attributes and not block.blocks:
        yield f"{head} {{}}"
        return
    yield f"{head} {{"
    width = max(map(len, block.attributes), default=0)
    for name, value in block.attributes.items():
        first, *rest = _value(value).splitlines()
        yield f"  {name:<{width}} = {first}"
        yield from (f"  {line}" for line in rest)
    for inner in block.blocks:
        yield from (f"  {line}" for line in _lines(inner))
    yield "}"


def _value(value: object) -> str:
    if isinstance(value, Reference):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_value(each)}" for name, each in value.items()) + " }"
    return json.dumps(value)
