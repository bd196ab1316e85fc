"""A fleet's later instances have the images of its first, engine's and machine's, though their names have moved; asked to, it goes over."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING

import pytest

from tests.aws.booted_home import booted_home
from tests.aws.cloud.client import running_cloud
from tests.e2e.fleet import live_replicas
from tests.image_registry import ImageRegistry, running_registry
from tests.living_profiles import placed_profile
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aws.cloud.client import Cloud
    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.enable_socket]

FLEET, NAME, PARAMETER = "pinned", "engines/emulator", "/fleetctl/newest"
PROFILE = placed_profile(
    FLEET,
    provider="aws",
    lane="chat",
    replicas="min: 1, max: 2",
    ttft="2s",
    output_tokens="p50: 32, p99: 100",
    keys="""\
    spot: none
control: {rollout: {bake: 1s}}
capacity: {gpus: [L40S], max_nodes: 3}
gateway: {host: 127.0.0.1, port: PORT}
""",
)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with running_cloud("--boot") as running:
        yield running


@pytest.fixture
def registry() -> Iterator[ImageRegistry]:
    with running_registry() as running:
        yield running


@pytest.fixture
def home(cloud: Cloud, registry: ImageRegistry) -> Iterator[Home]:
    with booted_home(cloud, FLEET) as home:
        home.env["FLEETCTL_AWS_IMAGE"] = f"{registry.host}/{NAME}:stable"
        home.env["FLEETCTL_AWS_AMI"] = f"ssm:{PARAMETER}"
        yield home


def started(home: Home, cloud: Cloud) -> dict[str, str]:
    """Return what the instances of replicas that serve have pulled, by their replicas."""
    rows = live_replicas(home.status(FLEET))
    return {
        row.record.id: pulled(cloud, row.record.node_id) for row in rows if row.record.state.value == "ready"
    }  # fmt: skip


def pulled(cloud: Cloud, instance: str) -> str:
    """Return the image in the user data that an instance was launched with."""
    ec2 = cloud.boto("ec2")
    (found,) = [each for each in cloud.instances() if each["id"] == instance]
    name = next(value for key, value in found["tags"].items() if key == "fleetctl:template")
    (version,) = ec2.describe_launch_template_versions(LaunchTemplateName=name)["LaunchTemplateVersions"]
    text = b64decode(version["LaunchTemplateData"]["UserData"]).decode()
    (image,) = set(re.findall(r"docker image inspect (\S+)", text))
    return str(image)


def machine_images(cloud: Cloud) -> set[str]:
    """Return the images of the machines that run."""
    pages = cloud.boto("ec2").describe_instances()["Reservations"]
    living = [each for page in pages for each in page["Instances"] if each["State"]["Name"] == "running"]
    return {each["ImageId"] for each in living}


def publish(cloud: Cloud, image: str) -> str:
    """Have the parameter hold a machine image."""
    cloud.boto("ssm").put_parameter(Name=PARAMETER, Value=image, Type="String", Overwrite=True)
    return image


def test_a_tag_that_moves_gives_no_later_replica_another_image(
    home: Home, cloud: Cloud, registry: ImageRegistry
) -> None:
    profile = home.root / f"{FLEET}.yaml"
    profile.write_text(PROFILE.replace("PORT", str(free_port())))
    image = f"{registry.host}/{NAME}"
    older, newer, *_ = sorted(cloud.facts["images"][cloud.region].values())
    first = registry.push(NAME, "stable", "first")
    publish(cloud, older)
    home.fleetctl("up", str(profile), "--yes", timeout_s=240)
    assert set(started(home, cloud).values()) == {f"{image}@{first}"}
    shown = home.fleetctl("status", FLEET)
    assert f"chat: {image}@{first} ({image}:stable)" in shown
    assert f"chat: {older} (ssm:{PARAMETER})" in shown

    second, seen = registry.push(NAME, "stable", "second"), list(registry.seen)
    publish(cloud, newer)
    home.fleetctl("scale", "chat", "2", "--fleet", FLEET)
    cloud.until(lambda: len(started(home, cloud)) == 2, "a second replica is ready", seconds=120)
    assert set(started(home, cloud).values()) == {f"{image}@{first}"}
    assert machine_images(cloud) == {older}
    home.fleetctl("up", str(profile), "--yes", "--detach")
    kept = home.status(FLEET).lanes[0].image
    assert (str(kept), registry.seen) == (f"{image}@{first} ({image}:stable)", seen), "the registry is not asked again"

    home.fleetctl("up", str(profile), "--yes", "--refresh-images", timeout_s=240)
    assert set(started(home, cloud).values()) == {f"{image}@{second}"}
    cloud.until(lambda: machine_images(cloud) == {newer}, "no machine of before is left", seconds=60)
