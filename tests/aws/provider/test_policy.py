"""The policy that ships with the docs: what the provider calls, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from fleetctl_aws.rights import RIGHTS

POLICY = Path(__file__).parents[3] / "docs" / "aws-policy.json"


def test_the_policy_allows_exactly_what_is_called() -> None:
    statements = json.loads(POLICY.read_text())["Statement"]
    allowed = [action for statement in statements for action in statement["Action"]]
    assert sorted(allowed) == sorted(RIGHTS)
    assert {statement["Effect"] for statement in statements} == {"Allow"}


def test_a_role_is_passed_to_instances_alone() -> None:
    (passing,) = [each for each in json.loads(POLICY.read_text())["Statement"] if "iam:PassRole" in each["Action"]]
    assert passing["Action"] == ["iam:PassRole"]
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
