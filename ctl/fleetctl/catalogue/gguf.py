"""A model's shape from the header of its GGUF file, with the parameters counted tensor by tensor.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.catalogue import ModelCard, Precision

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUFFIX: Final = ".gguf"
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
# What a value's type is packed as; strings (8) and arrays (9) are apart.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_KEPT_MAX = 1024  # of an array's values; longer ones (vocabularies) are only counted
_DIMENSIONS_MAX = 4  # of a tensor, by the format
# Tensor types (ggml_type) by the precision that holds them: five and six bits are planned as eight, two and three as four.
_TENSOR_PRECISIONS = {
    1: Precision.FP16, 30: Precision.BF16,
    6: Precision.INT8, 7: Precision.INT8, 8: Precision.INT8, 9: Precision.INT8, 13: Precision.INT8, 14: Precision.INT8,
    15: Precision.INT8,
    2: Precision.INT4, 3: Precision.INT4, 10: Precision.INT4, 11: Precision.INT4, 12: Precision.INT4,
    16: Precision.INT4, 17: Precision.INT4, 18: Precision.INT4, 19: Precision.INT4, 20: Precision.INT4,
    21: Precision.INT4, 22: Precision.INT4, 23: Precision.INT4, 29: Precision.INT4, 39: Precision.INT4,
    40: Precision.INT4,
}  # fmt: skip
_F32 = 0
_EXPERTS = re.compile(r"\.ffn_\w+_exps\.")
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")

Value = int | float | bool | str | list[int | float | bool]


class _NoGgufError(Exception):
    """The bytes are not those of a GGUF file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _GgufTensor:
    name: str
    elements: int
    kind: int  # ggml_type


@dataclass(frozen=True, slots=True, kw_only=True)
class _GgufHeader:
    """What stands before the weights; of an array too long to keep there is its length, under its key and "#"."""

    values: dict[str, Value]
    tensors: tuple[_GgufTensor, ...]


def is_gguf(path: str) -> bool:
    """Whether a path names a GGUF file."""
    return path.endswith(SUFFIX)


def model_card_from_gguf(path: Path) -> ModelCard:
    """Return the card of the model in a file, or in all its parts where it is split; its id is the file's name.

    Raises NotFoundError, and ConfigError for what is no GGUF file, is cut off, or holds a model that cannot be planned.
    """
    parts = [_header(part) for part in _parts(path)]
    return _card(parts[0].values, tuple(tensor for part in parts for tensor in part.tensors), path)


def _parts(path: Path) -> Iterator[Path]:
    """Yield the files of a model. Raises ConfigError where the one named is not the first."""
    found = _PART.search(path.name)
    if found is None:
        yield path
        return
    if int(found[1]) != 1:
        raise ConfigError(f"{path}: is part {int(found[1])} of {int(found[2])}", hint="name the first part")
    for number in range(1, int(found[2]) + 1):
        yield path.with_name(f"{path.name[: found.start()]}-{number:05d}-of-{found[2]}{SUFFIX}")


def _header(path: Path) -> _GgufHeader:
    try:
        status = path.stat()
        return _read(path, status.st_mtime_ns, status.st_size)
    except FileNotFoundError:
        raise NotFoundError(f"no model at {path}", hint="name a GGUF file that is there") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (_NoGgufError, struct.error, UnicodeDecodeError, ValueError) as error:
        why = error if isinstance(error, _NoGgufError) else "its header is cut off or damaged"
        raise ConfigError(f"{path}: {why}", hint="fetch or convert it again") from error


@lru_cache(maxsize=16)
def _read(path: Path, changed_ns: int, size: int) -> _GgufHeader:
    """Read a file's header; `changed_ns` and `size` have a changed file read again. A vocabulary of 128k takes 0.1 s."""
    del changed_ns
    if size < len(_MAGIC):
        raise _NoGgufError("is no GGUF file")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _GgufReader(data).header()


