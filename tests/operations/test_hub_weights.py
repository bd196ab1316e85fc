"""What an engine has to fetch first, and may not be let to, is explained before it is started."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.model.preflight import Finding, Verdict
from fleetctl.operations.hub_weights import weights_findings
from fleetctl.plugins import load_engine
from fleetctl.ports.provider import ProviderCapabilities
from fleetctl.testing import samples
from tests.plan.profiles import CATALOGUE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sites import FakeSite

LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-8B"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for name in ("HF_HUB_CACHE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def found(
    fakes: FakeSite, model: str, *, engine: str = "vllm", env: dict[str, str] | None = None, runs_here: bool = True
) -> list[Finding]:
    fakes.provider.capabilities = ProviderCapabilities(runs_here=runs_here)
    site = replace(fakes.site, engines=load_engine)
    profile, plan = samples.profile(), samples.plan()
    lane, planned = profile.lane("short"), plan.lane("short")
    lane = replace(lane, engine=engine, launch=replace(lane.launch, env=env or {}))
    planned = replace(planned, engine=engine, launch=replace(planned.launch, model=model))
    profile = replace(profile, lanes=(lane,))
    return list(weights_findings(site, profile, replace(plan, lanes=(planned,), model_card=CATALOGUE.models[LLAMA])))


def test_what_is_fetched_first_is_said_with_its_size(fakes: FakeSite, cache: Path) -> None:
    (finding,) = found(fakes, QWEN)
    assert finding.verdict is Verdict.WARN
    assert f"{QWEN} is not in {cache / 'hub'}" in finding.detail
    assert finding.detail.endswith("15GiB by its card")
    assert "it is gated" not in finding.detail
    assert "control.start_timeout" in finding.hint


def test_a_gated_model_without_a_token_is_explained(fakes: FakeSite, cache: Path) -> None:
    (finding,) = found(fakes, LLAMA)
    assert "it is gated, and no token is given" in finding.detail
    assert f"accept its licence at https://huggingface.co/{LLAMA}" in finding.hint
    (finding,) = found(fakes, LLAMA, env={"HF_TOKEN": "env:HF_TOKEN"})
    assert "it is gated" not in finding.detail
    (cache / "token").write_text("of a login")
    (finding,) = found(fakes, LLAMA)
    assert "it is gated" not in finding.detail


def test_a_disk_that_does_not_hold_them_is_refused_with_figures(
    fakes: FakeSite, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = replace(CATALOGUE.models[LLAMA], params=10**18, active_params=10**18)
    monkeypatch.setitem(CATALOGUE.models, LLAMA, model)
    (finding,) = found(fakes, QWEN)
    assert finding.verdict is Verdict.FAIL
    assert re.search(rf"{QWEN} takes \S+TiB, and \S+ are left for it at {cache / 'hub'}", finding.detail)
    assert "launch.hub_cache" in finding.hint


def test_nothing_is_said_of_weights_that_are_here_or_are_not_fetched(fakes: FakeSite, cache: Path) -> None:
    snapshot = cache / "hub" / "models--Qwen--Qwen3-8B" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").touch()
    assert not found(fakes, QWEN)
    assert not found(fakes, str(cache))
    assert not found(fakes, LLAMA, engine="emulator")
    assert not found(fakes, LLAMA, engine="llamacpp")
    assert not found(fakes, LLAMA, runs_here=False)
