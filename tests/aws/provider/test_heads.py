"""Heads on a cloud of tests: one instance an order, whatever answer is lost, with its own group, tags and boot."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import AmbiguousOutcomeError, ConfigError, ProviderError
from fleetctl.model.head import SSH_PORT, Head, HeadRecord, HeadState
from fleetctl.model.preflight import Verdict
from fleetctl_aws.heads import AwsHeads, session_command
from fleetctl_aws.on_head.boot import signed
from tests.aws.provider.conftest import PROFILE

if TYPE_CHECKING:
    from tests.aws.provider.conftest import Rented

BUCKET = "state-of-tests"


def order(**changes: object) -> HeadRecord:
    base = HeadRecord(
        owner="o", fleet="demo", number=1, token="head-1", state_url=f"s3://{BUCKET}/team", region="", program="ab12",  # noqa: S106  # of an order
        public_key="ssh-ed25519 AAAA", gateway_port=8080, gateway_is_public=False,
        settings={"instance_profile": PROFILE}, placed_at=datetime(2026, 11, 28, tzinfo=UTC),
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]  # a test's own words


def heads(rented: Rented) -> AwsHeads:
    found = rented.provider().capabilities.heads
    assert isinstance(found, AwsHeads)
    return found


async def gone(made: AwsHeads, placed: HeadRecord) -> None:
    async with asyncio.timeout(60):
        while not await made.remove(placed):
            await SYSTEM_CLOCK.sleep(0.1)


async def test_an_order_is_one_instance_that_no_listing_of_nodes_shows(rented: Rented) -> None:
    rented.cloud.boto("s3").create_bucket(Bucket=BUCKET)
    made, placed = heads(rented), order()
    await made.keep_program(placed, b"archive")
    await made.put_secret("o", "demo", "client-key", "first", replaces=False)
    await made.put_secret("o", "demo", "client-key", "second", replaces=False)
    assert await made.secret("o", "demo", "client-key") == "first"
    # The answer is lost after the launch: what is asked next finds it.
    rented.cloud.fault("cut-after", action="RunInstances")
    with pytest.raises(AmbiguousOutcomeError):
        await made.ensure(placed)
    one, again = await asyncio.gather(made.ensure(placed), made.ensure(placed))
    assert one.id == again.id
    assert len(rented.cloud.instances("pending", "running")) == 1
    assert (await rented.provider().list_nodes(owner="o", fleet="demo")).nodes == ()
    (shown,) = rented.cloud.boto("ec2").describe_instances(InstanceIds=[one.id])["Reservations"][0]["Instances"]
    assert shown["MetadataOptions"]["HttpTokens"] == "required"
    assert shown["SecurityGroups"][0]["GroupName"].endswith("-head")
    rules = rented.cloud.boto("ec2").describe_security_groups(GroupIds=[shown["SecurityGroups"][0]["GroupId"]])
    (rule,) = rules["SecurityGroups"][0]["IpPermissions"]
    assert (rule["FromPort"], rule["ToPort"]) == (SSH_PORT, SSH_PORT)
    assert rule["IpRanges"] == [{"CidrIp": "172.31.0.0/16"}], "nothing beyond the VPC"
    await gone(made, placed)
    assert await made.secret("o", "demo", "client-key") == ""
    assert rented.cloud.boto("s3").list_objects_v2(Bucket=BUCKET).get("Contents", []) == []
    ended = await made.ensure(placed)
    assert ended.state is HeadState.ENDED, "an order is launched once, and never again"


async def test_what_is_open_beyond_private_networks_is_said(rented: Rented) -> None:
    closed = await heads(rented).findings({"instance_profile": PROFILE})
    assert {each.verdict for each in closed} == {Verdict.OK}
    opened = await heads(rented).findings({"instance_profile": PROFILE, "open_to": ("8.8.8.0/24",)})
    assert [each.name for each in opened if each.verdict is Verdict.WARN] == ["ways to the head"]
    nobody = await heads(rented).findings({})
    assert [each.name for each in nobody if each.verdict is Verdict.FAIL] == ["head's role"]


def test_a_head_is_reached_by_its_own_address_unless_it_is_public_or_session_manager_carries(rented: Rented) -> None:
    head = Head(id="i-1", state=HeadState.RUNNING, address="10.0.0.7", public_address="8.8.8.8")
    made = heads(rented)
    plain = {"tunnel": "ssh"}
    assert made.reach(order(settings=plain), head) == ("10.0.0.7", "")
    assert made.reach(order(settings={**plain, "open_to": ("8.8.4.4/32",)}), head) == ("8.8.8.8", "")
    address, command = made.reach(order(settings={"tunnel": "ssm"}), head)
    assert (address, command) == ("i-1", session_command("i-1", "us-east-1", ""))
    assert command.split() == [
        "aws", "ssm", "start-session", "--target", "i-1", "--document-name", "AWS-StartSSHSession",
        "--parameters", "portNumber=2222", "--region", "us-east-1",
    ]  # fmt: skip


def test_the_boot_signs_as_boto_does() -> None:
    keys = {"AccessKeyId": "AKIAEXAMPLE", "SecretAccessKey": "secret/key", "Token": "token"}
    url = "https://s3.eu-west-1.amazonaws.com/bucket/team/heads/demo/ab12.zip"
    ours = signed(url, region="eu-west-1", keys=keys, stamp="20261128T000000Z")
    request = AWSRequest(
        method="GET", url=url, headers={name: value for name, value in ours.items() if name != "authorization"}
    )
    request.context["timestamp"] = "20261128T000000Z"
    signer = SigV4Auth(Credentials("AKIAEXAMPLE", "secret/key", "token"), "s3", "eu-west-1")
    signature = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    assert urlsplit(url).netloc == ours["host"]
    assert ours["authorization"].endswith(f"Signature={signature}")


async def test_a_heads_price_is_its_instances_and_its_disks_from_the_list_where_aws_may_not_be_read(
    rented: Rented,
) -> None:
    disk = 20 * 0.08 / 730
    rented.cloud.price("t3.medium", "on-demand", 0.05)
    assert await heads(rented).usd_per_hour({"instance_type": "t3.medium"}) == pytest.approx(0.05 + disk)
    rented.cloud.fault("error", action="GetProducts", code="AccessDeniedException", times=None)
    assert await heads(rented).usd_per_hour({}) == pytest.approx(0.0208 + disk)
    with pytest.raises(ProviderError, match=r"u-6tb1\.metal is not known") as unknown:
        await heads(rented).usd_per_hour({"instance_type": "u-6tb1.metal"})
    assert "pricing:GetProducts" in unknown.value.hint


async def test_an_address_that_is_kept_leads_to_the_newest_head_and_is_taken_from_nobody_else(rented: Rented) -> None:
    ec2 = rented.cloud.boto("ec2")
    rented.cloud.boto("s3").create_bucket(Bucket=BUCKET)
    made, kept = heads(rented), ec2.allocate_address(Domain="vpc")
    settings = {"instance_profile": PROFILE, "open_to": ("8.8.8.0/24",), "elastic_ip": kept["AllocationId"]}

    async def found() -> tuple[Verdict, str]:
        (one,) = [each for each in await made.findings(settings) if each.name == "head's address"]
        return one.verdict, one.detail

    def leads_to() -> str:
        (shown,) = ec2.describe_addresses(AllocationIds=[kept["AllocationId"]])["Addresses"]
        return str(shown.get("InstanceId"))

    first, second = order(settings=settings), order(settings=settings, number=2, token="head-2")  # noqa: S106  # an order's
    one, two = [(await made.ensure(each)).id for each in (first, second)]
    assert (await found())[0] is Verdict.OK
    assert await made.take_address(order(), one) == "", "none is named"
    assert await made.take_address(first, one) == await made.take_address(first, one) == kept["PublicIp"]
    assert leads_to() == one
    assert (await found())[0] is Verdict.OK
    assert await made.take_address(second, two) == kept["PublicIp"]
    assert leads_to() == two

    group = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    other = ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1, SubnetId=group)["Instances"][0][
        "InstanceId"
    ]
    ec2.associate_address(AllocationId=kept["AllocationId"], InstanceId=other, AllowReassociation=True)
    with pytest.raises(ConfigError, match=f"leads to {other}, which is no head of demo"):
        await made.take_address(second, two)
    assert leads_to() == other
    assert await found() == (
        Verdict.FAIL, f"{kept['AllocationId']} ({kept['PublicIp']}) leads to {other}, which is no head"
    )  # fmt: skip
    ec2.terminate_instances(InstanceIds=[other])
    settings["elastic_ip"] = "eipalloc-0123456789"
    assert (await found())[0] is Verdict.FAIL
    await gone(made, second)
