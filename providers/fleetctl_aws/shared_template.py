"""The launch template that all lanes of a fleet share, for whoever may make it: as CloudFormation and as Terraform."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fleetctl_aws.boot_documents import shared_user_data
from fleetctl_aws.hcl import Block, Reference
from fleetctl_aws.settings import DEFAULT_AMI, DEFAULT_DISK_GB

if TYPE_CHECKING:
    from fleetctl.model.profile import Profile

Object = dict[str, Any]
_ROOT_DEVICE = "/dev/sda1"  # of Ubuntu's images, and of AWS's deep learning ones
_WHAT_IMAGE = "The machine image: it needs docker, NVIDIA's driver and container runtime, cloud-init and the AWS CLI"
_WHAT_DEVICE = "The image's root device, as `aws ec2 describe-images` shows it"


def template_parameters(profile: Profile) -> Object:
    """Return CloudFormation's parameters of the template. The image is looked up as the stack is made or updated, not at each launch."""
    source, kind = _image(profile), "AWS::EC2::Image::Id"
    if source.startswith("ssm:"):
        kind = f"AWS::SSM::Parameter::Value<{kind}>"
    return {
        "ImageId": {"Type": kind, "Default": source.removeprefix("ssm:"), "Description": _WHAT_IMAGE},
        "RootDevice": {"Type": "String", "Default": _ROOT_DEVICE, "Description": _WHAT_DEVICE},
    }


def template_resource(name: str, profile: Profile) -> Object:
    """Return CloudFormation's resource."""
    disk = {"VolumeSize": _disk_gb(profile), "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    return {
        "Type": "AWS::EC2::LaunchTemplate",
        "Properties": {
            "LaunchTemplateName": name,
            "LaunchTemplateData": {
                "ImageId": {"Ref": "ImageId"},
                "UserData": {"Fn::Base64": shared_user_data(profile.name)},
                "SecurityGroupIds": [{"Fn::GetAtt": ["EngineGroup", "GroupId"]}],
                "IamInstanceProfile": {"Name": {"Ref": "EngineProfile"}},
                "InstanceInitiatedShutdownBehavior": "terminate",
                "MetadataOptions": {
                    "HttpTokens": "required", "HttpEndpoint": "enabled", "InstanceMetadataTags": "enabled",
                    "HttpPutResponseHopLimit": 1,
                },
                "BlockDeviceMappings": [{"DeviceName": {"Ref": "RootDevice"}, "Ebs": disk}],
            },
        },
    }  # fmt: skip


def terraform_template(name: str, profile: Profile) -> list[Block]:
    """Return the same as Terraform's blocks."""
    source = _image(profile)
    image: object = source
    blocks = []
    if source.startswith("ssm:"):
        blocks.append(Block("data", ("aws_ssm_parameter", "image"), {"name": source.removeprefix("ssm:")}))
        image = Reference("data.aws_ssm_parameter.image.insecure_value")
    # Terraform would fill in what a shell is to: ${...}, and %{...}.
    text = json.dumps(shared_user_data(profile.name)).replace("${", "$${").replace("%{", "%%{")
    disk = {
        "volume_size": _disk_gb(profile), "volume_type": "gp3", "encrypted": True, "delete_on_termination": True,
    }  # fmt: skip
    blocks += [
        Block("variable", ("root_device",), {
            "type": Reference("string"), "default": _ROOT_DEVICE, "description": _WHAT_DEVICE,
        }),
        Block("resource", ("aws_launch_template", "engine"), {
            "name": name, "image_id": image, "update_default_version": True,
            "vpc_security_group_ids": [Reference("aws_security_group.engine.id")],
            "instance_initiated_shutdown_behavior": "terminate", "user_data": Reference(f"base64encode({text})"),
        }, [
            Block("iam_instance_profile", (), {"name": Reference("aws_iam_instance_profile.engine.name")}),
            Block("metadata_options", (), {
                "http_tokens": "required", "http_endpoint": "enabled", "instance_metadata_tags": "enabled",
                "http_put_response_hop_limit": 1,
            }),
            Block("block_device_mappings", (), {"device_name": Reference("var.root_device")}, [Block("ebs", (), disk)]),
        ]),
    ]  # fmt: skip
    return blocks


def _image(profile: Profile) -> str:
    return str(profile.provider_settings.get("ami") or DEFAULT_AMI)


def _disk_gb(profile: Profile) -> int:
    return int(str(profile.provider_settings.get("disk_gb") or DEFAULT_DISK_GB))
