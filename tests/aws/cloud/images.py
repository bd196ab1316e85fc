"""The images of deep learning AMIs and the SSM parameters that name them, which moto lacks."""

from __future__ import annotations

from moto.core.utils import utcnow
from moto.ec2.models import ec2_backends
from moto.ssm.models import Parameter, ssm_backends

from tests.aws.cloud.account import ACCOUNT

# https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html
DEEP_LEARNING = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id",
)
# Of Canonical, for machines without GPUs.
UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"


def publish_images(region: str) -> dict[str, str]:
    """Register an image for each parameter, and return their ids by the parameter's name."""
    published = {}
    for name in (*DEEP_LEARNING, UBUNTU):
        image = ec2_backends[ACCOUNT][region].register_image(
            name=name.split("/")[-3], description="Deep Learning Base AMI"
        )
        image.architecture, image.virtualization_type, image.root_device_type = "x86_64", "hvm", "ebs"
        parameters = ssm_backends[ACCOUNT][region]._parameters
        parameters[name].append(
            Parameter(  # type: ignore[abstract]  # as moto itself does
                account_id=ACCOUNT,
                name=name,
                value=image.id,
                parameter_type="String",
                description=None,
                allowed_pattern=None,
                keyid=None,
                last_modified_date=utcnow(),
                version=1,
                data_type="aws:ec2:image",
            )
        )
        published[name] = image.id
    return published
