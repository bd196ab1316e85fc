"""A GGUF file's header becomes a model card, and no file at all makes anything but a clear error."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fleetctl.catalogue.gguf import model_card_from_gguf
from fleetctl.core.perf.kv import weight_bytes
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.catalogue import ModelCard, Precision
from tests.engines import tiny_gguf

if TYPE_CHECKING:
    from pathlib import Path

EMBEDDINGS = 2 * 260 * 64
LAYER = 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64
TINY = ModelCard(
    id="tiny", params=EMBEDDINGS + 2 * LAYER + 64, active_params=EMBEDDINGS + 2 * LAYER + 64, num_layers=2, hidden_size=64,
    num_heads=2, num_kv_heads=2, head_dim=32, vocab_size=260, context_tokens_max=16384, native_precision=Precision.FP16,
)  # fmt: skip


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return tiny_gguf.write(tmp_path / "tiny.gguf")


def test_a_file_says_all_that_a_plan_needs(tiny: Path) -> None:
    assert replace(model_card_from_gguf(tiny), source="") == TINY
    assert model_card_from_gguf(tiny).source == str(tiny)


def test_the_precision_is_that_of_most_weights(tmp_path: Path) -> None:
    card = model_card_from_gguf(tiny_gguf.write(tmp_path / "eight.gguf", kind=tiny_gguf.Q8_0))
    assert card.native_precision is Precision.INT8
    assert weight_bytes(card, card.native_precision) < weight_bytes(TINY, Precision.FP16)


def test_a_file_that_changes_is_read_again(tiny: Path) -> None:
    assert model_card_from_gguf(tiny).native_precision is Precision.FP16
    tiny_gguf.write(tiny, kind=tiny_gguf.Q8_0)
    assert model_card_from_gguf(tiny).native_precision is Precision.INT8


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no model at .*none\.gguf"):
        model_card_from_gguf(tmp_path / "none.gguf")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "dir.gguf").mkdir()
    with pytest.raises(ConfigError, match=r"dir\.gguf: cannot be read"):
        model_card_from_gguf(tmp_path / "dir.gguf")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (b"", "is no GGUF file"),
        (b"{}", "is no GGUF file"),
        (b"PK\3\4 and so on and on", "is no GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "is GGUF version 1, and 2 to 3 are known"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "is GGUF version 50331648"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**62), "its header is cut off or damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**62, 0), "its header is cut off or damaged"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63), "its header is cut off or damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "names no architecture"),
    ],
)
def test_what_is_no_model_is_refused_by_name(tmp_path: Path, found: bytes, words: str) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(found)
    with pytest.raises(ConfigError, match=rf"odd\.gguf: {words}"):
        model_card_from_gguf(path)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_file_that_was_cut_or_damaged_anywhere_is_read_or_refused(tiny: Path, data: st.DataObject) -> None:
    whole = tiny.read_bytes()
    at = data.draw(st.integers(0, 9000))
    is_cut = data.draw(st.booleans())
    broken = whole[:at] if is_cut else whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1 :]
    path = tiny.with_name("broken.gguf")
    path.write_bytes(broken)
    with suppress(ConfigError):
        model_card_from_gguf(path)


def test_a_model_in_parts_is_counted_over_all_of_them(tmp_path: Path) -> None:
    whole = tiny_gguf.write(tmp_path / "m-00001-of-00002.gguf")
    with pytest.raises(NotFoundError, match=r"m-00002-of-00002\.gguf"):
        model_card_from_gguf(whole)
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(whole.read_bytes())
    assert model_card_from_gguf(whole).params == 2 * TINY.params
    with pytest.raises(ConfigError, match="is part 2 of 2"):
        model_card_from_gguf(tmp_path / "m-00002-of-00002.gguf")