@dataclass(slots=True)
class _GgufReader:
    """Reads one file from its beginning."""

    data: mmap.mmap
    at: int = 0
    values: dict[str, Value] = field(default_factory=dict)

    def header(self) -> _GgufHeader:
        if self.data[: len(_MAGIC)] != _MAGIC:
            raise _NoGgufError("is no GGUF file")
        self.at = len(_MAGIC)
        version = self._scalar("I")
        if version not in _VERSIONS:
            raise _NoGgufError(f"is GGUF version {version}, and {_VERSIONS[0]} to {_VERSIONS[-1]} are known")
        tensors, keys = int(self._scalar("Q")), int(self._scalar("Q"))
        for _ in range(self._bounded(keys)):
            key = self._string()
            self._value(key, int(self._scalar("I")))
        found = tuple(self._tensor() for _ in range(self._bounded(tensors)))
        return _GgufHeader(values=self.values, tensors=found)

    def _value(self, key: str, kind: int) -> None:
        if kind == _STRING:
            self.values[key] = self._string()
        elif kind == _ARRAY:
            self._array(key, int(self._scalar("I")), int(self._scalar("Q")))
        else:
            self.values[key] = self._scalar(_packed(kind))

    def _array(self, key: str, kind: int, count: int) -> None:
        self.values[f"{key}#"] = self._bounded(count)
        if kind == _STRING:
            for _ in range(count):
                length = self._scalar("Q")
                self._skip(int(length))
        elif kind == _ARRAY:
            raise _NoGgufError("has an array of arrays, which no GGUF file has")
        elif count <= _KEPT_MAX:
            self.values[key] = [self._scalar(_packed(kind)) for _ in range(count)]
        else:
            self._skip(count * struct.calcsize(f"<{_packed(kind)}"))

    def _tensor(self) -> _GgufTensor:
        name, dimensions = self._string(), int(self._scalar("I"))
        if dimensions > _DIMENSIONS_MAX:
            raise _NoGgufError(f"has a tensor of {dimensions} dimensions, which no GGUF file has")
        elements = math.prod(int(self._scalar("Q")) for _ in range(dimensions))
        kind = int(self._scalar("I"))
        self._scalar("Q")  # where its data lie
        return _GgufTensor(name=name, elements=elements, kind=kind)

    def _string(self) -> str:
        length = int(self._scalar("Q"))
        start = self.at
        self._skip(length)
        return self.data[start : self.at].decode()

    def _scalar(self, packed: str) -> int | float | bool:
        value: int | float | bool = struct.unpack_from(f"<{packed}", self.data, self.at)[0]
        self.at += struct.calcsize(f"<{packed}")
        return value

    def _skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.data):
            raise _NoGgufError("its header is cut off or damaged")

    def _bounded(self, count: int) -> int:
        """Return a count of things of which each takes a byte at least. A damaged one would be counted to for years."""
        if count > len(self.data):
            raise _NoGgufError("its header is cut off or damaged")
        return count


def _packed(kind: int) -> str:
    if kind not in _SCALARS:
        raise _NoGgufError(f"has a value of the unknown type {kind}")
    return _SCALARS[kind]


def _card(values: dict[str, Value], tensors: tuple[_GgufTensor, ...], path: Path) -> ModelCard:
    family = values.get("general.architecture")
    if not isinstance(family, str):
        raise ConfigError(f"{path}: names no architecture", hint="it holds no model, but an adapter or a projector")
    if f"{family}.attention.kv_lora_rank" in values:
        raise ConfigError(f"{path}: multi-head latent attention is not supported", hint="its KV cache is no GQA cache")
    if f"{family}.ssm.state_size" in values:
        raise ConfigError(f"{path}: {family} is no plain transformer, and its memory cannot be planned")
    heads = _number(values, path, f"{family}.attention.head_count")
    hidden = _number(values, path, f"{family}.embedding_length")
    experts = _number(values, path, f"{family}.expert_count", default=1)
    used = _number(values, path, f"{family}.expert_used_count", default=1)
    params = sum(tensor.elements for tensor in tensors)
    idle = (
        sum(tensor.elements for tensor in tensors if _EXPERTS.search(tensor.name)) * max(0, experts - used) // experts
    )
    return ModelCard(
        id=path.stem,
        params=params,
        active_params=params - idle,
        num_layers=_number(values, path, f"{family}.block_count"),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=_number(values, path, f"{family}.attention.head_count_kv", default=heads),
        head_dim=_number(values, path, f"{family}.attention.key_length", default=hidden // heads),
        vocab_size=_number(values, path, "tokenizer.ggml.tokens#"),
        context_tokens_max=_number(values, path, f"{family}.context_length"),
        tied_embeddings=all(tensor.name != "output.weight" for tensor in tensors),
        native_precision=_precision(tensors, path),
        source=str(path),
    )


def _number(values: dict[str, Value], path: Path, key: str, default: int | None = None) -> int:
    """Return a count; of one a layer the highest, so that no layer has less room than it takes."""
    value = values.get(key, default)
    if isinstance(value, list):
        value = max((each for each in value if isinstance(each, int)), default=None)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ConfigError(f"{path}: {key.removesuffix('#')} is missing, or no whole number above zero")
    return value


def _precision(tensors: tuple[_GgufTensor, ...], path: Path) -> Precision:
    """Return the precision that most of the weights are in."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        sizes[tensor.kind] = sizes.get(tensor.kind, 0) + tensor.elements
    most = max(sizes, key=lambda kind: sizes[kind], default=None)
    if most is None:
        raise ConfigError(f"{path}: has no tensors", hint="fetch or convert it again")
    if most not in _TENSOR_PRECISIONS:
        what = "32-bit floats" if most == _F32 else f"of a type that is not known here ({most})"
        raise ConfigError(f"{path}: its weights are {what}", hint="convert it to F16 or quantize it (llama-quantize)")
    return _TENSOR_PRECISIONS[most]
