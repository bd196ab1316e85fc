"""What an instance's image stands for, where it is in a private repository of the account's registry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import ConfigError, CredentialsError, ProviderError
from tests.aws.policies import refused, shipped

if TYPE_CHECKING:
    from fleetctl.ports.images import NodeImages
    from tests.aws.provider.conftest import Rented

pytestmark = pytest.mark.enable_socket

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
ACCOUNT, REPOSITORY = "123456789012", "engines/vllm"


def pushed(rented: Rented, tag: str, content: str) -> str:
    """Have a tag of the repository stand for an image, and return its digest."""
    ecr = rented.cloud.boto("ecr")
    if not ecr.describe_repositories()["repositories"]:
        ecr.create_repository(repositoryName=REPOSITORY)
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": {}, "layers": [{"digest": content}]}
    image = ecr.put_image(repositoryName=REPOSITORY, imageTag=tag, imageManifest=json.dumps(manifest))["image"]
    return str(image["imageId"]["imageDigest"])


def images_of(rented: Rented) -> NodeImages:
    images = rented.provider().capabilities.images
    assert images is not None
    return images


async def test_a_private_repository_is_read_by_the_accounts_own_credentials(rented: Rented) -> None:
    rented.cloud.hold_to(shipped("aws-policy"))
    host = f"{ACCOUNT}.dkr.ecr.{rented.cloud.region}.amazonaws.com"
    images = images_of(rented)
    first = pushed(rented, "v1", "first")
    assert await images.digest_of(f"{host}/{REPOSITORY}:v1") == first
    second = pushed(rented, "v1", "second")
    assert await images.digest_of(f"{host}/{REPOSITORY}:v1") == second != first
    with pytest.raises(ProviderError, match="v9"):
        await images.digest_of(f"{host}/{REPOSITORY}:v9")
    assert refused(rented.cloud) == []


async def test_it_is_asked_in_its_own_region(rented: Rented) -> None:
    with pytest.raises(ProviderError, match=REPOSITORY):
        await images_of(rented).digest_of(f"{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com/{REPOSITORY}:v1")
    (call,) = [each for each in rented.cloud.calls("DescribeImages") if each["service"] == "ecr"]
    assert call["region"] == "eu-west-1"


async def test_a_right_that_lacks_is_said(rented: Rented) -> None:
    rented.cloud.hold_to({"Version": "2012-10-17", "Statement": []})
    with pytest.raises(CredentialsError, match="ecr:DescribeImages"):
        await images_of(rented).digest_of(f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/{REPOSITORY}:v1")


async def test_a_machine_image_is_what_its_parameter_holds_by_now(rented: Rented) -> None:
    ssm, published = rented.cloud.boto("ssm"), sorted(rented.cloud.facts["images"][rented.cloud.region].values())
    for image in published[:2]:
        ssm.put_parameter(Name="/fleetctl/newest", Value=image, Type="String", Overwrite=True)
        images = rented.provider(ami="ssm:/fleetctl/newest").capabilities.images
        assert images is not None
        assert (images.machine_image, await images.machine_image_id()) == ("ssm:/fleetctl/newest", image)
    ssm.delete_parameter(Name="/fleetctl/newest")  # the cloud is shared
    for ami in ("ssm:/fleetctl/none", "ami-00000000"):
        images = rented.provider(ami=ami).capabilities.images
        assert images is not None
        with pytest.raises(ConfigError, match="no machine image"):
            await images.machine_image_id()
    chosen = rented.provider(launch_template="somebody-elses").capabilities.images
    assert chosen is not None
    assert chosen.machine_image == "", "their template chooses it"


@pytest.mark.parametrize(
    "image", ["vllm/vllm-openai:v0.32.0", "public.ecr.aws/x/y:1", "amazonaws.com/x:1", "ghcr.io/a/b"]
)
async def test_other_registries_are_not_the_accounts(rented: Rented, image: str) -> None:
    before = len(rented.cloud.calls())
    assert await images_of(rented).digest_of(image) == ""
    assert len(rented.cloud.calls()) == before
