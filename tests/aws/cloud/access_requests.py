"""What a call of an AWS client has to be allowed: IAM's actions, the resources they are on, and the context of conditions.

After the Service Authorization Reference (https://docs.aws.amazon.com/service-authorization/latest/reference/): an action's
name is not always the call's (ListObjectsV2 is s3:ListBucket), tags at creation and roles that are passed are actions of their
own, and CreateFleet launches with its caller's own rights.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends

from tests.aws.cloud.account import ACCOUNT
from tests.aws.cloud.iam_policy import AccessRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.aws.cloud.calls import AwsCall

_S3_ACTIONS = {"ListObjectsV2": "ListBucket", "HeadObject": "GetObject"}
_SERVICES = {"service-quotas": "servicequotas"}
# Of EC2, whose resources' kind is told by their ids.
_KINDS = {
    "i": "instance", "vol": "volume", "sg": "security-group", "lt": "launch-template", "eipalloc": "elastic-ip",
    "subnet": "subnet", "ami": "image", "vpc": "vpc", "eni": "network-interface", "fleet": "fleet",
}  # fmt: skip
_IDS_IN = {
    "TerminateInstances": ("InstanceId",), "CreateTags": ("ResourceId",), "DeleteVolume": ("VolumeId",),
    "DeleteSecurityGroup": ("GroupId",), "AuthorizeSecurityGroupIngress": ("GroupId",),
    "RevokeSecurityGroupIngress": ("GroupId",), "DeleteLaunchTemplate": ("LaunchTemplateId",),
    "AssociateAddress": ("AllocationId", "InstanceId"),
}  # fmt: skip
_MADE_BY = {
    "CreateSecurityGroup": "security-group", "CreateLaunchTemplate": "launch-template", "CreateFleet": "fleet",
}  # fmt: skip
_PASSED_TO = {"iam:PassedToService": "ec2.amazonaws.com"}


def access_requests(call: AwsCall) -> list[AccessRequest]:
    """Return everything that a call has to be allowed. Raises KeyError for a call of EC2 that is not known here."""
    if call.service in _READERS:
        return list(_READERS[call.service](call))
    return [AccessRequest(action=f"{_SERVICES.get(call.service, call.service)}:{call.action}")]


def _of_ec2(call: AwsCall) -> Iterator[AccessRequest]:
    action = f"ec2:{call.action}"
    if call.action.startswith("Describe"):
        yield AccessRequest(action=action)
    elif call.action in ("RunInstances", "CreateFleet"):
        yield from _launching(call)
    elif call.action in _MADE_BY:
        yield AccessRequest(action=action, resource=_ec2_arn(call, f"{_MADE_BY[call.action]}/*"))
        for name in _values(call.parameters, "VpcId"):
            yield AccessRequest(action=action, resource=_arn_of_id(call, name))
    else:
        for name in _values(call.parameters, *_IDS_IN[call.action]):
            context = {f"aws:ResourceTag/{key}": value for key, value in _tags(call, name).items()}
            given = {f"aws:RequestTag/{key}": value for key, value in _given_tags(call.parameters, "Tag").items()}
            yield AccessRequest(action=action, resource=_arn_of_id(call, name), context={**context, **given})
    if call.action != "CreateTags":
        yield from _tagging(call)


def _launching(call: AwsCall) -> Iterator[AccessRequest]:
    """Yield what a launch takes: on whatever it makes and uses, and the role that it gives away."""
    if call.action == "CreateFleet":
        yield AccessRequest(action="ec2:CreateFleet", resource=_ec2_arn(call, "fleet/*"))
    templates = [_template(call, name) for name in _values(call.parameters, "LaunchTemplateId", "LaunchTemplateName")]
    from_template = {"ec2:LaunchTemplate": _ec2_arn(call, f"launch-template/{templates[0]}")} if templates else {}
    names = set(_values(call.parameters, "SubnetId", "ImageId", "SecurityGroupId"))
    for name in sorted(names | set(templates)):
        tags = {f"aws:ResourceTag/{key}": value for key, value in _tags(call, name).items()}
        yield AccessRequest(
            action="ec2:RunInstances", resource=_arn_of_id(call, name), context={**tags, **from_template}
        )
    for kind in ("instance", "volume", "network-interface"):
        given = {f"aws:RequestTag/{key}": value for key, value in _given_tags(call.parameters, kind).items()}
        yield AccessRequest(
            action="ec2:RunInstances", resource=_ec2_arn(call, f"{kind}/*"), context={**given, **from_template}
        )
    for role in sorted({role for name in _profiles(call, templates) for role in _roles(name)}):
        yield AccessRequest(action="iam:PassRole", resource=role, context=_PASSED_TO)


def _tagging(call: AwsCall) -> Iterator[AccessRequest]:
    """Yield ec2:CreateTags for every kind of thing that a call tags as it makes it."""
    for prefix, kind in _specifications(call.parameters):
        given = {f"aws:RequestTag/{key}": value for key, value in _tags_at(call.parameters, prefix).items()}
        # What CreateFleet launches is tagged as RunInstances does, the fleet itself as CreateFleet.
        is_launched = call.action == "CreateFleet" and kind != "fleet"
        by = {"ec2:CreateAction": "RunInstances" if is_launched else call.action}
        yield AccessRequest(action="ec2:CreateTags", resource=_ec2_arn(call, f"{kind}/*"), context={**given, **by})


def _of_iam(call: AwsCall) -> Iterator[AccessRequest]:
    name = call.parameters.get("InstanceProfileName", "*")
    role = call.parameters.get("RoleName")
    what = f"role/{role}" if role else f"instance-profile/{name}"
    yield AccessRequest(action=f"iam:{call.action}", resource=_arn("iam", what))


def _of_s3(call: AwsCall) -> Iterator[AccessRequest]:
    action = f"s3:{_S3_ACTIONS.get(call.action, call.action)}"
    bucket, key = call.parameters["Bucket"], call.parameters["Key"]
    context = {"s3:prefix": call.parameters.get("prefix", "")} if action == "s3:ListBucket" else {}
    resource = f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}"
    yield AccessRequest(action=action, resource=resource, context=context)


def _of_ssm(call: AwsCall) -> Iterator[AccessRequest]:
    action = f"ssm:{call.action}"
    if call.action == "SendCommand":
        document = call.parameters["DocumentName"]
        yield AccessRequest(action=action, resource=f"arn:aws:ssm:{call.region}::document/{document}")
        for name in _values(call.parameters, "InstanceIds"):
            tags = {f"ssm:resourceTag/{key}": value for key, value in _tags(call, name).items()}
            yield AccessRequest(action=action, resource=_arn_of_id(call, name), context=tags)
        return
    names = _values(call.parameters, "Name", "Names", "Path") if "Parameter" in call.action else []
    if call.action == "DescribeParameters" or not names:
        yield AccessRequest(action=action)
        return
    for name in names:
        owner = "" if name.startswith("/aws/") else ACCOUNT
        yield AccessRequest(action=action, resource=f"arn:aws:ssm:{call.region}:{owner}:parameter{name}")


def _of_notices(call: AwsCall) -> Iterator[AccessRequest]:
    if call.service == "events":
        name = call.parameters.get("Name") or call.parameters["Rule"]
        resource = _arn("events", f"rule/{name}", call.region)
    else:
        name = call.parameters.get("QueueName") or call.parameters["QueueUrl"].rpartition("/")[2]
        resource = _arn("sqs", name, call.region)
    yield AccessRequest(action=f"{call.service}:{call.action}", resource=resource)
    tagging = {"PutRule": "events:TagResource", "CreateQueue": "sqs:TagQueue"}.get(call.action)
    if tagging and any(key.lower().startswith("tag") for key in call.parameters):
        yield AccessRequest(action=tagging, resource=resource)


def _values(parameters: Mapping[str, str], *names: str) -> list[str]:
    """Return the values of parameters of these names, however deep and whichever of a list."""
    wanted = re.compile(rf"(?:.*\.)?(?:{'|'.join(names)})(?:\.\d+)?")
    return [value for key, value in parameters.items() if wanted.fullmatch(key)]


def _specifications(parameters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield where a call's own tag specifications are, and their kinds; a template's data holds others."""
    for key, kind in parameters.items():
        found = re.fullmatch(r"(TagSpecification\.\d+)\.ResourceType", key)
        if found:
            yield found[1], kind


