"""The cloud of the tests launches as EC2 does: tokens, capacity, quotas, fleets, listings."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from fleetctl_aws.rights import READS

if TYPE_CHECKING:
    from tests.aws.cloud.client import Cloud

TYPE = "g6.xlarge"
ZONES = ("us-east-1a", "us-east-1b")


def run(cloud: Cloud, **fields: Any) -> dict[str, Any]:
    wanted = {"ImageId": cloud.image(), "InstanceType": TYPE, "MinCount": 1, "MaxCount": 1, **fields}
    found: dict[str, Any] = cloud.boto("ec2").run_instances(**wanted)
    return found


def template(cloud: Cloud, name: str, **fields: Any) -> str:
    data = {"ImageId": cloud.image(), "InstanceType": TYPE, "MetadataOptions": {"HttpTokens": "required"}, **fields}
    ec2 = cloud.boto("ec2")
    created = ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
    return str(created["LaunchTemplate"]["LaunchTemplateId"])


def fleet(
    cloud: Cloud, overrides: list[dict[str, Any]], *, name: str, count: int = 1, market: str = "spot", **fields: Any
) -> Any:
    ec2 = cloud.boto("ec2")
    known = ec2.describe_launch_templates(Filters=[{"Name": "launch-template-name", "Values": [name]}])[
        "LaunchTemplates"
    ]
    template_id = known[0]["LaunchTemplateId"] if known else template(cloud, name)
    wanted = {
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {"LaunchTemplateSpecification": {"LaunchTemplateId": template_id, "Version": "1"}, "Overrides": overrides}
        ],
        "TargetCapacitySpecification": {"TotalTargetCapacity": count, "DefaultTargetCapacityType": market},
        "SpotOptions": {"AllocationStrategy": "price-capacity-optimized"},
        **fields,
    }
    return ec2.create_fleet(**wanted)


def listed(cloud: Cloud, **fields: Any) -> list[dict[str, Any]]:
    pages = cloud.boto("ec2").get_paginator("describe_instances").paginate(**fields)
    return [instance for page in pages for each in page["Reservations"] for instance in each["Instances"]]


def code_of(raised: pytest.ExceptionInfo[ClientError]) -> str:
    return str(raised.value.response["Error"]["Code"])


def test_a_repeated_client_token_launches_nothing_more(cloud: Cloud) -> None:
    first = run(cloud, ClientToken="once")
    second = run(cloud, ClientToken="once")
    assert [each["InstanceId"] for each in first["Instances"]] == [each["InstanceId"] for each in second["Instances"]]
    assert len(cloud.instances()) == 1


def test_many_calls_at_once_with_one_token_launch_one_instance(cloud: Cloud) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: run(cloud, ClientToken="race")["Instances"][0]["InstanceId"], range(16)))
    assert len(set(ids)) == 1
    assert len(cloud.instances()) == 1


def test_a_client_token_with_other_parameters_is_refused(cloud: Cloud) -> None:
    run(cloud, ClientToken="same")
    with pytest.raises(ClientError) as raised:
        run(cloud, ClientToken="same", InstanceType="g6.2xlarge")
    assert code_of(raised) == "IdempotentParameterMismatch"


def test_a_client_token_counts_for_one_zone(cloud: Cloud) -> None:
    for zone in ZONES:
        run(cloud, ClientToken="zoned", Placement={"AvailabilityZone": zone})
    assert sorted(each["zone"] for each in cloud.instances()) == list(ZONES)


def test_a_client_token_of_a_terminated_instance_says_so(cloud: Cloud) -> None:
    launched = run(cloud, ClientToken="over")["Instances"][0]["InstanceId"]
    cloud.boto("ec2").terminate_instances(InstanceIds=[launched])
    with pytest.raises(ClientError) as raised:
        run(cloud, ClientToken="over")
    assert code_of(raised) == "IdempotentInstanceTerminated"


def test_a_launch_that_failed_has_used_up_no_token(cloud: Cloud) -> None:
    cloud.limit(0)
    with pytest.raises(ClientError):
        run(cloud, ClientToken="again")
    cloud.clear_limits()
    assert run(cloud, ClientToken="again")["Instances"]


def test_bogus_types_and_images_do_not_launch(cloud: Cloud) -> None:
    with pytest.raises(ClientError) as bad_type:
        run(cloud, InstanceType="g99.huge")
    with pytest.raises(ClientError) as bad_image:
        run(cloud, ImageId="ami-0123456789abcdef0")
    assert code_of(bad_type) == "InvalidParameterValue"
    assert code_of(bad_image) == "InvalidAMIID.NotFound"
    assert cloud.instances() == []


def test_a_dry_run_launches_nothing(cloud: Cloud) -> None:
    with pytest.raises(ClientError) as raised:
        run(cloud, DryRun=True)
    assert code_of(raised) == "DryRunOperation"
    assert cloud.instances() == []


@pytest.mark.parametrize("operation", [operation for _, operation in READS])
def test_a_dry_run_of_a_reading_lists_nothing(cloud: Cloud, operation: str) -> None:
    with pytest.raises(ClientError) as raised:
        getattr(cloud.boto("ec2"), operation)(DryRun=True)
    assert code_of(raised) == "DryRunOperation"


def test_capacity_is_limited_by_type_zone_and_market(cloud: Cloud) -> None:
    cloud.limit(1, instance_type=TYPE, zone=ZONES[0], market="on-demand")
    placed = {"Placement": {"AvailabilityZone": ZONES[0]}}
    first = run(cloud, **placed)["Instances"][0]["InstanceId"]
    with pytest.raises(ClientError) as raised:
        run(cloud, **placed)
    assert code_of(raised) == "InsufficientInstanceCapacity"
    run(cloud, Placement={"AvailabilityZone": ZONES[1]})
    run(cloud, **placed, InstanceMarketOptions={"MarketType": "spot"})
    cloud.boto("ec2").terminate_instances(InstanceIds=[first])
    assert run(cloud, **placed)["Instances"], "an ended instance gives its place back"


def test_a_count_that_capacity_does_not_hold_launches_none(cloud: Cloud) -> None:
    cloud.limit(2)
    with pytest.raises(ClientError):
        run(cloud, MinCount=3, MaxCount=3)
    assert cloud.instances() == []
    assert len(run(cloud, MinCount=1, MaxCount=3)["Instances"]) == 2


def test_quotas_are_in_vcpus_and_named_by_their_error(cloud: Cloud) -> None:
    cloud.quota("L-DB2E81BA", 4)
    run(cloud)  # a g6.xlarge has four
    with pytest.raises(ClientError) as on_demand:
        run(cloud)
    cloud.quota("L-3819A6DF", 3)
    with pytest.raises(ClientError) as spot:
        run(cloud, InstanceMarketOptions={"MarketType": "spot"})
    assert code_of(on_demand) == "VcpuLimitExceeded"
    assert code_of(spot) == "MaxSpotInstanceCountExceeded"
    quotas = cloud.boto("service-quotas")
    assert quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-DB2E81BA")["Quota"]["Value"] == 4
    named = {each["QuotaName"]: each["Value"] for each in quotas.list_service_quotas(ServiceCode="ec2")["Quotas"]}
    assert named["All G and VT Spot Instance Requests"] == 3


def test_a_fleet_takes_the_cheapest_pool_that_has_capacity(cloud: Cloud) -> None:
    cloud.price(TYPE, "spot", 0.50)
    cloud.price("g6.2xlarge", "spot", 0.20)
    cloud.price("g5.xlarge", "spot", 0.10)
    cloud.limit(0, instance_type="g5.*")
    overrides = [{"InstanceType": name, "AvailabilityZone": ZONES[0]} for name in (TYPE, "g6.2xlarge", "g5.xlarge")]
    made = fleet(cloud, overrides, name="cheapest")
    assert [each["InstanceType"] for each in made["Instances"]] == ["g6.2xlarge"]
    assert made["Instances"][0]["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"] == "g6.2xlarge"
    assert made["Instances"][0]["Lifecycle"] == "spot"


def test_a_fleet_without_capacity_is_a_200_with_errors_and_no_instances(cloud: Cloud) -> None:
    cloud.limit(0)
    cloud.limit(0, zone=ZONES[1], error="UnfulfillableCapacity")
    overrides = [{"InstanceType": TYPE, "AvailabilityZone": zone} for zone in ZONES]
    made = fleet(cloud, overrides, name="empty", ClientToken="empty")
    assert made["Instances"] == []
    errors = {
        each["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"]: each["ErrorCode"]
        for each in made["Errors"]
    }
    assert errors == {ZONES[0]: "InsufficientInstanceCapacity", ZONES[1]: "UnfulfillableCapacity"}
    cloud.clear_limits()
    again = fleet(cloud, overrides, name="empty", ClientToken="empty")
    assert (again["FleetId"], again["Instances"]) == (made["FleetId"], []), "the token is used up, as the fleet is made"


def test_a_fleet_fills_several_pools_and_says_what_lacked(cloud: Cloud) -> None:
    cloud.limit(1, zone=ZONES[0])
    overrides = [{"InstanceType": TYPE, "AvailabilityZone": zone} for zone in ZONES]
    made = fleet(cloud, overrides, name="several", count=3, market="on-demand")
    assert sum(len(each["InstanceIds"]) for each in made["Instances"]) == 3
    assert [each["ErrorCode"] for each in made["Errors"]] == ["InsufficientInstanceCapacity"]
    assert sorted(each["zone"] for each in cloud.instances()) == [ZONES[0], ZONES[1], ZONES[1]]


def test_a_repeated_fleet_token_launches_nothing_more(cloud: Cloud) -> None:
    overrides = [{"InstanceType": TYPE, "AvailabilityZone": ZONES[0]}]
    first = fleet(cloud, overrides, name="tokens", ClientToken="fleet")
    second = fleet(cloud, overrides, name="tokens", ClientToken="fleet")
    assert first["Instances"] == second["Instances"]
    assert len(cloud.instances()) == 1
    with pytest.raises(ClientError) as raised:
        fleet(cloud, overrides, name="tokens", ClientToken="fleet", count=2)
    assert code_of(raised) == "IdempotentParameterMismatch"


def test_instances_of_a_fleet_have_what_the_template_and_the_call_say(cloud: Cloud) -> None:
    tags = [{"ResourceType": kind, "Tags": [{"Key": "owner", "Value": "us"}]} for kind in ("instance", "volume")]
    own = [{"ResourceType": "instance", "Tags": [{"Key": "lane", "Value": "chat"}]}]
    template(
        cloud,
        "whole",
        TagSpecifications=own,
        InstanceInitiatedShutdownBehavior="terminate",
        UserData="I2Nsb3VkLWNvbmZpZwo=",
    )
    fleet(cloud, [{"InstanceType": TYPE, "AvailabilityZone": ZONES[1]}], name="whole", TagSpecifications=tags)
    ec2 = cloud.boto("ec2")
    (instance,) = listed(
        cloud,
        Filters=[
            {"Name": "tag:owner", "Values": ["us"]},
            {"Name": "instance-lifecycle", "Values": ["spot"]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ],
    )
    found = {each["Key"]: each["Value"] for each in instance["Tags"]}
    assert found["lane"] == "chat"
    assert found["aws:ec2:fleet-id"].startswith("fleet-")
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["Placement"]["AvailabilityZone"] == ZONES[1]
    assert instance["SpotInstanceRequestId"].startswith("sir-")
    about = {"InstanceId": instance["InstanceId"]}
    behaviour = ec2.describe_instance_attribute(Attribute="instanceInitiatedShutdownBehavior", **about)
    assert behaviour["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
    assert ec2.describe_instance_attribute(Attribute="userData", **about)["UserData"]["Value"] == "I2Nsb3VkLWNvbmZpZwo="
    volumes = ec2.describe_volumes(Filters=[{"Name": "tag:owner", "Values": ["us"]}])["Volumes"]
    assert instance["InstanceId"] in {each["Attachments"][0]["InstanceId"] for each in volumes}


def test_a_new_instance_is_unseen_for_a_while(cloud: Cloud) -> None:
    cloud.behave(lag_s=3600)
    launched = run(cloud, ClientToken="unseen")["Instances"][0]["InstanceId"]
    assert launched not in {each["InstanceId"] for each in listed(cloud)}
    with pytest.raises(ClientError) as raised:
        cloud.boto("ec2").describe_instances(InstanceIds=[launched])
    assert code_of(raised) == "InvalidInstanceID.NotFound"
    assert run(cloud, ClientToken="unseen")["Instances"][0]["InstanceId"] == launched, "its token still finds it"


def test_a_lag_ends(cloud: Cloud) -> None:
    cloud.behave(lag_s=0.5)
    launched = run(cloud)["Instances"][0]["InstanceId"]
    cloud.until(lambda: launched in {each["InstanceId"] for each in listed(cloud)}, "the new instance is listed")


def test_instances_are_found_by_client_token(cloud: Cloud) -> None:
    run(cloud, ClientToken="one")
    run(cloud, ClientToken="two")
    found = listed(cloud, Filters=[{"Name": "client-token", "Values": ["two"]}])
    assert [each["ClientToken"] for each in found] == ["two"]


def test_states_pass_as_time_does(cloud: Cloud) -> None:
    cloud.behave(pending_s=0.3, ending_s=0.3)
    launched = run(cloud)["Instances"][0]["InstanceId"]
    ec2 = cloud.boto("ec2")
    cloud.until(lambda: cloud.instances("running"), "the instance runs")
    ending = ec2.terminate_instances(InstanceIds=[launched])["TerminatingInstances"][0]
    assert (ending["PreviousState"]["Name"], ending["CurrentState"]["Name"]) == ("running", "shutting-down")
    cloud.until(lambda: cloud.instances("terminated"), "the instance is terminated")
    (instance,) = (each for each in listed(cloud) if each["InstanceId"] == launched)
    assert instance["StateReason"]["Code"] == "Client.UserInitiatedShutdown"


def test_spot_prices_are_those_that_were_set(cloud: Cloud) -> None:
    cloud.price(TYPE, "spot", 0.123, zone=ZONES[0])
    history = cloud.boto("ec2").describe_spot_price_history(InstanceTypes=[TYPE], ProductDescriptions=["Linux/UNIX"])
    prices = {each["AvailabilityZone"]: float(each["SpotPrice"]) for each in history["SpotPriceHistory"]}
    assert prices[ZONES[0]] == pytest.approx(0.123)
    assert prices[ZONES[1]] != pytest.approx(0.123)


def test_the_pricing_api_lists_what_was_set(cloud: Cloud) -> None:
    cloud.price(TYPE, "on-demand", 0.805)
    wanted = {"regionCode": "us-east-1", "instanceFamily": "GPU instance", "operatingSystem": "Linux"}
    filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()]
    pages = cloud.boto("pricing").get_paginator("get_products").paginate(ServiceCode="AmazonEC2", Filters=filters)
    products = [json.loads(text) for page in pages for text in page["PriceList"]]
    (found,) = (each for each in products if each["product"]["attributes"]["instanceType"] == TYPE)
    (term,) = found["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert float(dimension["pricePerUnit"]["USD"]) == pytest.approx(0.805)
    assert len(products) > 50


def test_ssm_names_the_deep_learning_images(cloud: Cloud) -> None:
    name = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
    image = cloud.boto("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    (found,) = cloud.boto("ec2").describe_images(ImageIds=[image])["Images"]
    assert found["Architecture"] == "x86_64"
