"""Writes a Llama of random weights as a GGUF file, small enough to serve on a CPU, byte by byte by the format's description.

What it says is noise, but printable and endless noise: of the last layer only the rows of printable ASCII are not zero,
so an answer is as long as it may be, and can be cut and joined anywhere. Shape and chat template are those of
`tests/engine_env/make_tiny_model.py`, so that both pass for one model.
"""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HIDDEN, LAYERS, HEADS, FEED_FORWARD, CONTEXT = 64, 2, 2, 128, 16384
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
F16, Q8_0 = 1, 8
_ALIGNMENT = 32
_U32, _F32, _BOOL, _STRING, _ARRAY, _I32 = 4, 6, 7, 8, 9, 5
_CONTROL, _NORMAL = 3, 1
_SPECIAL = ("<pad>", "<s>", "</s>")

Tensor = tuple[str, tuple[int, ...], bytes]


def write(path: Path, *, kind: int = F16, seed: int = 0, architecture: str = "llama") -> Path:
    """Write the model; the same every time. `kind`: F16 or Q8_0, of its matrices."""
    tensors = list(_tensors(random.Random(seed), kind))
    values = list(_values(architecture))
    infos, offset = [], 0
    for name, shape, data in tensors:
        stored = 0 if len(shape) == 1 else kind  # norms are 32-bit floats in every file
        infos.append(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, stored, offset))
        offset += _aligned(len(data))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + b"".join([*values, *infos])
    with path.open("wb") as file:
        file.write(head.ljust(_aligned(len(head)), b"\0"))
        for _, _, data in tensors:
            file.write(data.ljust(_aligned(len(data)), b"\0"))
    return path


def alphabet() -> list[str]:
    """Return the character that stands for each byte in GPT-2's vocabularies."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in kept]
    return [chr(byte) if byte in kept else chr(256 + rest.index(byte)) for byte in range(256)]


def _values(architecture: str) -> Iterator[bytes]:
    tokens = [*_SPECIAL, *alphabet(), "Ġt"]
    kinds = [_CONTROL] * len(_SPECIAL) + [_NORMAL] * (len(tokens) - len(_SPECIAL))
    yield _value("general.architecture", _STRING, _text(architecture))
    yield _value("general.name", _STRING, _text("tiny"))
    for name, number in (
        ("context_length", CONTEXT), ("embedding_length", HIDDEN), ("block_count", LAYERS), ("feed_forward_length", FEED_FORWARD),
        ("attention.head_count", HEADS), ("attention.head_count_kv", HEADS), ("rope.dimension_count", HIDDEN // HEADS),
    ):  # fmt: skip
        yield _value(f"{architecture}.{name}", _U32, struct.pack("<I", number))
    yield _value(f"{architecture}.attention.layer_norm_rms_epsilon", _F32, struct.pack("<f", 1e-5))
    yield _value("tokenizer.ggml.model", _STRING, _text("gpt2"))
    yield _value("tokenizer.ggml.pre", _STRING, _text("gpt-2"))
    yield _array("tokenizer.ggml.tokens", _STRING, [_text(token) for token in tokens])
    yield _array("tokenizer.ggml.token_type", _I32, [struct.pack("<i", kind) for kind in kinds])
    yield _array("tokenizer.ggml.merges", _STRING, [_text("Ġ t")])
    for name, number in (("padding_token_id", 0), ("bos_token_id", 1), ("eos_token_id", 2)):
        yield _value(f"tokenizer.ggml.{name}", _U32, struct.pack("<I", number))
    yield _value("tokenizer.ggml.add_bos_token", _BOOL, b"\0")  # as the other tiny model, which has none
    yield _value("tokenizer.chat_template", _STRING, _text(TEMPLATE))


def _tensors(source: random.Random, kind: int) -> Iterator[Tensor]:
    vocabulary = len(_SPECIAL) + 256 + 1
    printable = {len(_SPECIAL) + byte for byte in range(32, 127)}
    yield "token_embd.weight", (HIDDEN, vocabulary), _matrix(source, vocabulary, HIDDEN, kind)
    yield "output_norm.weight", (HIDDEN,), struct.pack(f"<{HIDDEN}f", *[1.0] * HIDDEN)
    yield "output.weight", (HIDDEN, vocabulary), _matrix(source, vocabulary, HIDDEN, kind, rows=printable)
    for layer in range(LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{norm}.weight", (HIDDEN,), struct.pack(f"<{HIDDEN}f", *[1.0] * HIDDEN)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{layer}.{name}.weight", (HIDDEN, HIDDEN), _matrix(source, HIDDEN, HIDDEN, kind)
        for name in ("ffn_gate", "ffn_up"):
            yield f"blk.{layer}.{name}.weight", (HIDDEN, FEED_FORWARD), _matrix(source, FEED_FORWARD, HIDDEN, kind)
        yield f"blk.{layer}.ffn_down.weight", (FEED_FORWARD, HIDDEN), _matrix(source, HIDDEN, FEED_FORWARD, kind)


def _matrix(source: random.Random, rows_count: int, columns: int, kind: int, *, rows: set[int] | None = None) -> bytes:
    packed = []
    for row in range(rows_count):
        is_zero = rows is not None and row not in rows
        figures = [0.0 if is_zero else source.gauss(0.0, 0.3) for _ in range(columns)]
        packed.append(struct.pack(f"<{columns}e", *figures) if kind == F16 else _eight_bit(figures))
    return b"".join(packed)


def _eight_bit(figures: list[float]) -> bytes:
    """Return figures in blocks of 32 with a scale each, as Q8_0 has them."""
    blocks = []
    for start in range(0, len(figures), 32):
        block = figures[start : start + 32]
        scale = max(map(abs, block)) / 127 or 1.0
        blocks.append(struct.pack("<e32b", scale, *[round(figure / scale) for figure in block]))
    return b"".join(blocks)


def _value(key: str, kind: int, packed: bytes) -> bytes:
    return _text(key) + struct.pack("<I", kind) + packed


def _array(key: str, kind: int, packed: list[bytes]) -> bytes:
    return _value(key, _ARRAY, struct.pack("<IQ", kind, len(packed)) + b"".join(packed))


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
