"""A fleet's shared parts for those who may not make them: one description, written as CloudFormation and as Terraform."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fleetctl.model.head import SSH_PORT
from fleetctl.model.remote_weights import remote_weights
from fleetctl_aws.hcl import Block, Reference, hcl_text
from fleetctl_aws.network import NOTICE_PORT, PORT
from fleetctl_aws.notices import EVENT_PATTERN, QUEUE_ATTRIBUTES
from fleetctl_aws.shared_policy import PartNames, WeightsPlace, engine_policy, fleet_policy, trust_policy
from fleetctl_aws.shared_template import template_parameters, template_resource, terraform_template

if TYPE_CHECKING:
    from fleetctl.model.profile import Profile

Object = dict[str, Any]
CLOUDFORMATION, TERRAFORM = "cloudformation", "terraform"
_NONCURRENT_DAYS = 30  # of the state's earlier versions
_LOG_DAYS = 14  # of what engines wrote, where no `down` deletes it before
_KEPT = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
_SERVICE_QUEUE = {"Service": "events.amazonaws.com"}


class AwsInfrastructure:
    """Implements Infrastructure. What is made has names that follow from the fleet's, so the profile's keys are known beforehand."""

    @property
    def tools(self) -> frozenset[str]:
        """Return CloudFormation and Terraform."""
        return frozenset({CLOUDFORMATION, TERRAFORM})

    def files(self, tool: str, profile: Profile) -> dict[str, str]:
        """Return the tool's file and the profile's keys."""
        import yaml  # as what every command opens loads none

        keys = {"fleetctl-keys.yaml": _keys(profile)}
        if tool == TERRAFORM:
            return {"fleetctl.tf": _HEADER.format(fleet=profile.name) + hcl_text(terraform(profile)), **keys}
        # CloudFormation takes no aliases, which YAML writes of what stands in two places.
        apart = json.loads(json.dumps(cloudformation(profile)))
        text = yaml.safe_dump(apart, sort_keys=False, width=120)
        return {"fleetctl.cloudformation.yaml": _HEADER.format(fleet=profile.name) + text, **keys}


_HEADER = "# What the instances of fleet {fleet} share, for whoever may make it. Written by fleetctl.\n"


def part_names(fleet: str) -> dict[str, str]:
    """Return what each part is called: by its key in the profile."""
    name = f"fleetctl-{fleet}"
    return {
        "security_group": f"{name}-engines", "head_security_group": f"{name}-head", "instance_profile": f"{name}-engine",
        "head_instance_profile": f"{name}-head", "queue": name, "policy": name,
        "launch_template": f"{name}-engines",
    }  # fmt: skip


def cloudformation(profile: Profile) -> Object:
    """Return the CloudFormation template."""
    called, has_head = part_names(profile.name), not profile.host_choice.is_local
    names = _cloudformation_names(profile, has_head=has_head)
    source: Object = {"SourceSecurityGroupId": {"Fn::GetAtt": ["HeadGroup", "GroupId"]}}
    if not has_head:
        source = {"CidrIp": {"Ref": "GatewayCidr"}}
    resources: Object = {
        "EngineGroup": _resource("EC2::SecurityGroup", {
            "GroupName": called["security_group"], "GroupDescription": f"engines of fleetctl fleet {profile.name}",
            "VpcId": {"Ref": "VpcId"},
            "SecurityGroupIngress": [{"IpProtocol": "tcp", "FromPort": PORT, "ToPort": NOTICE_PORT, **source}],
        }),
        "EngineRole": _role(called["instance_profile"], engine_policy(names.parameters, names.logs_arn, names.weights)),
        "EngineProfile": _resource("IAM::InstanceProfile", {
            "InstanceProfileName": called["instance_profile"], "Roles": [{"Ref": "EngineRole"}],
        }),
        "FleetPolicy": _resource("IAM::ManagedPolicy", {
            "ManagedPolicyName": called["policy"], "PolicyDocument": _filled(fleet_policy(profile.name, names)),
            **({"Roles": [{"Ref": "HeadRole"}]} if has_head else {}),
        }),
        "EngineTemplate": template_resource(called["launch_template"], profile),
        **_notice_resources(called["queue"]),
        **_bucket_resources(profile.name),
    }  # fmt: skip
    if has_head:
        resources |= {
            "HeadGroup": _resource("EC2::SecurityGroup", {
                "GroupName": called["head_security_group"], "GroupDescription": f"the head of fleetctl fleet {profile.name}",
                "VpcId": {"Ref": "VpcId"},
                "SecurityGroupIngress": [
                    {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "CidrIp": {"Ref": "ClientCidr"}}
                    for port in _head_ports(profile)
                ],
            }),
            "HeadRole": _resource("IAM::Role", {
                "RoleName": called["head_instance_profile"], "AssumeRolePolicyDocument": trust_policy(),
            }),
            "HeadProfile": _resource("IAM::InstanceProfile", {
                "InstanceProfileName": called["head_instance_profile"], "Roles": [{"Ref": "HeadRole"}],
            }),
        }  # fmt: skip
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"What the instances of fleetctl fleet {profile.name} share",
        "Parameters": {
            "VpcId": {"Type": "AWS::EC2::VPC::Id", "Description": "That the fleet's subnets are of"},
            _source_parameter(profile): {"Type": "String", "Description": _SOURCES[_source_parameter(profile)]},
            **template_parameters(profile),
        },
        "Resources": resources,
        "Outputs": {
            "StateUrl": {"Value": {"Fn::Sub": "s3://${StateBucket}/fleets"}},
            "FleetPolicyArn": {"Value": {"Ref": "FleetPolicy"}},
        },
    }  # fmt: skip


def _cloudformation_names(profile: Profile, *, has_head: bool) -> PartNames:
    return PartNames(
        queue_arn="${NoticeQueue.Arn}", bucket_arn="${StateBucket.Arn}", logs_arn="${LogBucket.Arn}",
        role_arns=("${EngineRole.Arn}", *(("${HeadRole.Arn}",) if has_head else ())),
        parameters="arn:${AWS::Partition}:ssm:${AWS::Region}:${AWS::AccountId}:parameter",
        images="arn:${AWS::Partition}:ssm:${AWS::Region}::parameter",
        weights=_weights(profile, "arn:${AWS::Partition}:s3:::"),
    )  # fmt: skip


def _notice_resources(name: str) -> Object:
    """Return the queue, the rule that fills it, and who may send to it."""
    return {
        "NoticeQueue": _resource("SQS::Queue", {"QueueName": name, **_queue_properties()}),
        "NoticeRule": _resource("Events::Rule", {
            "Name": name, "EventPattern": EVENT_PATTERN, "State": "ENABLED",
            "Targets": [{"Id": "queue", "Arn": {"Fn::GetAtt": ["NoticeQueue", "Arn"]}}],
        }),
        "NoticeQueuePolicy": _resource("SQS::QueuePolicy", {
            "Queues": [{"Ref": "NoticeQueue"}],
            "PolicyDocument": _filled(_queue_policy("${NoticeQueue.Arn}", "${NoticeRule.Arn}")),
        }),
    }  # fmt: skip


def _bucket_resources(fleet: str) -> Object:
    """Return the bucket of the state, and that of engines' logs, which keeps no versions; both outlive the stack."""
    closed = dict.fromkeys(
        ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"), True
    )  # fmt: skip
    encryption = {
        "ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
    }  # fmt: skip
    return {
        "StateBucket": {**_resource("S3::Bucket", {
            "BucketName": {"Fn::Sub": f"fleetctl-{fleet}-${{AWS::AccountId}}"},
            "VersioningConfiguration": {"Status": "Enabled"},
            "BucketEncryption": encryption, "PublicAccessBlockConfiguration": closed,
            "LifecycleConfiguration": {"Rules": [{
                "Id": "earlier-versions", "Status": "Enabled",
                "NoncurrentVersionExpiration": {"NoncurrentDays": _NONCURRENT_DAYS},
            }]},
        }), **_KEPT},
        "LogBucket": {**_resource("S3::Bucket", {
            "BucketName": {"Fn::Sub": f"fleetctl-{fleet}-${{AWS::AccountId}}-logs"},
            "BucketEncryption": encryption, "PublicAccessBlockConfiguration": closed,
            "LifecycleConfiguration": {"Rules": [{
                "Id": "old-logs", "Status": "Enabled", "ExpirationInDays": _LOG_DAYS,
            }]},
        }), **_KEPT},
    }  # fmt: skip


