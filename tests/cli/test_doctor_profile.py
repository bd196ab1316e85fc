"""`doctor PROFILE`: what stands between one profile and `up` on this machine, and what is there already."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleetctl.testing.nvml import FakeNvmlLibrary, gpu_machine, installed
from fleetctl_local.gpus import VISIBLE_GPUS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran

GATED = "meta-llama/Llama-3.1-8B-Instruct"
PROFILE = """\
apiVersion: fleetctl/v1
name: box
model: {id: %s}
engine: {kind: vllm, executable: %s}
provider: local
workload: {peak_rps: 1, prompt_tokens: {p50: 480, p99: 3800}, output_tokens: {p50: 129, p99: 600}}
slo: {objective: 99%%, window: 7d}
lanes:
  all: {slo: {ttft: {p99: 5s}, itl: {p99: 150ms}}, max_wait: 5s%s}
gateway: {port: %d}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in (VISIBLE_GPUS, "HF_HUB_CACHE", "HF_TOKEN", "HUB_ACCESS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "hf"


def checked(
    fleetctl: Callable[..., Ran], *, model: str = GATED, lane: str = "", port: int = 8011
) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """Return the exit code, and the verdicts and findings by name."""
    Path("box.yaml").write_text(PROFILE % (model, sys.executable, lane, port))
    with installed(FakeNvmlLibrary(gpu_machine(2))):
        ran = fleetctl("doctor", "box.yaml", "-o", "json")
    found: dict[str, list[tuple[str, str]]] = {}
    for each in json.loads(ran.out):
        found.setdefault(each["name"], []).append((each["verdict"], each["found"] + "; " + each["advice"]))
    return ran.code, found


def test_an_engine_weights_and_a_gated_models_token_that_are_missing_are_named(fleetctl: Callable[..., Ran]) -> None:
    code, found = checked(fleetctl)
    assert code == 1  # the engine
    assert found["profile"][0][1].startswith("box is planned: 1 replica, $0.00 an hour")
    assert found["vllm"] == [("fail", found["vllm"][0][1])]
    ((verdict, words),) = found["weights"]
    assert verdict == "warn"
    assert "it is gated, and no token is given" in words
    assert "15GiB are to be fetched" in found["room for weights"][0][1]
    assert "HF_TOKEN" not in found
    assert [verdict for verdict, _ in found["GPUs"]] == ["ok"]


def test_a_token_is_found_where_it_is_given_and_a_secret_that_leads_nowhere_fails(
    fleetctl: Callable[..., Ran], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = ", launch: {env: {HF_TOKEN: env:HUB_ACCESS}}"
    _, found = checked(fleetctl, lane=lane)
    ((verdict, words),) = found["secrets"]
    assert verdict == "fail"
    assert "HUB_ACCESS" in words
    monkeypatch.setenv("HUB_ACCESS", "of-the-hub")
    _, found = checked(fleetctl, lane=lane)
    assert found["secrets"] == [("ok", "all: HF_TOKEN is there, by env:HUB_ACCESS; ")]
    assert found["HF_TOKEN"][0][0] == "ok"
    assert "of-the-hub" not in str(found)
    cache.mkdir()
    (cache / "token").write_text("of a login")
    assert "of a login, at" in checked(fleetctl)[1]["HF_TOKEN"][0][1]


def test_weights_that_are_here_need_neither_room_nor_token(fleetctl: Callable[..., Ran], cache: Path) -> None:
    snapshot = cache / "hub" / f"models--{GATED.replace('/', '--')}" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").write_bytes(b"weights")
    _, found = checked(fleetctl)
    assert found["weights"] == [("ok", f"{GATED} is on this machine; ")]
    assert not found.keys() & {"room for weights", "HF_TOKEN"}


def test_a_port_that_is_taken_fails(fleetctl: Callable[..., Ran]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        _, found = checked(fleetctl, port=taken.getsockname()[1])
    assert [verdict for verdict, _ in found["port"]] == ["fail"]


def test_a_profile_that_cannot_be_read_or_planned_says_where_and_exits_1(fleetctl: Callable[..., Ran]) -> None:
    code, found = checked(fleetctl, model="no/such-model")
    assert code == 1
    assert any("box.yaml:3: model.id" in words for verdict, words in found["profile"] if verdict == "fail")
    code, found = checked(fleetctl, lane=", max_weight: 3")
    assert code == 1
    assert list(found) == ["profile"]
    assert "max_weight" in found["profile"][0][1]


def test_nothing_is_brought_up_by_looking(fleetctl: Callable[..., Ran]) -> None:
    checked(fleetctl)
    assert fleetctl("ls", "-o", "name").out == ""
