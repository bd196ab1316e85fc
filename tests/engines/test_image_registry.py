"""What an image's tag stands for, by its registry's own HTTP API."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from fleetctl.engine_kit import image_registry
from fleetctl.engine_kit.image_registry import ImageName, image_digest
from fleetctl.errors import ConfigError, UnavailableError
from tests.image_registry import ImageRegistry, running_registry
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def registry() -> Iterator[ImageRegistry]:
    with running_registry() as running:
        yield running


@pytest.mark.parametrize(
    ("image", "registry", "repository", "tag"),
    [
        ("vllm/vllm-openai:v0.32.0", "registry-1.docker.io", "vllm/vllm-openai", "v0.32.0"),
        ("ubuntu", "registry-1.docker.io", "library/ubuntu", "latest"),
        ("docker.io/ubuntu:24.04", "registry-1.docker.io", "library/ubuntu", "24.04"),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda-b11549", "ghcr.io", "ggml-org/llama.cpp", "server-cuda-b11549"),
        ("localhost/x", "localhost", "x", "latest"),
        ("localhost:5000/a/b_c:1", "localhost:5000", "a/b_c", "1"),
        ("[::1]:5000/engines/x:1", "[::1]:5000", "engines/x", "1"),
    ],
)
def test_names_are_read_as_docker_reads_them(image: str, registry: str, repository: str, tag: str) -> None:
    found = ImageName.parse(image)
    assert (found.registry, found.repository, found.tag) == (registry, repository, tag)
    assert found.name == image.removesuffix(f":{tag}")
    assert found.manifest_url.startswith("http://" if "localhost" in image or "::1" in image else "https://")


@pytest.mark.parametrize("image", ["", "Upper/case:1", "a:", "a/../b:1", "a b:1", "x@sha256:12", "host.io/:1"])
def test_what_is_no_name_is_refused(image: str) -> None:
    with pytest.raises(ConfigError, match="no image's name with a tag"):
        ImageName.parse(image)


@pytest.mark.parametrize("needs_token", [True, False])
@pytest.mark.parametrize("names_digest", [True, False])
async def test_a_tag_is_what_its_registry_says(
    registry: ImageRegistry, *, needs_token: bool, names_digest: bool
) -> None:
    registry.needs_token, registry.names_digest = needs_token, names_digest
    image = f"{registry.host}/engines/vllm:v1"
    first = registry.push("engines/vllm", "v1", "first")
    assert await image_digest(image) == first
    second = registry.push("engines/vllm", "v1", "second")
    assert await image_digest(image) == second != first
    assert {method for method, _, _ in registry.seen} == (
        {"HEAD"} if names_digest and not needs_token else {"HEAD", "GET"}
    )


async def test_a_registry_that_sends_elsewhere_gets_its_token_there_alone(
    registry: ImageRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with running_registry() as mirror:
        registry.needs_token, registry.redirects_to = False, mirror.host
        digest = mirror.push("engines/vllm", "v1", "of the mirror")
        assert await image_digest(f"{registry.host}/engines/vllm:v1") == digest
        assert [who for _, _, who in registry.seen] == [""], "nobody's name"
        assert mirror.seen[-1][2].startswith("Bearer ")


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (403, r"lets nobody read engines/vllm without credentials \(403\)"),
        (401, r"lets nobody read engines/vllm without credentials \(401\)"),
        (429, r"was asked too often from this address \(429\)"),
        (500, "answers 500 for engines/vllm"),
        (0, r"has no engines/vllm with tag v1 \(404\)"),
    ],
)
async def test_a_refusal_is_said(registry: ImageRegistry, status: int, fault: str) -> None:
    registry.status = status
    with pytest.raises(UnavailableError, match=f"^{registry.host} {fault}$"):
        await image_digest(f"{registry.host}/engines/vllm:v1")


async def test_one_that_is_not_reached_is_said() -> None:
    with pytest.raises(UnavailableError, match="is not reached"):
        await image_digest(f"127.0.0.1:{free_port()}/engines/vllm:v1")


async def test_one_that_never_answers_is_waited_for_no_longer_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_registry, "DEADLINE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=f"{host} has not answered within 0.3 s"):
            await image_digest(f"{host}/engines/vllm:v1")
