"""What a fleet's credentials, and its engines', are allowed: an account's fleets, or one where somebody else has made what it shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fleetctl_aws.rights import RIGHTS
from fleetctl_aws.tags import FLEET, HEAD, HEAD_OWNER, OWNER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Object = dict[str, Any]
# What makes and removes the shared parts: who has them made beforehand needs none of these.
MAKING: Final = frozenset(
    {
        "ec2:AuthorizeSecurityGroupIngress", "ec2:CreateLaunchTemplate", "ec2:CreateSecurityGroup",
        "ec2:DeleteLaunchTemplate", "ec2:DeleteSecurityGroup", "ec2:RevokeSecurityGroupIngress", "events:DeleteRule", "events:PutRule", "events:PutTargets",
        "events:RemoveTargets", "events:TagResource", "sqs:CreateQueue", "sqs:DeleteQueue", "sqs:SetQueueAttributes",
        "sqs:TagQueue",
    }
)  # fmt: skip
_READING = (
    "ec2:Describe",
    "ecr:Describe",
    "pricing:",
    "servicequotas:",
    "sts:",
    "iam:Get",
    "ssm:Describe",
    "ssm:GetCommand",
)
_LAUNCHING = ("ec2:CreateFleet", "ec2:RunInstances")
_CREATING = (*_LAUNCHING, "ec2:CreateLaunchTemplate", "ec2:CreateSecurityGroup")
# What is done to things that are there, and so goes by their tags: nobody else's are touched, and none made ours.
BY_TAG: Final = frozenset(
    {
        "ec2:AuthorizeSecurityGroupIngress", "ec2:CreateTags", "ec2:DeleteLaunchTemplate", "ec2:DeleteSecurityGroup",
        "ec2:DeleteVolume", "ec2:RevokeSecurityGroupIngress", "ec2:TerminateInstances",
    }
)  # fmt: skip
_OBJECTS = ("s3:DeleteObject", "s3:GetObject", "s3:PutObject")
_PARAMETERS = ("ssm:DeleteParameters", "ssm:GetParameter", "ssm:PutParameter")
_PARAMETER_ROOTS = ("fleetctl", "fleetctl-heads")
_TO_EC2: Final = {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
# Of Systems Manager's agent, which AmazonSSMManagedInstanceCore allows beside reading every parameter of the account.
# https://docs.aws.amazon.com/systems-manager/latest/userguide/systems-manager-setting-up-messageAPIs.html
_AGENT: Final = (
    "ec2messages:AcknowledgeMessage", "ec2messages:DeleteMessage", "ec2messages:FailMessage", "ec2messages:GetEndpoint",
    "ec2messages:GetMessages", "ec2messages:SendReply", "ssm:ListInstanceAssociations", "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel", "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)  # fmt: skip


def account_policy() -> Object:
    """Return the policy of whoever keeps any fleets of an account, shared parts included: docs/aws-policy.json.

    What is there is touched by its tags alone, or by names that begin with fleetctl; so does the state's bucket.
    """
    owned, of_head = (_having(f"aws:ResourceTag/{key}") for key in (OWNER, HEAD_OWNER))
    statements = [
        _allow("Read", _beginning(RIGHTS, _READING), "*"),
        _allow("Launch", _CREATING, "*"),
        _allow("TagAtCreation", ["ec2:CreateTags"], "*", {"StringEquals": {"ec2:CreateAction": _actions(_CREATING)}}),
        _allow("OfFleets", BY_TAG, "*", owned),
        _allow("OfHeads", BY_TAG - {"ec2:CreateTags", "ec2:DeleteLaunchTemplate"}, "*", of_head),
        _allow("HeadAddress", ["ec2:AssociateAddress"], "*", of_head),
        # The Elastic IP is whose it is; it is taken from nobody but a head.
        _allow("ElasticIp", ["ec2:AssociateAddress"], "arn:aws:ec2:*:*:elastic-ip/*"),
        _allow("Notices", _beginning(RIGHTS, ("sqs:",)), "arn:aws:sqs:*:*:fleetctl-*"),
        _allow("NoticeRules", _beginning(RIGHTS, ("events:",)), "arn:aws:events:*:*:rule/fleetctl-*"),
        _allow("StateObjects", _OBJECTS, "arn:aws:s3:::fleetctl-*/*"),
        _allow("State", ["s3:ListBucket"], "arn:aws:s3:::fleetctl-*"),
        _allow("Images", ["ssm:GetParameter"], "arn:aws:ssm:*::parameter/aws/service/*"),
        _allow("Secrets", _PARAMETERS, [f"arn:aws:ssm:*:*:parameter/{name}/*" for name in _PARAMETER_ROOTS]),
        _allow("Scripts", ["ssm:SendCommand"], "arn:aws:ssm:*::document/AWS-RunShellScript"),
        _allow("OnInstances", ["ssm:SendCommand"], "arn:aws:ec2:*:*:instance/*", _having(f"ssm:resourceTag/{OWNER}")),
        _allow("Roles", ["iam:PassRole"], "arn:aws:iam::*:role/*", _TO_EC2),
    ]  # fmt: skip
    return {"Version": "2012-10-17", "Statement": statements}


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsPlace:
    """Where engines' weights are fetched from."""

    bucket_arn: str
    prefix: str  # of their keys, up to the last slash; empty: all of the bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class PartNames:
    """How one tool refers to what it makes, and to the account: texts that it fills in."""

    queue_arn: str
    bucket_arn: str
    logs_arn: str  # of the logs' bucket
    weights: tuple[WeightsPlace, ...] = ()
    role_arns: tuple[str, ...]  # of the engines' instances, and of the head's where there is one
    parameters: str  # arn of Parameter Store's parameters, up to their names
    images: str  # the same of those that AWS publishes


