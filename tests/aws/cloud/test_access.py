"""Who may call what on the cloud of tests: policies are evaluated as IAM does, and what they do not allow is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.aws.cloud.iam_policy import AccessRequest, is_allowed

if TYPE_CHECKING:
    from tests.aws.cloud.client import Cloud

GROUP = "arn:aws:ec2:us-east-1:123456789012:security-group/sg-1"
OWNED = {"aws:ResourceTag/fleetctl:owner": "me"}


def statement(effect: str = "Allow", resource: Any = "*", action: Any = "ec2:*", **condition: Any) -> dict[str, Any]:
    found = {"Effect": effect, "Action": action, "Resource": resource}
    return {"Statement": [found | ({"Condition": condition} if condition else {})]}


@pytest.mark.parametrize(
    ("policies", "allowed"),
    [
        ([], False),
        ([statement()], True),
        ([statement(action="EC2:deletesecurity*")], True),
        ([statement(action=["ec2:DeleteVolume", "s3:*"])], False),
        ([statement(resource="arn:aws:ec2:*:*:security-group/*")], True),
        ([statement(resource="arn:aws:ec2:*:*:volume/*")], False),
        ([statement(), statement("Deny", action="ec2:Delete*")], False),
        ([statement(), statement("Deny", action="ec2:Create*")], True),
        ([statement(Null={"aws:ResourceTag/fleetctl:owner": "false"})], True),
        ([statement(Null={"aws:ResourceTag/fleetctl:head": "false"})], False),
        ([statement(StringEquals={"aws:ResourceTag/fleetctl:owner": ["you", "me"]})], True),
        ([statement(StringEquals={"aws:ResourceTag/fleetctl:owner": "m*"})], False),
        ([statement(StringLike={"aws:ResourceTag/fleetctl:owner": "m*"})], True),
        ([statement(StringEquals={"aws:RequestTag/fleetctl:owner": "me"})], False),
        ([statement(StringEquals=OWNED, Null={"aws:ResourceTag/fleetctl:owner": "true"})], False),
    ],
)
def test_statements_are_evaluated_as_iam_does(policies: list[dict[str, Any]], allowed: bool) -> None:
    request = AccessRequest(action="ec2:DeleteSecurityGroup", resource=GROUP, context=OWNED)
    assert is_allowed(request, policies) is allowed


@pytest.mark.parametrize("unknown", [{"NumericLessThan": {"ec2:CreateAction": "1"}}, {"Null": {"aws:Colour": "true"}}])
def test_a_condition_that_is_not_evaluated_is_an_error_and_no_refusal(unknown: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="here"):
        is_allowed(AccessRequest(action="ec2:RunInstances"), [statement(**unknown)])


def user(cloud: Cloud, service: str) -> Any:
    keys = cloud.environment
    return boto3.session.Session().client(
        service, region_name=cloud.region, endpoint_url=cloud.url, aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key="of-the-tests",  # noqa: S106  # nobody checks it
    )  # fmt: skip


def test_what_no_policy_allows_is_refused_to_the_user_alone_and_journalled(cloud: Cloud) -> None:
    made = cloud.boto("ec2").create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    cloud.hold_to(statement(action="ec2:Describe*"))
    assert user(cloud, "ec2").describe_volumes(VolumeIds=[made])["Volumes"]
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        user(cloud, "ec2").delete_volume(VolumeId=made)
    with pytest.raises(ClientError, match="AccessDenied"):
        user(cloud, "s3").put_object(Bucket="fleetctl-x", Key="a/b", Body=b"")
    with pytest.raises(ClientError, match="AccessDeniedException"):
        user(cloud, "ssm").get_parameter(Name="/fleetctl/x")
    denied = [each["denied"] for each in cloud.calls() if each["denied"]]
    assert denied == [
        [["ec2:DeleteVolume", f"arn:aws:ec2:us-east-1:123456789012:volume/{made}"]],
        [["s3:PutObject", "arn:aws:s3:::fleetctl-x/a/b"]],
        [["ssm:GetParameter", "arn:aws:ssm:us-east-1:123456789012:parameter/fleetctl/x"]],
    ]
    cloud.boto("ec2").delete_volume(VolumeId=made)


def test_tags_decide_by_what_a_thing_has_now(cloud: Cloud) -> None:
    ec2 = cloud.boto("ec2")
    ours, theirs = (ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"] for _ in range(2))
    ec2.create_tags(Resources=[ours], Tags=[{"Key": "fleetctl:owner", "Value": "me"}])
    cloud.hold_to(statement(Null={"aws:ResourceTag/fleetctl:owner": "false"}))
    user(cloud, "ec2").delete_volume(VolumeId=ours)
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        user(cloud, "ec2").delete_volume(VolumeId=theirs)
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        user(cloud, "ec2").create_tags(Resources=[theirs], Tags=[{"Key": "fleetctl:owner", "Value": "me"}])
    ec2.delete_volume(VolumeId=theirs)
