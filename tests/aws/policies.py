"""The policies that ship with the docs, on a cloud of tests: who is held to them, and what was done under them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.aws.cloud.client import Cloud

_DOCS = Path(__file__).parents[2] / "docs"
# Rights that the whole life of a fleet without a head does not come to, and the test that has their calls made under the policy.
ELSEWHERE = {
    "ec2:AssociateAddress": "tests/aws/test_head.py",
    "ec2:DescribeAddresses": "tests/aws/test_head.py",
    "ec2:DeleteVolume": "tests/aws/provider/test_tagged.py",
    "ec2:RevokeSecurityGroupIngress": "tests/aws/provider/test_orders.py",
    "ecr:DescribeImages": "tests/aws/provider/test_images.py",
}


def shipped(name: str) -> dict[str, Any]:
    """Return a policy of the docs: aws-policy, aws-engine-policy."""
    found: dict[str, Any] = json.loads((_DOCS / f"{name}.json").read_text())
    return found


def make_role(cloud: Cloud, name: str, policy: dict[str, Any]) -> None:
    """Have a role with one policy there, and an instance profile of its name."""
    iam = cloud.boto("iam")
    iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")
    iam.put_role_policy(RoleName=name, PolicyName="fleetctl", PolicyDocument=json.dumps(policy))
    iam.create_instance_profile(InstanceProfileName=name)
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)


def rights_used(cloud: Cloud, *, of_roles: bool = False) -> set[str]:
    """Return the actions that calls took, of the user or of instances' roles; a dry run takes none."""
    calls = [each for each in cloud.calls() if not _is_dry(each) and of_roles is each["access_key"].startswith("ASIA")]
    return {action for each in calls for action, _ in each["needed"]}


def refused(cloud: Cloud) -> list[str]:
    """Return what was called and not allowed; a dry run is made to learn that."""
    return sorted(
        {
            f"{action} on {resource}"
            for each in cloud.calls()
            if not _is_dry(each)
            for action, resource in each["denied"]
        }
    )


def _is_dry(call: dict[str, Any]) -> bool:
    return str(call["parameters"].get("DryRun", "")).lower() == "true"
