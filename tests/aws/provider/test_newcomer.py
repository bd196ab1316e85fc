"""From `init` to `plan` with credentials that may only read: nothing is created, and what lacks is named."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from fleetctl.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.aws.provider.conftest import Rented

READS = ("Describe", "Get", "List")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the profile that `init` makes, in a home of its own, with what it takes to reach instances."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("FLEETCTL_AWS_GATEWAY_SOURCE", "10.0.0.0/8")
    made = tmp_path / "mine.yaml"
    assert main(["init", str(made), "--provider", "aws", "-q"]) == 0
    return made


def test_a_newcomer_plans_before_anything_is_created_and_reads_what_lacks(
    rented: Rented, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rented.cloud.fault("error", action="CreateFleet", code="UnauthorizedOperation", times=None, status=403)
    # Of what is there the other rights are given, so that this one is missing, and no matter of tags.
    rented.cloud.fault("error", action="TerminateInstances", code="UnauthorizedOperation", times=None, status=403)
    capsys.readouterr()
    assert main(["--readonly", "plan", str(file), "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["cost_usd_per_hour"] > 0
    assert plan["lanes"][0]["offering"]["instance_type"].startswith("g6e")
    lacking = [each for each in plan["preflight"] if each["verdict"] == "fail"]
    assert [each["detail"] for each in lacking] == ["not allowed: ec2:CreateFleet, ec2:TerminateInstances"]
    assert all(each["hint"] for each in lacking)
    assert main(["--readonly", "doctor", str(file)]) == 1
    seen = capsys.readouterr().out
    assert "ec2:CreateFleet" in seen
    assert "quota" in seen
    assert main(["--readonly", "offers", str(file)]) == 0
    made = [c["action"] for c in rented.cloud.calls() if not c["action"].startswith(READS)]
    assert rented.cloud.instances() == []
    assert all("DryRun" in str(c) or c["action"].startswith(READS) for c in rented.cloud.calls()), made


@pytest.mark.parametrize(
    "right", ["DescribeSecurityGroups", "DescribeLaunchTemplates", "DescribeInstanceTypeOfferings"]
)
def test_a_right_to_read_that_only_up_takes_is_named_by_doctor(
    right: str, rented: Rented, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rented.cloud.fault("error", action=right, code="UnauthorizedOperation", times=None, status=403)
    capsys.readouterr()
    assert main(["--readonly", "doctor", str(file), "-o", "json"]) == 1
    checks = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert checks["rights"]["found"] == f"not allowed: ec2:{right}"
    is_by_list = right == "DescribeInstanceTypeOfferings"
    assert ("the packaged list of July 2026" in checks.get("offers", {"found": ""})["found"]) is is_by_list


def test_a_clock_that_is_off_is_no_wrong_key_and_a_refused_call_names_its_right(
    rented: Rented, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def says() -> str:
        capsys.readouterr()
        main(["doctor", str(file)])
        return capsys.readouterr().out

    # As STS words it where the clock is behind.
    off = "Signature expired: 20261130T135000Z is now earlier than 20261130T140000Z (20261130T141500Z - 15 min.)"
    rented.cloud.fault("error", service="sts", code="SignatureDoesNotMatch", message=off, times=None, status=403)
    shown = says()
    assert "clock" in shown
    assert "secret key" not in shown
    rented.cloud.clear_faults()
    rented.cloud.fault("error", action="DescribeImages", code="UnauthorizedOperation", times=None, status=403)
    assert "have ec2:DescribeImages allowed" in says()


def test_without_credentials_a_plan_is_made_by_the_packaged_list_and_nothing_is_brought_up(
    rented: Rented, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file = tmp_path / "mine.yaml"
    assert main(["init", str(file), "--provider", "aws", "-q"]) == 0
    assert main(["validate", str(file)]) == 0
    capsys.readouterr()
    assert main(["plan", str(file), "--no-proof", "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert {lane["offering"]["market"] for lane in plan["lanes"]} == {"on-demand"}
    assert plan["cost_usd_per_hour"] > 0
    assert any("no AWS credentials" in each for each in plan["cautions"])
    assert any("planned by the packaged list of July 2026" in each for each in plan["cautions"])
    assert [each["verdict"] for each in plan["preflight"]] == ["fail"]
    zoned = file.read_text().replace("gpus: [L40S]", "gpus: [L40S], zones: [us-east-1c]")
    file.write_text(zoned)
    assert main(["plan", str(file), "--no-proof", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["lanes"][0]["offering"]["zone"] == "us-east-1c"
    assert main(["up", str(file), "-y", "--no-proof"]) == 13
    assert "no AWS credentials" in capsys.readouterr().err
    assert rented.cloud.calls() == []


def test_with_a_session_that_is_over_whoever_plans_by_the_packaged_list_says_so_with_the_remedy(
    rented: Rented, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    file = tmp_path / "mine.yaml"
    assert main(["init", str(file), "--provider", "aws", "-q"]) == 0
    # As EC2 words it, and longer than a line has room for.
    over = "Request has expired." + " The security token included in the request is expired" * 4
    for service in ("ec2", "pricing", "sts", "ssm", "iam", "sqs"):
        rented.cloud.fault("error", service=service, action="*", code="ExpiredToken", message=over, times=None)

    def says(*words: str, code: int) -> str:
        capsys.readouterr()
        assert main([*words, str(file), *(["--no-proof"] if words[0] in ("plan", "up") else [])]) == code
        captured = capsys.readouterr()
        return f"{captured.out}\n{captured.err}"

    for shown in (says("plan", code=0), says("offers", code=0)):
        assert "the packaged list of July 2026" in shown
        assert "(ExpiredToken)" in shown
        assert "aws sso login" in shown
    assert "ExpiredToken" in says("up", "-y", code=13)

    # With the list's prices no plan is within the cap: that, too, is said to be by the list.
    file.write_text(re.sub(r"max_cost_per_hour: \S+?([,}])", r"max_cost_per_hour: $0.50\1", file.read_text()))
    for words, code in ((("plan",), 6), (("validate",), 6), (("doctor",), 1)):
        shown = says(*words, code=code)
        assert "max_cost_per_hour" in shown
        assert "planned by the packaged list of July 2026" in shown
        assert "(ExpiredToken)" in shown