def terraform(profile: Profile) -> list[Block]:
    """Return the same as Terraform's blocks."""
    called, has_head = part_names(profile.name), not profile.host_choice.is_local
    place = "arn:${data.aws_partition.here.partition}:ssm:${data.aws_region.here.region}"
    names = PartNames(
        queue_arn="${aws_sqs_queue.notices.arn}", bucket_arn="${aws_s3_bucket.state.arn}", logs_arn="${aws_s3_bucket.logs.arn}",
        role_arns=("${aws_iam_role.engine.arn}", *(("${aws_iam_role.head.arn}",) if has_head else ())),
        parameters=f"{place}:${{data.aws_caller_identity.here.account_id}}:parameter", images=f"{place}::parameter",
        weights=_weights(profile, "arn:${data.aws_partition.here.partition}:s3:::"),
    )  # fmt: skip
    source: Object = {"security_groups": [Reference("aws_security_group.head.id")]}
    if not has_head:
        source = {"cidr_blocks": [Reference("var.gateway_cidr")]}
    everything = Block("egress", (), {"protocol": "-1", "from_port": 0, "to_port": 0, "cidr_blocks": ["0.0.0.0/0"]})
    variable = "client_cidr" if has_head else "gateway_cidr"
    blocks = [
        Block("terraform", (), {}, [Block("required_providers", (), {"aws": {"source": "hashicorp/aws", "version": ">= 6.0"}})]),
        Block("variable", ("vpc_id",), {"type": Reference("string"), "description": "That the fleet's subnets are of"}),
        Block("variable", (variable,), {
            "type": Reference("string"), "description": _SOURCES[_source_parameter(profile)],
        }),
        Block("data", ("aws_partition", "here"), {}), Block("data", ("aws_region", "here"), {}),
        Block("data", ("aws_caller_identity", "here"), {}),
        Block("resource", ("aws_security_group", "engine"), {
            "name": called["security_group"], "description": f"engines of fleetctl fleet {profile.name}",
            "vpc_id": Reference("var.vpc_id"),
        }, [Block("ingress", (), {"protocol": "tcp", "from_port": PORT, "to_port": NOTICE_PORT, **source}), everything]),
        *_terraform_role("engine", called["instance_profile"]),
        Block("resource", ("aws_iam_role_policy", "engine"), {
            "name": "fleetctl", "role": Reference("aws_iam_role.engine.id"),
            "policy": _encoded(engine_policy(names.parameters, names.logs_arn, names.weights)),
        }),
        Block("resource", ("aws_iam_policy", "fleet"), {
            "name": called["policy"], "policy": _encoded(fleet_policy(profile.name, names)),
        }),
        *terraform_template(called["launch_template"], profile), *_terraform_notices(called["queue"]), *_terraform_buckets(profile.name),
        Block("output", ("state_url",), {"value": "s3://${aws_s3_bucket.state.bucket}/fleets"}),
        Block("output", ("fleet_policy_arn",), {"value": Reference("aws_iam_policy.fleet.arn")}),
    ]  # fmt: skip
    if has_head:
        ways = [
            Block("ingress", (), {"protocol": "tcp", "from_port": port, "to_port": port, "cidr_blocks": [Reference("var.client_cidr")]})
            for port in _head_ports(profile)
        ]  # fmt: skip
        blocks += [
            Block("resource", ("aws_security_group", "head"), {
                "name": called["head_security_group"], "description": f"the head of fleetctl fleet {profile.name}",
                "vpc_id": Reference("var.vpc_id"),
            }, [*ways, everything]),
            *_terraform_role("head", called["head_instance_profile"]),
            Block("resource", ("aws_iam_role_policy_attachment", "head"), {
                "role": Reference("aws_iam_role.head.name"), "policy_arn": Reference("aws_iam_policy.fleet.arn"),
            }),
        ]  # fmt: skip
    return blocks


