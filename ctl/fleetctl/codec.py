"""JSON in and out of the nouns: one codec for the store, the sockets and `-o json`."""

from __future__ import annotations

import threading
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

# msgspec learns a dataclass when it first meets it, and another thread that meets it meanwhile finds it half learned and
# brings the process down (0.22; the store's thread and the loop's both decode). So each kind is learned by one at a time.
_learning = threading.Lock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def encode(value: object) -> bytes:
    """Return compact JSON; datetimes are RFC 3339, enums their values, tuples arrays. Key order is field order."""
    return msgspec.json.encode(value)


def decode(kind: type[T], raw: bytes | str) -> T:
    """Return `raw` as `kind`, strictly typed. Raises msgspec.ValidationError naming the path of what is wrong."""
    found: T = _decoder(kind).decode(raw)
    return found


def to_plain(value: object) -> Any:  # noqa: ANN401  # the JSON value tree has no narrower type
    """Return dicts, lists, strings, numbers: what yaml and templates want."""
    return msgspec.to_builtins(value)


def from_plain(kind: type[T], value: object) -> T:
    """Return a plain tree as `kind`, strictly typed. Raises msgspec.ValidationError."""
    _decoder(kind)
    return msgspec.convert(value, type=kind)


def field_names(kind: object) -> tuple[str, ...]:
    """Return the fields of a noun, a dataclass or a msgspec struct, in their order; empty: it is neither."""
    if not isinstance(kind, type):
        return ()
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else ()


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    found = _decoders.get(kind)
    if found is None:
        with _learning:
            found = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    return found
