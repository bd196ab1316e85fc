"""An image, volumes and the hub's cache of a profile, in every file that starts an engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from fleetctl.cli.main import main
from tests.render import readers

PROFILE = """\
apiVersion: fleetctl/v1
name: boxes
model: {id: Qwen/Qwen3-8B}
engine: %s
provider: local
workload: {peak_rps: 1, prompt_tokens: {p50: 480, p99: 3800}, output_tokens: {p50: 129, p99: 600}}
slo: {objective: 99%%, window: 7d}
lanes:
  all:
    slo: {ttft: {p99: 3s}, itl: {p99: 150ms}}
    max_wait: 5s
    launch: {%s}
capacity: {gpus: [L40S]}
"""
KEYS = (
    "image: 'registry.local/vllm-openai:own', hub_cache: /srv/hub, "
    "volumes: ['./lora $x:/adapters:ro', 'scratch:/scratch', '/etc/pki:/etc/pki:ro'], env: {HF_TOKEN: env:HF_TOKEN}"
)
Render: TypeAlias = Callable[..., dict[str, str]]


@pytest.fixture
def render(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Render:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def files(launch: str = KEYS, *argv: str, engine: str = "vllm") -> dict[str, str]:
        Path("box.yaml").write_text(PROFILE % (engine, launch))
        code = main(["render", "box.yaml", "-o", "out", "--force", *argv])
        assert code == 0, capsys.readouterr().err
        return {path.name: path.read_text() for path in Path("out/all").iterdir()}

    return files


def volumes(service: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    found = service["volumes"]
    return [(each["type"], each["source"], each["target"], bool(each.get("read_only"))) for each in found]


def test_a_container_is_made_of_the_profiles_image_and_sees_its_volumes(render: Render, tmp_path: Path) -> None:
    text = render()["compose.yaml"]
    service: dict[str, Any] = readers.compose(text)
    assert service["image"] == "registry.local/vllm-openai:own"
    assert volumes(service) == [
        ("bind", "/srv/hub", "/srv/hub", False),
        ("bind", f"{tmp_path}/lora $x", "/adapters", True),
        ("volume", "scratch", "/scratch", False),
        ("bind", "/etc/pki", "/etc/pki", True),
    ]
    assert yaml.safe_load(text)["volumes"] == {"scratch": {}}
    assert service["environment"]["HF_HUB_CACHE"] == "/srv/hub"
    assert service["environment"]["HF_TOKEN"] == "<HF_TOKEN>"  # noqa: S105  # its name, as compose asks for it


def test_a_unit_may_write_the_cache_and_sees_the_paths_among_the_volumes(render: Render, tmp_path: Path) -> None:
    unit = readers.unit_settings(render()["fleetctl-boxes-all.service"])
    assert unit["Service.ReadWritePaths"] == ["/srv/hub"]
    read_only = [readers.systemd_words(raw) for raw in unit["Service.BindReadOnlyPaths"]]
    assert read_only == [[f"{tmp_path}/lora $x:/adapters"], ["/etc/pki:/etc/pki"]]
    assert "Service.BindPaths" not in unit
    assert "HF_HUB_CACHE=/srv/hub" in unit["Service.Environment"]


def test_whoever_reads_the_manifest_finds_them(render: Render, tmp_path: Path) -> None:
    manifest = json.loads(render()["launch.json"])
    assert manifest["image"] == "registry.local/vllm-openai:own"
    assert manifest["volumes"] == [f"{tmp_path}/lora $x:/adapters:ro", "scratch:/scratch:rw", "/etc/pki:/etc/pki:ro"]
    assert manifest["env"]["HF_HUB_CACHE"] == "/srv/hub"
    assert manifest["env_from"]["HF_TOKEN"] == "env:HF_TOKEN"  # noqa: S105  # where it lies


def test_an_engine_asked_for_instead_keeps_volumes_and_cache_and_its_own_image(render: Render) -> None:
    service: dict[str, Any] = readers.compose(render(KEYS, "--engine", "tgi")["compose.yaml"])
    assert "text-generation-inference" in service["image"]
    assert ("bind", "/srv/hub", "/srv/hub", False) in volumes(service)
    assert service["environment"]["HF_HUB_CACHE"] == "/srv/hub"


def test_a_home_in_a_path_is_that_of_who_reads_the_profile(render: Render, tmp_path: Path) -> None:
    service: dict[str, Any] = readers.compose(render("hub_cache: ~/hub, volumes: ['~/data:/data']")["compose.yaml"])
    assert [source for _, source, _, _ in volumes(service)] == [f"{tmp_path}/home/hub", f"{tmp_path}/home/data"]


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        ("volumes: ['/data']", "is no volume; write SOURCE:TARGET"),
        ("volumes: ['/data:models']", "is no volume"),
        ("volumes: ['/data:/models:rx']", "is no volume"),
        ("volumes: ['data/x:/models']", "is no volume"),
        ("hub_cache: data", "hub_cache"),
        ("image: 'a b'", "image"),
    ],
)
def test_what_no_container_could_be_given_is_refused_by_its_key(
    launch: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("box.yaml").write_text(PROFILE % ("vllm", launch))
    assert main(["validate", "box.yaml"]) == 3
    error = capsys.readouterr().err
    assert "box.yaml:12" in error
    assert says in error