def _terraform_notices(name: str) -> list[Block]:
    return [
        Block("resource", ("aws_sqs_queue", "notices"), {
            "name": name, "message_retention_seconds": int(QUEUE_ATTRIBUTES["MessageRetentionPeriod"]),
            "visibility_timeout_seconds": int(QUEUE_ATTRIBUTES["VisibilityTimeout"]), "sqs_managed_sse_enabled": True,
        }),
        Block("resource", ("aws_cloudwatch_event_rule", "notices"), {
            "name": name, "event_pattern": _encoded(EVENT_PATTERN), "state": "ENABLED",
        }),
        Block("resource", ("aws_cloudwatch_event_target", "notices"), {
            "rule": Reference("aws_cloudwatch_event_rule.notices.name"), "target_id": "queue",
            "arn": Reference("aws_sqs_queue.notices.arn"),
        }),
        Block("resource", ("aws_sqs_queue_policy", "notices"), {
            "queue_url": Reference("aws_sqs_queue.notices.id"),
            "policy": _encoded(_queue_policy("${aws_sqs_queue.notices.arn}", "${aws_cloudwatch_event_rule.notices.arn}")),
        }),
    ]  # fmt: skip


def _terraform_buckets(fleet: str) -> list[Block]:
    name, state = f"fleetctl-{fleet}-${{data.aws_caller_identity.here.account_id}}", _bucket("state")
    versions = [
        Block("filter", (), {}),
        Block("noncurrent_version_expiration", (), {"noncurrent_days": _NONCURRENT_DAYS}),
    ]
    return [
        *_terraform_bucket("state", name, "earlier-versions", versions),
        Block("resource", ("aws_s3_bucket_versioning", "state"), {"bucket": state}, [
            Block("versioning_configuration", (), {"status": "Enabled"})]),
        *_terraform_bucket("logs", f"{name}-logs", "old-logs", [
            Block("filter", (), {}), Block("expiration", (), {"days": _LOG_DAYS})]),
    ]  # fmt: skip