def fleet_policy(fleet: str, names: PartNames) -> Object:
    """Return the policy of whoever keeps a fleet: its head's role, or people's where it has no head."""
    allowed = RIGHTS - MAKING
    tagged = {f"aws:ResourceTag/{FLEET}": fleet}
    statements = [
        _allow("Read", _beginning(allowed, _READING), "*"),
        _allow("Launch", _LAUNCHING, "*"),
        _allow("TagAtLaunch", ["ec2:CreateTags"], "*", {"StringEquals": {"ec2:CreateAction": _actions(_LAUNCHING)}}),
        _allow(
            "OwnInstances", ["ec2:CreateTags", "ec2:DeleteVolume", "ec2:TerminateInstances"], "*",
            {"StringEquals": tagged},
        ),
        _allow("OwnHead", ["ec2:TerminateInstances"], "*", {"StringEquals": {f"aws:ResourceTag/{HEAD}": fleet}}),
        # Of the head's machine, its interface and the Elastic IP alike: all three carry the tag.
        _allow("HeadAddress", ["ec2:AssociateAddress"], "*", {"StringEquals": {f"aws:ResourceTag/{HEAD}": fleet}}),
        _allow("Notices", _beginning(allowed, ("sqs:",)), names.queue_arn),
        _allow("StateObjects", _OBJECTS, [f"{names.bucket_arn}/*", f"{names.logs_arn}/*"]),
        _allow("State", ["s3:ListBucket"], [names.bucket_arn, names.logs_arn]),
        # Looked at beforehand, and not read.
        *_weights_lists(names.weights),
        _allow("Images", ["ssm:GetParameter"], f"{names.images}/aws/service/*"),
        _allow(
            "Secrets", _PARAMETERS, [f"{names.parameters}/{name}/*" for name in _PARAMETER_ROOTS],
        ),
        # Logs are read by a script that the instance's agent runs: of this fleet's instances alone.
        _allow("LogScript", ["ssm:SendCommand"], f"{names.images.removesuffix('parameter')}document/AWS-RunShellScript"),
        _allow("Logs", ["ssm:SendCommand"], "*", {"StringEquals": {f"ssm:resourceTag/{FLEET}": fleet}}),
        _allow("Roles", ["iam:PassRole"], list(names.role_arns), _TO_EC2),
    ]  # fmt: skip
    return {"Version": "2012-10-17", "Statement": statements}


# Of buckets that the shipped policy is for; whose are called otherwise changes these names.
SHIPPED_WEIGHTS: Final = (WeightsPlace(bucket_arn="arn:aws:s3:::fleetctl-*-weights", prefix=""),)


def engine_policy(parameters: str, logs: str, weights: Sequence[WeightsPlace]) -> Object:
    """Return the policy of the engines' instances: they read their secrets and weights, take commands, and ship their logs.

    `parameters` is the arn of Parameter Store's parameters, up to their names; `logs` of the bucket of logs.
    """
    statements = [
        _allow("Secrets", ["ssm:GetParametersByPath"], f"{parameters}/fleetctl/*"), _allow("Agent", _AGENT, "*"),
        # Neither read nor deleted: one machine sees nothing of what others wrote.
        _allow("Logs", ["s3:PutObject"], f"{logs}/*"),
        *_weights_lists(weights),
        *([_allow("Weights", ["s3:GetObject"], [f"{each.bucket_arn}/{each.prefix}*" for each in weights])] if weights else []),
    ]  # fmt: skip
    return {"Version": "2012-10-17", "Statement": statements}


def _weights_lists(places: Iterable[WeightsPlace]) -> Iterator[Object]:
    for number, place in enumerate(places, start=1):
        among = {"StringLike": {"s3:prefix": f"{place.prefix}*"}} if place.prefix else None
        yield _allow(f"ListWeights{number}", ["s3:ListBucket"], place.bucket_arn, among)


def trust_policy() -> Object:
    """Return who may take a role on: EC2's instances."""
    statement = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    return {"Version": "2012-10-17", "Statement": [statement]}


def actions_in(policy: Object) -> set[str]:
    """Return every action that a policy allows."""
    return {action for statement in policy["Statement"] for action in statement["Action"]}


def _allow(sid: str, actions: Iterable[str], resource: object, condition: Object | None = None) -> Object:
    found: Object = {"Sid": sid, "Effect": "Allow", "Action": sorted(actions), "Resource": resource}
    return found | ({"Condition": condition} if condition else {})


def _actions(rights: Iterable[str]) -> list[str]:
    """Return what ec2:CreateAction says of calls: their names alone."""
    return sorted(name.removeprefix("ec2:") for name in rights)


def _having(key: str) -> Object:
    """Return the condition that something has a tag, whatever it says."""
    return {"Null": {key: "false"}}


def _beginning(actions: Iterable[str], prefixes: tuple[str, ...]) -> list[str]:
    return [action for action in actions if action.startswith(prefixes)]
