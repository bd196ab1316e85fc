"""What an order becomes in an account, whatever AWS says to it."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import (
    AmbiguousOutcomeError,
    CapacityError,
    ConfigError,
    CredentialsError,
    FleetctlError,
    QuotaError,
    ThrottledError,
)
from fleetctl.model.catalogue import Market
from fleetctl.model.node import NodeState
from fleetctl_aws import tags
from tests.aws.policies import refused, rights_used, shipped
from tests.providers.contract.cases import Account

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.aws.provider.conftest import Rented

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
OFFERINGS = tuple(f"{name}/{zone}/spot" for name in ("g6.xlarge", "g6.2xlarge") for zone in ZONES)
ORDER = {"offering": OFFERINGS[0], "port": 8000}
SECRET = "a-token-nobody-may-read"  # noqa: S105  # of a test


@pytest.fixture
def account(rented: Rented, request: pytest.FixtureRequest) -> Account:
    return Account(rented.provider(), SYSTEM_CLOCK, f"owner-{zlib.crc32(request.node.nodeid.encode())}", defaults=ORDER)


async def error_of(account: Account, token: str = "t-1", **changes: object) -> FleetctlError:  # noqa: S107  # an intent's id
    await account.prepare()
    order = account.order(token, **changes)
    (result,) = await account.provider.create((order,), resolve_secrets=dict)
    assert result.error is not None
    assert result.node is None
    return result.error


async def test_one_without_stock_is_passed_over_for_the_next_offering_of_the_same_order(
    account: Account, rented: Rented
) -> None:
    rented.cloud.limit(instance_type="g6.xlarge")
    node = await account.node("t-1", alternatives=OFFERINGS[1:])
    assert node.instance_type == "g6.2xlarge"
    assert node.offering in OFFERINGS
    assert (await account.describe("t-1") or node).offering == node.offering


async def test_where_nothing_has_stock_all_that_was_ordered_cannot_be_had(account: Account, rented: Rented) -> None:
    rented.cloud.limit()
    error = await error_of(account, alternatives=OFFERINGS[1:])
    assert isinstance(error, CapacityError)
    assert (error.instance_type, error.zone, error.market) == ("", "", "")
    assert rented.cloud.instances() == []


async def test_a_quota_that_is_used_up_is_named(account: Account, rented: Rented) -> None:
    rented.cloud.quota("L-3819A6DF", 3)
    error = await error_of(account)
    assert isinstance(error, QuotaError)
    assert error.quota == "All G and VT Spot Instance Requests"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("RequestLimitExceeded", ThrottledError),
        ("InsufficientInstanceCapacity", CapacityError),
        ("VcpuLimitExceeded", QuotaError),
        ("UnauthorizedOperation", CredentialsError),
        ("ExpiredToken", CredentialsError),
    ],
)
async def test_each_refusal_means_what_it_means_to_the_controller(
    account: Account, rented: Rented, code: str, kind: type[FleetctlError]
) -> None:
    await account.prepare()
    rented.cloud.fault("error", action="CreateFleet", code=code)
    assert isinstance(await error_of(account), kind)
    assert rented.cloud.instances() == []


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("ExpiredToken", "log in again"), ("InvalidClientTokenId", "does not know this access key"),
        ("RequestExpired", "clock"), ("AuthFailure", "clock"), ("SignatureDoesNotMatch", "secret key"),
        ("UnauthorizedOperation", "ec2:CreateFleet and ec2:RunInstances and ec2:CreateTags and iam:PassRole allowed"),
    ],
)  # fmt: skip
async def test_whoever_is_not_let_in_is_told_what_to_mend(
    account: Account, rented: Rented, code: str, advice: str
) -> None:
    await account.prepare()
    rented.cloud.fault("error", action="CreateFleet", code=code)
    assert advice in (await error_of(account)).hint


LINKED_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"


@pytest.mark.parametrize("code", [LINKED_ROLE, "UnfulfillableCapacity"])
async def test_an_account_without_spots_role_is_sold_on_demand_and_is_told_how_to_make_it(
    account: Account, rented: Rented, code: str
) -> None:
    await account.prepare()
    rented.cloud.fault(
        "error", action="CreateFleet", code=code, status=403, times=None, message=lacks("EC2 Spot Instances"),
        parameters={"*DefaultTargetCapacityType": "spot"},
    )  # fmt: skip
    error = await error_of(account)
    assert isinstance(error, CapacityError)
    assert (error.instance_type, error.zone, error.market) == ("", "", "spot"), "no other spot offering is tried"
    assert "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com;" in error.hint
    node = await account.node("t-2", offering="g6.xlarge/us-east-1a/on-demand", market=Market.ON_DEMAND)
    assert node.market is Market.ON_DEMAND


async def test_one_without_spots_role_says_so_of_each_override(account: Account, rented: Rented) -> None:
    rented.cloud.limit(zone=ZONES[1])
    rented.cloud.limit(market="spot", error=LINKED_ROLE)
    error = await error_of(account, alternatives=OFFERINGS[1:])
    assert isinstance(error, CapacityError)
    assert error.market == "spot"
    assert LINKED_ROLE in error.message


async def test_without_the_role_of_fleets_nothing_is_ordered(account: Account, rented: Rented) -> None:
    await account.prepare()
    rented.cloud.fault("error", action="CreateFleet", code=LINKED_ROLE, status=403, message=lacks("EC2 Fleet"))
    error = await error_of(account)
    assert isinstance(error, CredentialsError)
    assert error.hint.endswith("--aws-service-name ec2fleet.amazonaws.com")


def lacks(name: str) -> str:
    return f"The provided credentials do not have permission to create the service-linked role for {name}."


@pytest.mark.parametrize("kind", ["cut-before", "cut-after", "truncate"])
async def test_an_order_without_an_answer_is_sent_again_and_launched_once(
    account: Account, rented: Rented, kind: str
) -> None:
    await account.prepare()
    rented.cloud.fault(kind, action="CreateFleet")
    assert isinstance(await error_of(account), AmbiguousOutcomeError)
    node = await account.node("t-1")
    assert [each["id"] for each in rented.cloud.instances()] == [node.id]


async def test_an_order_whose_instance_no_listing_shows_yet_is_launched_once(account: Account, rented: Rented) -> None:
    rented.cloud.behave(lag_s=3.0)
    first = await account.node("t-1")
    assert await account.describe("t-1") is None
    assert (await account.node("t-1")).id == first.id
    assert len(rented.cloud.instances()) == 1


async def test_an_interrupted_one_has_ended_as_that_and_one_ended_by_others_does_not_count_as_stopped(
    account: Account, rented: Rented
) -> None:
    taken, ended = await account.node("t-1"), await account.node("t-2", replica_id="r2")
    rented.cloud.interrupt(taken.id, notice_s=0.0)
    rented.cloud.boto("ec2").terminate_instances(InstanceIds=[ended.id])
    assert (await account.until_gone("t-1")).exit_reason == "interrupted"
    assert (await account.until_gone("t-2")).exit_reason == "terminated by somebody"


async def test_an_instance_says_whose_it_is_and_ends_for_good_when_it_shuts_down(
    account: Account, rented: Rented
) -> None:
    node = await account.node("t-1")
    ec2 = rented.cloud.boto("ec2")
    (instance,) = ec2.describe_instances(InstanceIds=[node.id])["Reservations"][0]["Instances"]
    named = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert named["fleetctl:owner"] == account.owner
    assert (named["fleetctl:fleet"], named["fleetctl:intent"], named["fleetctl:expires"]) == (
        "demo",
        "t-1",
        "boot+7200s",
    )
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    (disk,) = ec2.describe_volumes(VolumeIds=[each["Ebs"]["VolumeId"] for each in instance["BlockDeviceMappings"]])[
        "Volumes"
    ]
    assert {tag["Key"]: tag["Value"] for tag in disk["Tags"]}["fleetctl:intent"] == "t-1"
    template = template_of(rented, account.owner)
    assert template["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert template["MetadataOptions"]["InstanceMetadataTags"] == "enabled"
    (group,) = ec2.describe_security_groups(GroupIds=template["SecurityGroupIds"])["SecurityGroups"]
    (rule,) = group["IpPermissions"]
    assert (rule["FromPort"], rule["ToPort"], [each["CidrIp"] for each in rule["IpRanges"]]) == (
        8000,
        8016,
        ["10.0.0.0/8"],
    )


async def test_a_secret_is_in_parameter_store_and_nowhere_in_the_template(account: Account, rented: Rented) -> None:
    def resolve(env: Mapping[str, str]) -> dict[str, str]:
        return {name: SECRET if value == "env:HF_TOKEN" else value for name, value in env.items()}

    await account.prepare()
    order = account.order("t-1", env={"HF_TOKEN": "env:HF_TOKEN", "PLAIN": "yes"})
    (result,) = await account.provider.create((order,), resolve_secrets=resolve)
    assert result.error is None
    text = user_data_of(rented, account.owner)
    assert SECRET not in text
    assert "PLAIN=yes" in text
    ssm = rented.cloud.boto("ssm")
    (kept,) = ssm.get_parameters_by_path(Path="/fleetctl", Recursive=True, WithDecryption=True)["Parameters"]
    assert (kept["Type"], kept["Value"]) == ("SecureString", SECRET)
    assert kept["Name"].rpartition("/")[0] in text
    await account.teardown()
    assert ssm.describe_parameters(ParameterFilters=[{"Key": "Path", "Values": ["/fleetctl"]}])["Parameters"] == []


async def test_secrets_without_a_role_to_read_them_are_refused_before_anything_is_launched(rented: Rented) -> None:
    account = Account(rented.provider(instance_profile=""), SYSTEM_CLOCK, "owner-without-role", defaults=ORDER)
    error = await error_of(account, env={"HF_TOKEN": "env:HF_TOKEN"})
    assert isinstance(error, ConfigError)
    assert "HF_TOKEN" in error.message
    assert rented.cloud.instances() == []


async def test_replicas_of_a_lane_share_a_template_and_keep_its_machine_image(account: Account, rented: Rented) -> None:
    await account.node("t-1")
    image = template_of(rented, account.owner)["ImageId"]
    assert image == rented.cloud.image()
    await account.node("t-2", replica_id="r2")
    await account.node("t-3", replica_id="r3", argv=("/bin/sleep", "1"))
    assert len(templates_of(rented, account.owner)) == 2
    assert template_of(rented, account.owner)["ImageId"] == image


async def test_an_order_that_names_its_machine_image_has_that_one(account: Account, rented: Rented) -> None:
    await account.node("t-1")
    newest = rented.cloud.image()
    other = next(each for each in rented.cloud.facts["images"]["us-east-1"].values() if each != newest)
    await account.node("t-2", machine_image=other)
    ec2 = rented.cloud.boto("ec2")
    ours = tags.filters({tags.OWNER: account.owner})
    found = [each for page in ec2.describe_instances(Filters=ours)["Reservations"] for each in page["Instances"]]
    images = {tags.tags_in(each)[tags.INTENT]: each["ImageId"] for each in found}
    assert images == {"t-1": newest, "t-2": other}, "whatever its fleet's first ones were launched with"


async def test_what_is_torn_down_leaves_nothing_that_costs_money(account: Account, rented: Rented) -> None:
    for n, market in enumerate(Market, start=1):
        node = await account.node(
            f"t-{n}", replica_id=f"r{n}", market=market, offering=f"g6.xlarge/us-east-1a/{market}"
        )
        await account.stop(node.id)
        await account.until_gone(f"t-{n}")
    await account.teardown()
    assert left_in(rented, account.owner) == {"volumes": 0, "templates": 0, "groups": 0, "queues": 0, "rules": 0}
    assert {each["state"] for each in rented.cloud.instances()} == {"terminated"}


async def test_a_group_that_an_instance_still_has_is_torn_down_later(account: Account, rented: Rented) -> None:
    rented.cloud.behave(ending_s=1.0)
    node = await account.node("t-1")
    await account.stop(node.id)
    await account.until_gone("t-1")
    await account.teardown()
    assert left_in(rented, account.owner)["groups"] == 0


async def test_nothing_of_somebody_elses_is_ended(account: Account, rented: Rented) -> None:
    ec2 = rented.cloud.boto("ec2")
    (theirs,) = ec2.run_instances(ImageId=rented.cloud.image(), InstanceType="g6.xlarge", MinCount=1, MaxCount=1)[
        "Instances"
    ]
    await account.stop(theirs["InstanceId"])
    assert [each["state"] for each in rented.cloud.instances()] == ["running"]
    assert await account.tokens() == []


@pytest.mark.parametrize("state", [NodeState.STARTING])
async def test_one_that_is_launched_is_starting_until_ec2_says_it_runs(
    account: Account, rented: Rented, state: NodeState
) -> None:
    rented.cloud.behave(pending_s=2.0)
    await account.node("t-1")
    assert (await account.until_addressed("t-1")).state is state
    rented.cloud.until(lambda: rented.cloud.instances("running"), "it runs")
    node = await account.describe("t-1")
    assert node is not None
    assert node.state is NodeState.RUNNING


def template_of(rented: Rented, owner: str) -> dict[str, Any]:
    ec2 = rented.cloud.boto("ec2")
    latest = max(templates_of(rented, owner), key=lambda each: each["CreateTime"])
    (version,) = ec2.describe_launch_template_versions(LaunchTemplateId=latest["LaunchTemplateId"])[
        "LaunchTemplateVersions"
    ]
    found: dict[str, Any] = version["LaunchTemplateData"]
    return found


def user_data_of(rented: Rented, owner: str) -> str:
    text = base64.b64decode(template_of(rented, owner)["UserData"]).decode()
    assert text.startswith("#cloud-config\n")
    assert isinstance(yaml.safe_load(text), dict)
    return text


def templates_of(rented: Rented, owner: str) -> list[dict[str, Any]]:
    found = rented.cloud.boto("ec2").describe_launch_templates(Filters=tags.filters({tags.OWNER: owner}))
    templates: list[dict[str, Any]] = found["LaunchTemplates"]
    return templates


def left_in(rented: Rented, owner: str) -> dict[str, int]:
    boto: Callable[[str], Any] = rented.cloud.boto
    ec2, ours, name = boto("ec2"), tags.filters({tags.OWNER: owner}), tags.fleet_name(owner, "demo")
    return {
        "volumes": len(ec2.describe_volumes(Filters=ours)["Volumes"]),
        "templates": len(templates_of(rented, owner)),
        "groups": len(ec2.describe_security_groups(Filters=ours)["SecurityGroups"]),
        "queues": len(boto("sqs").list_queues(QueueNamePrefix=name).get("QueueUrls", [])),
        "rules": len(boto("events").list_rules(NamePrefix=name)["Rules"]),
    }


async def test_a_group_that_somebody_has_opened_is_closed_again(account: Account, rented: Rented) -> None:
    rented.cloud.hold_to(shipped("aws-policy"))
    await account.prepare()
    ec2, ours = rented.cloud.boto("ec2"), tags.filters({tags.OWNER: account.owner})

    def group() -> dict[str, Any]:
        (found,) = ec2.describe_security_groups(Filters=ours)["SecurityGroups"]
        return dict(found)

    before = group()
    opened = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    ec2.authorize_security_group_ingress(GroupId=before["GroupId"], IpPermissions=opened)
    await account.prepare()
    assert group()["IpPermissions"] == before["IpPermissions"]
    assert refused(rented.cloud) == []
    assert "ec2:RevokeSecurityGroupIngress" in rights_used(rented.cloud)