def _terraform_bucket(label: str, name: str, rule: str, lifecycle: list[Block]) -> list[Block]:
    bucket = _bucket(label)
    return [
        Block("resource", ("aws_s3_bucket", label), {"bucket": name}, [Block("lifecycle", (), {"prevent_destroy": True})]),
        Block("resource", ("aws_s3_bucket_server_side_encryption_configuration", label), {"bucket": bucket}, [
            Block("rule", (), {}, [Block("apply_server_side_encryption_by_default", (), {"sse_algorithm": "AES256"})])]),
        Block("resource", ("aws_s3_bucket_public_access_block", label), {"bucket": bucket, **dict.fromkeys(
            ("block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets"), True)}),
        Block("resource", ("aws_s3_bucket_lifecycle_configuration", label), {"bucket": bucket}, [
            Block("rule", (), {"id": rule, "status": "Enabled"}, lifecycle)]),
    ]  # fmt: skip


def _bucket(label: str) -> Reference:
    return Reference(f"aws_s3_bucket.{label}.id")


_SOURCES = {
    "GatewayCidr": "The addresses that engines are reached from, where controller and gateway run: 10.0.3.7/32",
    "ClientCidr": "The addresses that the head is reached from: your VPC's, a VPN's",
}


def _source_parameter(profile: Profile) -> str:
    return "GatewayCidr" if profile.host_choice.is_local else "ClientCidr"


