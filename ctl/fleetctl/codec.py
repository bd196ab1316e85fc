"""JSON in and out of the nouns: one codec for the store, the sockets and `-o json`."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def encode(value: object) -> bytes:
    """Return compact JSON; datetimes are RFC 3339, enums their values, tuples arrays. Key order is field order."""
    return msgspec.json.encode(value)


def decode(kind: type[T], raw: bytes | str) -> T:
    """Return `raw` as `kind`, strictly typed. Raises msgspec.ValidationError naming the path of what is wrong."""
    return msgspec.json.decode(raw, type=kind)


def to_plain(value: object) -> Any:  # noqa: ANN401  # the JSON value tree has no narrower type
    """Return dicts, lists, strings, numbers: what yaml and templates want."""
    return msgspec.to_builtins(value)


def from_plain(kind: type[T], value: object) -> T:
    """Return a plain tree as `kind`, strictly typed. Raises msgspec.ValidationError."""
    return msgspec.convert(value, type=kind)
