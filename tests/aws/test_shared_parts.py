"""A fleet on parts that somebody else has made: a stack of CloudFormation, `up` with no right to make them, and `down`, which leaves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleetctl_aws.shared_policy import MAKING
from tests.aws.booted_home import booted_home
from tests.aws.cloud.client import running_cloud
from tests.aws.cloud.network import why_not_namespaced
from tests.aws.policies import refused, rights_used
from tests.aws.test_fleet import PROFILE, ready, what_is_left
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aws.cloud.client import Cloud
    from tests.e2e.fleet import Home

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.enable_socket,
    pytest.mark.skipif(bool(why_not_namespaced()), reason="the template's script is for a machine of its own"),
]

OF_HUB = "    spot: all\n    launch: {env: {HF_TOKEN: env:HF_TOKEN}}\n"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with running_cloud("--boot") as running:
        yield running


@pytest.fixture
def home(cloud: Cloud) -> Iterator[Home]:
    with booted_home(cloud, "booted") as home:
        home.env["HF_TOKEN"] = "of-the-hub"  # noqa: S105  # of a test
        yield home


def test_up_finds_what_a_stack_has_made_and_down_leaves_it(home: Home, cloud: Cloud) -> None:
    profile, rendered = home.root / "booted.yaml", home.root / "shared"
    port = free_port()
    text = PROFILE.replace("PORT", str(port)).replace("    spot: all\n", OF_HUB)
    profile.write_text(text)
    # Whoever makes the parts needs no credentials to have them written.
    home.fleetctl("render", str(profile), "--target", "cloudformation", "-o", str(rendered))
    template = (rendered / "fleetctl.cloudformation.yaml").read_text()
    vpc = cloud.boto("ec2").describe_vpcs()["Vpcs"][0]["VpcId"]
    parameters = [
        {"ParameterKey": "VpcId", "ParameterValue": vpc}, {"ParameterKey": "GatewayCidr", "ParameterValue": f"{cloud.facts['host']}/32"},
    ]  # fmt: skip
    cloud.boto("cloudformation").create_stack(
        StackName="shared", TemplateBody=template, Parameters=parameters, Capabilities=["CAPABILITY_NAMED_IAM"]
    )
    made = what_is_left(cloud)
    assert {kind: len(names) for kind, names in made.items()} == {
        "templates": 1, "groups": 1, "queues": 1, "rules": 1,
    }  # fmt: skip

    keys = yaml.safe_load((rendered / "fleetctl-keys.yaml").read_text())
    for key, word in (("queue", "there is no queue of-nobody"), ("launch_template", "no launch template of-nobody")):
        missing = {**keys["provider"], key: "of-nobody"}
        profile.write_text(text.replace("provider: aws", f"provider: {missing}"))
        names_what_lacks(home, home.run("up", str(profile), "--yes", "--detach", timeout_s=120).err, word)
        home.run("down", "booted", "--yes", timeout_s=120)
        assert cloud.instances() == []

    # From here on whoever keeps the fleet may do what the stack's policy says, and its instances what their role may.
    cloud.hold_to(stack_policy(cloud), roles=True)
    profile.write_text(text.replace("provider: aws", f"provider: {keys['provider']}"))
    home.fleetctl("up", str(profile), "--yes", "--detach", timeout_s=120)
    cloud.until(lambda: len(ready(home)) >= 2, "two replicas are ready", seconds=180)
    reservations = cloud.boto("ec2").describe_instances()["Reservations"]
    running = [each for reservation in reservations for each in reservation["Instances"]]
    groups = {group["GroupId"] for each in running for group in each["SecurityGroups"]}
    assert groups == {
        each["GroupId"]
        for each in cloud.boto("ec2").describe_security_groups()["SecurityGroups"]
        if each["GroupName"] == keys["provider"]["security_group"]
    }
    assert {
        each["LaunchTemplateName"] for each in cloud.boto("ec2").describe_launch_templates()["LaunchTemplates"]
    } == {keys["provider"]["launch_template"]}
    assert "look-alike ready on" in home.fleetctl("logs", ready(home)[0].id, "--fleet", "booted")
    home.fleetctl("down", "booted", "--yes", timeout_s=240)
    assert what_is_left(cloud) == made
    assert refused(cloud) == []
    used = rights_used(cloud)
    assert {"ec2:CreateFleet", "sqs:ReceiveMessage", "ssm:PutParameter"} <= used
    assert used & MAKING == set()
    assert rights_used(cloud, of_roles=True) == {"ssm:GetParametersByPath"}


def names_what_lacks(home: Home, of_up: str, word: str) -> None:
    """Wait until it is shown: by `up`, before anything is created, or where the controller comes to it by that."""

    def shown() -> str:
        return f"{of_up}{home.run('events', 'booted', '--limit', '100').out}"

    until(lambda: word in shown(), "a name that leads nowhere is shown", within_s=60, explain=shown)


def stack_policy(cloud: Cloud) -> dict[str, Any]:
    """Return the managed policy of the stack, as IAM has it."""
    iam = cloud.boto("iam")
    (policy,) = iam.list_policies(Scope="Local")["Policies"]
    version = iam.get_policy_version(PolicyArn=policy["Arn"], VersionId=policy["DefaultVersionId"])
    document: dict[str, Any] = version["PolicyVersion"]["Document"]
    return document