def _head_ports(profile: Profile) -> tuple[int, ...]:
    is_public = profile.gateway.host not in ("127.0.0.1", "::1", "localhost")
    return (SSH_PORT, profile.gateway.port) if is_public else (SSH_PORT,)


def _weights(profile: Profile, buckets: str) -> tuple[WeightsPlace, ...]:
    """Return where the lanes' weights are fetched from, each once; `buckets` is what buckets' ARNs begin with."""
    paths = (lane.own_model(profile.model_of(lane)).path for lane in profile.lanes)
    found = {weights.source: weights for weights in map(remote_weights, paths) if weights is not None}
    return tuple(
        WeightsPlace(bucket_arn=f"{buckets}{each.bucket}", prefix=each.prefix) for _, each in sorted(found.items())
    )


def _keys(profile: Profile) -> str:
    """Return the profile's keys that name what was made; `up` finds it then, and makes none of it."""
    import yaml  # as above

    called = part_names(profile.name)
    found: Object = {"provider": {
        "kind": "aws", "security_group": called["security_group"], "instance_profile": called["instance_profile"],
        "queue": called["queue"], "launch_template": called["launch_template"],
    }}  # fmt: skip
    if not profile.host_choice.is_local:
        head = {"instance_profile": called["head_instance_profile"], "security_group": called["head_security_group"]}
        found["host"] = {"kind": "node", **head}
    note = (
        "# For the profile, once it is made: `up` finds these by name and makes none of them, and `down` leaves them.\n"
        f"# export FLEETCTL_STATE=s3://fleetctl-{profile.name}-ACCOUNT/fleets\n"
        f"# To have engines' logs shipped, beside `queue`: logs: s3://fleetctl-{profile.name}-ACCOUNT-logs/engines\n"
    )
    return note + yaml.safe_dump(found, sort_keys=False)


def _resource(kind: str, properties: Object) -> Object:
    return {"Type": f"AWS::{kind}", "Properties": properties}


def _role(name: str, policy: Object) -> Object:
    return _resource("IAM::Role", {
        "RoleName": name, "AssumeRolePolicyDocument": trust_policy(),
        "Policies": [{"PolicyName": "fleetctl", "PolicyDocument": _filled(policy)}],
    })  # fmt: skip


def _terraform_role(label: str, name: str) -> list[Block]:
    return [
        Block("resource", ("aws_iam_role", label), {"name": name, "assume_role_policy": _encoded(trust_policy())}),
        Block("resource", ("aws_iam_instance_profile", label), {
            "name": name, "role": Reference(f"aws_iam_role.{label}.name"),
        }),
    ]  # fmt: skip


def _queue_properties() -> Object:
    is_encrypted = QUEUE_ATTRIBUTES["SqsManagedSseEnabled"] == "true"
    return {
        "MessageRetentionPeriod": int(QUEUE_ATTRIBUTES["MessageRetentionPeriod"]),
        "VisibilityTimeout": int(QUEUE_ATTRIBUTES["VisibilityTimeout"]), "SqsManagedSseEnabled": is_encrypted,
    }  # fmt: skip


def _queue_policy(queue_arn: str, rule_arn: str) -> Object:
    """Return who may send to the queue: its rule alone."""
    statement = {
        "Sid": "Events", "Effect": "Allow", "Principal": _SERVICE_QUEUE, "Action": "sqs:SendMessage",
        "Resource": queue_arn, "Condition": {"ArnEquals": {"aws:SourceArn": rule_arn}},
    }  # fmt: skip
    return {"Version": "2012-10-17", "Statement": [statement]}


def _filled(value: Any) -> Any:  # noqa: ANN401  # JSON of any form
    """Return a document whose texts that refer to something are CloudFormation's own."""
    if isinstance(value, dict):
        return {key: _filled(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each) for each in value]
    return {"Fn::Sub": value} if isinstance(value, str) and "${" in value else value


def _encoded(document: Object) -> Reference:
    """Return a document as Terraform's jsonencode of it; what its texts refer to is filled in there."""
    return Reference(f"jsonencode({json.dumps(document, indent=2)})")
