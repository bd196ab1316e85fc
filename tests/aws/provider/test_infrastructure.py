"""What is written for those who make the shared parts: lawful to each tool, and the same in both."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import cfnlint
import hcl2
import pytest
import yaml

from fleetctl.config.profile import parse_profile
from fleetctl_aws.infrastructure import AwsInfrastructure, part_names
from fleetctl_aws.notices import EVENT_PATTERN
from fleetctl_aws.rights import RIGHTS
from fleetctl_aws.shared_policy import MAKING, actions_in
from tests.aws.cloud.iam_policy import AccessRequest, is_allowed
from tests.aws.test_fleet import PROFILE

if TYPE_CHECKING:
    from fleetctl.model.profile import Profile

WEIGHTS = "s3://team-models/llama/8b"
HEAD = "host: {kind: node, instance_profile: fleetctl-booted-head}\n"
# A type of CloudFormation, and what Terraform's provider has for it: the first is the thing itself, the rest its settings.
ALIKE = {
    "AWS::EC2::SecurityGroup": ("aws_security_group",),
    "AWS::IAM::Role": ("aws_iam_role",),
    "AWS::IAM::InstanceProfile": ("aws_iam_instance_profile",),
    "AWS::IAM::ManagedPolicy": ("aws_iam_policy",),
    "AWS::EC2::LaunchTemplate": ("aws_launch_template",),
    "AWS::SQS::Queue": ("aws_sqs_queue",),
    "AWS::SQS::QueuePolicy": ("aws_sqs_queue_policy",),
    "AWS::Events::Rule": ("aws_cloudwatch_event_rule",),
    "AWS::S3::Bucket": ("aws_s3_bucket",),
}
SETTINGS_OF_TERRAFORM = {
    "aws_iam_role_policy", "aws_iam_role_policy_attachment", "aws_cloudwatch_event_target", "aws_s3_bucket_versioning",
    "aws_s3_bucket_server_side_encryption_configuration", "aws_s3_bucket_public_access_block",
    "aws_s3_bucket_lifecycle_configuration",
}  # fmt: skip
# What each tool calls the same thing.
REFERENCES = {
    "${AWS::Partition}": "${data.aws_partition.here.partition}",
    "${AWS::Region}": "${data.aws_region.here.region}",
    "${AWS::AccountId}": "${data.aws_caller_identity.here.account_id}",
    "${NoticeQueue.Arn}": "${aws_sqs_queue.notices.arn}",
    "${NoticeRule.Arn}": "${aws_cloudwatch_event_rule.notices.arn}",
    "${StateBucket.Arn}": "${aws_s3_bucket.state.arn}",
    "${LogBucket.Arn}": "${aws_s3_bucket.logs.arn}",
    "${EngineRole.Arn}": "${aws_iam_role.engine.arn}",
    "${HeadRole.Arn}": "${aws_iam_role.head.arn}",
}


@cache
def profile(*, with_head: bool, path: str = "") -> Profile:
    text = PROFILE.replace("PORT", "8080") + (HEAD if with_head else "")
    text = text.replace("quantization: bf16", f"quantization: bf16, path: {path}") if path else text
    return parse_profile(text, source="booted.yaml")


def written(tool: str, *, with_head: bool, path: str = "") -> str:
    files = AwsInfrastructure().files(tool, profile(with_head=with_head, path=path))
    (text,) = (text for path, text in files.items() if path != "fleetctl-keys.yaml")
    return text


def policies_of_terraform(text: str) -> list[Any]:
    """Return every document that a file has encoded."""
    decoder = json.JSONDecoder()
    return [decoder.raw_decode(text[found.end() :])[0] for found in re.finditer(r"jsonencode\(", text)]


def policies_of_cloudformation(value: Any) -> list[Any]:
    """Return every document below a value, what is filled in as it is."""
    if isinstance(value, list):
        return [each for item in value for each in policies_of_cloudformation(item)]
    if not isinstance(value, dict):
        return []
    if "Statement" in value:
        return [plain(value)]
    return [each for item in value.values() for each in policies_of_cloudformation(item)]


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return value["Fn::Sub"] if "Fn::Sub" in value else {key: plain(each) for key, each in value.items()}
    return value


def findings(text: str) -> list[Any]:
    """Return the errors and warnings that the linter has; what it would like to be told is neither."""
    return [each for each in cfnlint.lint_all(text) if each.rule.severity != "informational"]


@pytest.mark.parametrize("with_head", [False, True])
def test_cloudformations_own_linter_finds_nothing(with_head: bool) -> None:
    text = written("cloudformation", with_head=with_head)
    assert findings(text) == []
    spoilt = text.replace("Type: AWS::SQS::QueuePolicy", "Type: AWS::SQS::QueuePolitics")
    assert findings(spoilt) != [], "the linter reads what it is given"


@pytest.mark.parametrize("with_head", [False, True])
def test_both_tools_make_the_same(with_head: bool) -> None:
    template = yaml.safe_load(written("cloudformation", with_head=with_head))
    text = written("terraform", with_head=with_head)
    resources = [(kind.strip('"'), named) for each in hcl2.loads(text)["resource"] for kind, named in each.items()]
    made = sorted(ALIKE[each["Type"]][0] for each in template["Resources"].values())
    assert sorted(kind for kind, _ in resources if kind not in SETTINGS_OF_TERRAFORM) == made
    assert names_in(template) <= set(part_names("booted").values())
    assert with_head is (names_in(template) == set(part_names("booted").values()))
    for name in part_names("booted").values():
        assert (f'"{name}"' in text) is (name in names_in(template)), name
    for port in ("2222", "8016"):
        assert (port in text) is (port in str(template))


def names_in(template: Any) -> set[str]:
    return {
        value for each in template["Resources"].values() for key, value in each["Properties"].items() if "Name" in key and isinstance(value, str)
    }  # fmt: skip


@pytest.mark.parametrize("path", ["", WEIGHTS])
@pytest.mark.parametrize("with_head", [False, True])
def test_both_tools_allow_the_same(with_head: bool, path: str) -> None:
    text = written("cloudformation", with_head=with_head, path=path)
    of_cloudformation = policies_of_cloudformation(yaml.safe_load(text))
    translated = json.dumps(of_cloudformation)
    for ours, theirs in REFERENCES.items():
        translated = translated.replace(ours, theirs)
    of_terraform = [
        each
        for each in policies_of_terraform(written("terraform", with_head=with_head, path=path))
        if "Statement" in each
    ]
    assert sorted(map(json.dumps, json.loads(translated))) == sorted(map(json.dumps, of_terraform))
    patterns = [each for each in policies_of_terraform(written("terraform", with_head=with_head)) if "source" in each]
    assert patterns == [EVENT_PATTERN]


def test_the_role_reads_the_profiles_own_weights_and_none_beside_them() -> None:
    template = yaml.safe_load(written("cloudformation", with_head=False, path=WEIGHTS))
    assert findings(written("cloudformation", with_head=False, path=WEIGHTS)) == []
    (policy,) = policies_of_cloudformation(template["Resources"]["EngineRole"]["Properties"]["Policies"])
    role = json.loads(json.dumps(policy).replace("${AWS::Partition}", "aws"))

    def may(action: str, resource: str, prefix: str = "") -> bool:
        context = {"s3:prefix": prefix} if action == "s3:ListBucket" else {}
        return is_allowed(AccessRequest(action=action, resource=f"arn:aws:s3:::{resource}", context=context), [role])

    assert may("s3:GetObject", "team-models/llama/8b/config.json")
    assert may("s3:ListBucket", "team-models", "llama/8b/")
    assert not may("s3:GetObject", "team-models/llama/8b-other/config.json")
    assert not may("s3:ListBucket", "team-models", "llama/")
    assert not may("s3:PutObject", "team-models/llama/8b/config.json")
    assert not may("s3:GetObject", "other/llama/8b/config.json")
    without = policies_of_cloudformation(yaml.safe_load(written("cloudformation", with_head=False)))
    assert not [s for each in without for s in each["Statement"] if "Weights" in s.get("Sid", "")]


def test_the_policy_allows_what_is_called_but_what_makes_the_shared_parts() -> None:
    template = yaml.safe_load(written("cloudformation", with_head=True))
    policy = plain(template["Resources"]["FleetPolicy"]["Properties"]["PolicyDocument"])
    assert actions_in(policy) == RIGHTS - MAKING
    assert MAKING < RIGHTS
    wide = {a for s in policy["Statement"] if s["Resource"] == "*" and "Condition" not in s for a in s["Action"]}
    changing = {action for action in wide if not re.match(r"\w+:(Describe|Get)", action)}
    assert changing == {"ec2:CreateFleet", "ec2:RunInstances"}
