"""A pipeline that reaches no cluster plans and renders for one by the pools that the profile names."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Ran

POOLS = "  pools: [8xNVIDIA-L40S/on-demand, 8xNVIDIA-L40S/spot]"
AMD_POOL = "  pools: [8xAMD_Instinct_MI300X_OAM/on-demand, 8xAMD_Instinct_MI300X_OAM/spot]"


@pytest.fixture
def profile(home: Path, fleetctl: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBECONFIG", str(home / "none"))
    file = home / "mine.yaml"
    assert fleetctl("init", str(file), "--provider", "kubernetes", "-q").code == 0
    return file


def test_without_pools_it_is_refused_and_the_hint_names_them(profile: Path, fleetctl: Callable[..., Ran]) -> None:
    ran = fleetctl("plan", str(profile), "--no-proof")
    assert ran.code == 13
    assert "no cluster to work in" in ran.err
    assert "provider.pools" in ran.err


def test_a_plan_for_an_amd_gpu_says_that_its_image_is_to_be_one_for_rocm(
    profile: Path, fleetctl: Callable[..., Ran], home: Path
) -> None:
    text = profile.read_text().replace("kind: kubernetes\n", f"kind: kubernetes\n{AMD_POOL}\n", 1)
    text = re.sub(r"gpus: \[.*\]", "gpus: [MI300X]", text)
    profile.write_text(text)
    caution = "is planned for MI300X, and vllm/vllm-openai:"
    ran = fleetctl("plan", str(profile), "--no-proof")
    assert ran.code == 0, ran.err
    assert caution in " ".join((ran.out + ran.err).split())
    ran = fleetctl("render", str(profile), "--target", "kubernetes", "-o", str(home / "out"))
    assert ran.code == 0
    assert caution in " ".join(ran.err.split())
    rendered = (home / "out" / "kubernetes" / "short.yaml").read_text()
    assert "amd.com/gpu: " in rendered
    assert "nvidia.com/gpu" not in rendered


def test_named_pools_are_planned_and_rendered_by_and_nothing_is_brought_up(
    profile: Path, fleetctl: Callable[..., Ran], home: Path
) -> None:
    text = profile.read_text()
    assert "kind: kubernetes\n" in text
    profile.write_text(text.replace("kind: kubernetes\n", f"kind: kubernetes\n{POOLS}\n", 1))
    ran = fleetctl("plan", str(profile), "--no-proof")
    assert ran.code == 0
    assert "the cluster could not be asked" in ran.out
    assert "planned by the pools that the profile names" in ran.out
    assert "the provider has no prices" in ran.out
    found = json.loads(fleetctl("plan", str(profile), "--no-proof", "-o", "json").out)
    assert {lane["offering"]["gpu"] for lane in found["lanes"]} == {"L40S"}
    assert fleetctl("render", str(profile), "--target", "kubernetes", "-o", str(home / "out")).code == 0
    assert (home / "out" / "kubernetes" / "short.yaml").is_file()
    ran = fleetctl("up", str(profile), "-y", "--no-proof")
    assert ran.code == 13
    assert "no cluster to work in" in ran.err
