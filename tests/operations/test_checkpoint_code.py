"""Code that comes with a checkpoint is named at plan, with whether it is run; it never is unless the profile says so."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.catalogue.model_card import model_card_from_config
from fleetctl.errors import ConfigError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl.operations.checkpoint_code import code_findings
from fleetctl.plugins import load_engine
from fleetctl.testing import samples

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sites import FakeSite

OWN = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}


def checkpoint(directory: Path, *, family: str = "phi3", config: object = None, tokenizer: object = None) -> str:
    for name, auto_map in (("config.json", config), ("tokenizer_config.json", tokenizer)):
        (directory / name).write_text(json.dumps({"model_type": family} | ({"auto_map": auto_map} if auto_map else {})))
    return str(directory)


def found(fakes: FakeSite, model: str, *extra_args: str, engine: str = "vllm") -> list[Finding]:
    profile, plan = samples.profile(), samples.plan()
    lane, planned = profile.lane("short"), plan.lane("short")
    planned = replace(planned, engine=engine, launch=replace(planned.launch, model=model, extra_args=extra_args))
    profile = replace(profile, lanes=(replace(lane, engine=engine),))
    site = replace(fakes.site, engines=load_engine)
    return list(code_findings(site, profile, replace(plan, lanes=(planned,))))


def test_code_that_no_engine_runs_is_named_beside_the_family_that_engines_have(fakes: FakeSite, tmp_path: Path) -> None:
    (finding,) = found(fakes, checkpoint(tmp_path, config=OWN))
    assert finding.verdict is Verdict.OK
    assert "(configuration_own.py, modeling_own.py); it is not run: engines have phi3 themselves" in finding.detail


@pytest.mark.parametrize("flag", ["--trust-remote-code", "--trust_remote_code"])
def test_code_that_a_profile_lets_run_is_warned_of(fakes: FakeSite, tmp_path: Path, flag: str) -> None:
    (finding,) = found(fakes, checkpoint(tmp_path, tokenizer={"AutoTokenizer": ["their/repo--tok.Slow", None]}), flag)
    assert finding.verdict is Verdict.WARN
    assert "(their/repo: tok.py), and the engines of short run it" in finding.detail


def test_code_without_which_an_engine_may_not_start_is_asked_consent_for(fakes: FakeSite, tmp_path: Path) -> None:
    (finding,) = found(fakes, checkpoint(tmp_path, family="newthing", config=OWN))
    assert finding.verdict is Verdict.WARN
    assert "own class for newthing" in finding.detail
    assert finding.hint.endswith("let short run it: launch: {extra_args: [--trust-remote-code]}")
    with pytest.raises(ConfigError) as refused:
        model_card_from_config(tmp_path / "config.json")
    assert "--trust-remote-code" in str(refused.value.hint)


def test_a_checkpoint_of_the_hubs_cache_is_looked_at(
    fakes: FakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--their--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    checkpoint(snapshot, config=OWN)
    (finding,) = found(fakes, "their/model")
    assert finding.detail.startswith("their/model brings Python code of its own")
    assert found(fakes, "their/other") == []


def test_nothing_is_said_where_there_is_no_code_or_nobody_reads_it(fakes: FakeSite, tmp_path: Path) -> None:
    assert found(fakes, checkpoint(tmp_path), "--trust-remote-code") == []
    assert found(fakes, checkpoint(tmp_path, config="nonsense")) == []
    assert found(fakes, checkpoint(tmp_path, config=OWN), engine="llamacpp") == []
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "tokenizer_config.json").unlink()
    assert found(fakes, str(tmp_path)) == []
