"""Tries EC2's changes without making them: a dry run is answered with whether the call would be allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl_aws.network import Network
    from fleetctl_aws.settings import AwsSettings

Object = dict[str, Any]
# Ids that nobody has: what is not there is refused as such only to whoever may touch it.
_NO_GROUP, _NO_INSTANCE, _NO_TEMPLATE = "sg-00000000000000000", "i-00000000000000000", "lt-00000000000000000"
_NAME = "fleetctl-dry-run"


def dry_runs(network: Network, settings: AwsSettings) -> Iterator[tuple[str, str, Object]]:
    """Yield the right, boto3's operation and its parameters of each of EC2's changes that a dry run can be made of."""
    rule = {"GroupId": _NO_GROUP, "IpPermissions": [{"IpProtocol": "tcp", "FromPort": 8000, "ToPort": 8000}]}
    subnet = next(iter(network.subnets.values()))
    yield from _launching(settings, subnet)
    if settings.security_group:
        return  # of what somebody else has made rights go by tags: a dry run on what nobody has is always refused
    yield "ec2:CreateSecurityGroup", "create_security_group", {
        "GroupName": _NAME, "Description": _NAME, "VpcId": network.vpc,
    }  # fmt: skip
    yield "ec2:AuthorizeSecurityGroupIngress", "authorize_security_group_ingress", rule
    yield "ec2:RevokeSecurityGroupIngress", "revoke_security_group_ingress", rule
    yield "ec2:CreateTags", "create_tags", {"Resources": [_NO_INSTANCE], "Tags": [{"Key": _NAME, "Value": ""}]}
    yield "ec2:TerminateInstances", "terminate_instances", {"InstanceIds": [_NO_INSTANCE]}
    yield "ec2:DeleteSecurityGroup", "delete_security_group", {"GroupId": _NO_GROUP}
    yield "ec2:DeleteLaunchTemplate", "delete_launch_template", {"LaunchTemplateId": _NO_TEMPLATE}


def _launching(settings: AwsSettings, subnet: str) -> Iterator[tuple[str, str, Object]]:
    yield "ec2:RunInstances", "run_instances", _launch(settings, subnet)
    yield "ec2:CreateFleet", "create_fleet", _fleet(subnet)
    if not settings.launch_template:
        yield "ec2:CreateLaunchTemplate", "create_launch_template", {
            "LaunchTemplateName": _NAME, "LaunchTemplateData": {"InstanceType": "g6.xlarge"},
        }  # fmt: skip


def _launch(settings: AwsSettings, subnet: str) -> Object:
    launch: Object = {
        "ImageId": settings.ami if settings.ami.startswith("ami-") else "ami-00000000000000000",
        "InstanceType": "g6.xlarge", "MinCount": 1, "MaxCount": 1, "SubnetId": subnet,
    }  # fmt: skip
    if settings.instance_profile:
        key = "Arn" if settings.instance_profile.startswith("arn:") else "Name"
        launch["IamInstanceProfile"] = {key: settings.instance_profile}
    return launch


def _fleet(subnet: str) -> Object:
    template = {"LaunchTemplateId": _NO_TEMPLATE, "Version": "1"}
    override = {"InstanceType": "g6.xlarge", "SubnetId": subnet}
    return {
        "Type": "instant",
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": template, "Overrides": [override]}],
    }
