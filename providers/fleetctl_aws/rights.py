"""What the provider calls, and so what its credentials must be allowed: the one list that policy and preflight go by."""

from __future__ import annotations

# As IAM writes them. CreateFleet launches with the caller's own ec2:RunInstances and ec2:CreateTags.
RIGHTS = frozenset(
    {
        "ec2:AuthorizeSecurityGroupIngress", "ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:CreateSecurityGroup",
        "ec2:CreateTags", "ec2:DeleteLaunchTemplate", "ec2:DeleteSecurityGroup",
        "ec2:DeleteVolume", "ec2:DescribeImages", "ec2:DescribeVolumes",
        "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeInstanceTypes", "ec2:DescribeInstances",
        "ec2:DescribeLaunchTemplates", "ec2:DescribeSecurityGroups", "ec2:DescribeSpotPriceHistory",
        "ec2:DescribeSubnets", "ec2:DescribeVpcs", "ec2:RevokeSecurityGroupIngress", "ec2:RunInstances",
        "ec2:TerminateInstances",
        "ecr:DescribeImages",
        "events:DeleteRule", "events:PutRule", "events:PutTargets", "events:RemoveTargets", "events:TagResource",
        "iam:GetInstanceProfile", "iam:GetRole", "iam:PassRole",
        "pricing:GetProducts",
        "servicequotas:GetServiceQuota",
        "sqs:CreateQueue", "sqs:DeleteMessage", "sqs:DeleteQueue", "sqs:GetQueueAttributes", "sqs:GetQueueUrl",
        "sqs:ReceiveMessage", "sqs:SetQueueAttributes", "sqs:TagQueue",
        "ssm:DeleteParameters", "ssm:DescribeParameters", "ssm:GetParameter", "ssm:PutParameter",
        # Of engines' logs and restarts alone.
        "ssm:GetCommandInvocation", "ssm:SendCommand",
        "sts:GetCallerIdentity",
        # Of heads alone, the first two where host.elastic_ip is named, and of the state that they share.
        "ec2:AssociateAddress", "ec2:DescribeAddresses",
        "s3:DeleteObject", "s3:GetObject", "s3:ListBucket", "s3:PutObject",
    }
)  # fmt: skip
# Of EC2, what `up` reads and no other check does; a dry run of each answers with nothing but whether it is allowed.
READS = (
    ("ec2:DescribeInstanceTypeOfferings", "describe_instance_type_offerings"),
    ("ec2:DescribeInstanceTypes", "describe_instance_types"),
    ("ec2:DescribeInstances", "describe_instances"),
    ("ec2:DescribeLaunchTemplates", "describe_launch_templates"),
    ("ec2:DescribeSecurityGroups", "describe_security_groups"),
)
# IAM's names of rights whose call has another.
_OTHERWISE_CALLED = {
    "s3:HeadObject": ("s3:GetObject",), "s3:ListObjectsV2": ("s3:ListBucket",), "s3:DeleteObjects": ("s3:DeleteObject",),
    # It is refused too where one of those lacks that it launches with.
    "ec2:CreateFleet": ("ec2:CreateFleet", "ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"),
}  # fmt: skip


def rights_of_call(service: str, operation: str) -> tuple[str, ...]:
    """Return which rights a call takes, as IAM writes them, from boto3's service and AWS's operation; none: it is not known."""
    named = f"{service.replace('-', '')}:{operation}"
    return tuple(each for each in _OTHERWISE_CALLED.get(named, (named,)) if each in RIGHTS)
