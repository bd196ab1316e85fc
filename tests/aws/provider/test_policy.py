"""The policies that ship with the docs: what is called, on what is ours; `tests/aws/test_rights.py` has it called."""

from __future__ import annotations

import re

from fleetctl_aws.rights import RIGHTS
from fleetctl_aws.shared_policy import BY_TAG, SHIPPED_WEIGHTS, account_policy, actions_in, engine_policy
from tests.aws.policies import ELSEWHERE, shipped


def test_the_docs_have_the_policies_as_the_provider_writes_them() -> None:
    assert shipped("aws-policy") == account_policy()
    assert shipped("aws-engine-policy") == engine_policy(
        "arn:aws:ssm:*:*:parameter", "arn:aws:s3:::fleetctl-*-logs", SHIPPED_WEIGHTS
    )


def test_the_policy_allows_what_is_called_and_by_tag_or_name_alone() -> None:
    policy = account_policy()
    assert actions_in(policy) == RIGHTS
    assert set(ELSEWHERE) < RIGHTS
    wide = {a for s in policy["Statement"] if s["Resource"] == "*" and "Condition" not in s for a in s["Action"]}
    changing = {action for action in wide if not re.match(r"\w+:(Describe|Get)", action)}
    assert changing == {
        "ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:CreateSecurityGroup", "ec2:RunInstances",
    }  # fmt: skip
    assert BY_TAG & wide == set()


def test_a_role_is_passed_to_instances_alone() -> None:
    (passing,) = [each for each in account_policy()["Statement"] if "iam:PassRole" in each["Action"]]
    assert passing["Action"] == ["iam:PassRole"]
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