def _given_tags(parameters: Mapping[str, str], kind: str) -> dict[str, str]:
    if kind == "Tag":
        return _tags_at(parameters, "")
    prefixes = [prefix for prefix, named in _specifications(parameters) if named == kind]
    return {key: value for prefix in prefixes for key, value in _tags_at(parameters, prefix).items()}


def _tags_at(parameters: Mapping[str, str], prefix: str) -> dict[str, str]:
    start = f"{prefix}.Tag." if prefix else "Tag."
    keys = [key for key in parameters if key.startswith(start) and key.endswith(".Key")]
    return {parameters[key]: parameters.get(f"{key.removesuffix('.Key')}.Value", "") for key in keys}


def _tags(call: AwsCall, name: str) -> dict[str, str]:
    return dict(ec2_backends[ACCOUNT][call.region].tags.get(name, {}))


def _template(call: AwsCall, name: str) -> str:
    """Return a template's id; of one that is not there what it is called."""
    backend = ec2_backends[ACCOUNT][call.region]
    return str(backend.launch_template_name_to_ids.get(name, name))


def _profiles(call: AwsCall, templates: list[str]) -> set[str]:
    """Return the instance profiles that a launch gives its instances, by name."""
    found = set(_values(call.parameters, r"IamInstanceProfile\.Name", r"IamInstanceProfile\.Arn"))
    backend = ec2_backends[ACCOUNT][call.region]
    for name in templates:
        if name in backend.launch_templates:
            given = backend.launch_templates[name].latest_version().data.get("IamInstanceProfile") or {}
            found |= {str(value) for value in given.values()}
    return {each.rpartition("/")[2] for each in found}


def _roles(profile: str) -> list[str]:
    found = iam_backends[ACCOUNT]["aws"].instance_profiles.values()
    return [role.arn for each in found if each.name == profile for role in each.roles]


def _arn_of_id(call: AwsCall, name: str) -> str:
    kind = _KINDS[name.partition("-")[0]]
    # Images are no account's of ours.
    return f"arn:aws:ec2:{call.region}::image/{name}" if kind == "image" else _ec2_arn(call, f"{kind}/{name}")


def _ec2_arn(call: AwsCall, rest: str) -> str:
    return _arn("ec2", rest, call.region)


def _arn(service: str, rest: str, region: str = "") -> str:
    return f"arn:aws:{service}:{region}:{ACCOUNT}:{rest}"


_READERS: dict[str, Callable[[AwsCall], Iterator[AccessRequest]]] = {
    "ec2": _of_ec2, "s3": _of_s3, "ssm": _of_ssm, "sqs": _of_notices, "events": _of_notices, "iam": _of_iam,
}  # fmt: skip
