"""What of a model is in the hub's cache, whole, in part, or reserved, as its clients write it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from fleetctl.engine_kit.hub_cache import AbsentWeights, absent_weights
from fleetctl.plugins import load_engine
from fleetctl.testing import samples
from tests.plan.profiles import CATALOGUE

if TYPE_CHECKING:
    from pathlib import Path

MODEL = samples.plan().lane("short").launch.model
CARD = CATALOGUE.models["meta-llama/Llama-3.1-8B-Instruct"]
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "hub" / f"models--{MODEL.replace('/', '--')}"


def absent(tmp_path: Path) -> AbsentWeights | None:
    profile, planned = samples.profile(), samples.plan().lane("short")
    return absent_weights(
        load_engine("vllm"), profile.lane("short"), planned, CARD, environment={"HF_HOME": str(tmp_path)}
    )


def fetched(repository: Path, name: str, content: bytes = b"w") -> None:
    """Put a file where the hub's client does: a blob, and a link to it in the snapshot."""
    blob, link = repository / "blobs" / name, repository / "snapshots" / "abc" / name
    for place in (blob, link):
        place.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    link.symlink_to(os.path.relpath(blob, link.parent))


def test_of_weights_in_shards_one_alone_is_not_all(tmp_path: Path, repository: Path) -> None:
    index = json.dumps({"weight_map": {f"layer{n}": name for n, name in enumerate(SHARDS)}}).encode()
    fetched(repository, "model.safetensors.index.json", index)
    fetched(repository, SHARDS[0])
    assert absent(tmp_path) is not None
    fetched(repository, SHARDS[1])
    assert absent(tmp_path) is None


def test_one_file_without_an_index_is_all(tmp_path: Path, repository: Path) -> None:
    assert absent(tmp_path) is not None
    fetched(repository, "model.safetensors")
    assert absent(tmp_path) is None


def test_an_index_that_cannot_be_read_says_nothing_is_whole(tmp_path: Path, repository: Path) -> None:
    fetched(repository, "model.safetensors.index.json", b"{")
    fetched(repository, SHARDS[0])
    assert absent(tmp_path) is not None


def test_what_is_written_counts_and_what_is_reserved_does_not(tmp_path: Path, repository: Path) -> None:
    (repository / "blobs").mkdir(parents=True)
    (repository / "blobs" / "one.incomplete").write_bytes(b"x" * 1_000_000)
    with (repository / "blobs" / "two.incomplete").open("wb") as file:
        file.truncate(10**9)
    found = absent(tmp_path)
    assert found is not None
    assert found.fetched_bytes == 1_000_000
    assert found.total_bytes == 2 * CARD.params
    assert found.left_bytes == 2 * CARD.params - 1_000_000


def test_a_cache_of_its_own_is_where_it_is_looked_for(tmp_path: Path, repository: Path) -> None:
    fetched(repository, "model.safetensors")
    profile, planned = samples.profile(), samples.plan().lane("short")
    elsewhere = {"HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "other")}
    engine, lane = load_engine("vllm"), profile.lane("short")
    assert absent_weights(engine, lane, planned, CARD, environment=elsewhere) is not None
    assert absent_weights(engine, lane, planned, CARD, environment={"HF_HUB_CACHE": str(tmp_path / "hub")}) is None
