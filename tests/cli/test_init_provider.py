"""`init --provider`: a profile for real engines elsewhere, whatever the use case, that a newcomer can go on with."""

from __future__ import annotations

import itertools

import pytest

from fleetctl.config.profile import read_profile
from fleetctl.config.use_cases import QUICKSTART, starter, starter_providers, use_cases


@pytest.mark.parametrize(
    ("provider", "use_case"),
    list(itertools.product(starter_providers(), (n for n in use_cases() if n != QUICKSTART))),
)
def test_every_use_case_is_a_profile_at_every_provider(provider, use_case):
    profile = read_profile(starter(use_case, name="mine", provider=provider).encode(), source="init").checked()
    assert (profile.name, profile.provider) == ("mine", provider)
    assert {lane.engine for lane in profile.lanes} == {"vllm"}
    assert not any("meta-llama" in model.id for model in profile.models)
    assert len(profile.lanes) == len(read_profile(starter(use_case).encode(), source="plain").checked().lanes)


def test_it_names_its_own_file_in_what_to_do_next(fleetctl, home):
    file = home / "mine.yaml"
    ran = fleetctl("init", str(file), "--provider", "aws")
    assert ran.code == 0
    assert f"#   fleetctl doctor {file} " in file.read_text()
    assert f"`fleetctl doctor {file}`, then `fleetctl plan" in ran.err.replace(f"`fleetctl plan {file}`", "then `fleetctl plan`")  # fmt: skip


def test_who_may_change_nothing_may_have_it_printed(fleetctl, home):
    assert "kind: ssh" in fleetctl("--readonly", "init", "-", "--provider", "ssh").out
    file = home / "mine.yaml"
    assert fleetctl("--readonly", "init", str(file), "--provider", "ssh").code == 3
    assert not file.exists()


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["--provider", "awz"], 8, "did you mean 'aws'"),
        (["--provider", "aws", "--here"], 3, "leave one out"),
        (["--provider", "aws", "-u", "quickstart"], 3, "name another use case"),
    ],
)
def test_what_does_not_go_together_is_said(fleetctl, argv, code, message):
    ran = fleetctl("init", "-", *argv)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


@pytest.mark.parametrize("provider", starter_providers())
def test_without_credentials_machines_or_cluster_plan_and_doctor_say_what_to_do(fleetctl, home, monkeypatch, provider):
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "HOME"):
        monkeypatch.setenv(name, str(home / "nothing"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    file = home / "mine.yaml"
    fleetctl("init", str(file), "--provider", provider)
    planned = fleetctl("--readonly", "plan", str(file))
    if provider == "aws":  # planned by the packaged list of prices
        assert planned.code == 0
        assert "to do: " in planned.out
    else:
        assert planned.code not in (0, 70)
        assert "hint: " in planned.err
    looked = fleetctl("--readonly", "doctor", str(file))
    assert looked.code == 1
    assert "To do" in looked.out
