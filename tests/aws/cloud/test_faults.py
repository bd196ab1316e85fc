"""The cloud of the tests fails as it is told to, and its notices come through EventBridge."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    IncompleteReadError,
    ReadTimeoutError,
)

from tests.aws.cloud.client import running_cloud
from tests.aws.cloud.test_launches import ZONES, code_of, listed, run

if TYPE_CHECKING:
    from tests.aws.cloud.client import Cloud

SPOT = {"InstanceMarketOptions": {"MarketType": "spot"}}


def queue_of_notices(cloud: Cloud, name: str, *, admitted: bool = True) -> str:
    """Make a queue behind a rule of EC2's notices, and return its URL."""
    sqs, events = cloud.boto("sqs"), cloud.boto("events")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    pattern = {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"],
    }
    rule = events.put_rule(Name=name, EventPattern=json.dumps(pattern))["RuleArn"]
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    if admitted:
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    return str(url)


def messages(cloud: Cloud, url: str) -> list[dict[str, Any]]:
    found = cloud.boto("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
    return [json.loads(each["Body"]) for each in found.get("Messages", [])]


def test_an_error_strikes_the_calls_it_is_for_and_has_no_effect(cloud: Cloud) -> None:
    cloud.fault(
        "error", action="RunInstances", parameters={"InstanceType": "g6.*"}, code="RequestLimitExceeded", status=503
    )
    run(cloud, InstanceType="g5.xlarge")
    with pytest.raises(ClientError) as raised:
        run(cloud)
    assert code_of(raised) == "RequestLimitExceeded"
    assert run(cloud)["Instances"], "it strikes once"
    assert [each["type"] for each in cloud.instances()] == ["g5.xlarge", "g6.xlarge"]


@pytest.mark.parametrize("service", ["sqs", "s3", "sts", "ssm"])
def test_errors_are_worded_by_each_services_protocol(cloud: Cloud, service: str) -> None:
    cloud.fault("error", service=service, code="Throttling", status=400)
    calls: dict[str, Any] = {
        "sqs": lambda client: client.list_queues(),
        "s3": lambda client: client.list_buckets(),
        "sts": lambda client: client.get_caller_identity(),
        "ssm": lambda client: client.describe_parameters(),
    }
    with pytest.raises(ClientError) as raised:
        calls[service](cloud.boto(service))
    assert code_of(raised) == "Throttling"


def test_a_call_cut_before_its_effect_has_none(cloud: Cloud) -> None:
    cloud.fault("cut-before", action="RunInstances")
    with pytest.raises(ConnectionClosedError):
        run(cloud)
    assert cloud.instances() == []


def test_a_call_cut_after_its_effect_is_found_by_its_token(cloud: Cloud) -> None:
    cloud.fault("cut-after", action="RunInstances")
    with pytest.raises(ConnectionClosedError):
        run(cloud, ClientToken="lost")
    (lost,) = cloud.instances()
    assert run(cloud, ClientToken="lost")["Instances"][0]["InstanceId"] == lost["id"]


def test_a_truncated_response_is_no_response(cloud: Cloud) -> None:
    cloud.fault("truncate", action="RunInstances")
    with pytest.raises((IncompleteReadError, ConnectionClosedError, ClientError, OSError)):
        run(cloud)
    assert len(cloud.instances()) == 1


def test_a_hanging_call_ends_by_the_clients_deadline(cloud: Cloud) -> None:
    cloud.fault("hang", action="DescribeRegions", seconds=5)
    with pytest.raises(ReadTimeoutError):
        cloud.boto("ec2", read_timeout=0.5).describe_regions()


def test_an_outage_is_over_with_everything_as_it_was(cloud: Cloud) -> None:
    run(cloud, ClientToken="before")
    cloud.fault("outage", action="DescribeRegions", seconds=1.0)
    with pytest.raises((ConnectionClosedError, EndpointConnectionError)):
        cloud.boto("ec2").describe_regions()

    def answers() -> bool:
        try:
            return bool(cloud.boto("ec2").describe_regions()["Regions"])
        except (ConnectionClosedError, EndpointConnectionError):
            return False

    cloud.until(answers, "the cloud listens again")
    assert len(listed(cloud, Filters=[{"Name": "client-token", "Values": ["before"]}])) == 1


def test_a_cloud_that_is_killed_is_gone() -> None:
    with running_cloud() as cloud:
        cloud.fault("kill-after", action="RunInstances")
        with pytest.raises(ConnectionClosedError):
            run(cloud)
        assert cloud.process.wait(timeout=20) == -9


def test_every_call_is_in_the_journal_with_what_it_met(cloud: Cloud) -> None:
    cloud.fault("error", action="DescribeAddresses", code="UnauthorizedOperation", status=403)
    with pytest.raises(ClientError):
        cloud.boto("ec2").describe_addresses()
    cloud.boto("ec2").describe_addresses()
    assert [(each["service"], each["fault"], each["status"]) for each in cloud.calls("DescribeAddresses")] == [
        ("ec2", "error", 403),
        ("ec2", "", 200),
    ]


def test_an_unknown_fault_is_refused(cloud: Cloud) -> None:
    with pytest.raises(OSError, match="400"):
        cloud.fault("explode")


def test_an_interruption_is_exactly_aws_event_and_then_the_end(cloud: Cloud) -> None:
    url = queue_of_notices(cloud, "interruptions")
    (spot,) = run(cloud, **SPOT, Placement={"AvailabilityZone": ZONES[0]})["Instances"]
    cloud.interrupt(spot["InstanceId"], notice_s=1.0)
    (event,) = cloud.until(lambda: messages(cloud, url), "the notice is in the queue")
    assert {key: event[key] for key in event if key not in ("id", "time")} == {
        "version": "0",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "account": "123456789012",
        "region": "us-east-1",
        "resources": [f"arn:aws:ec2:us-east-1a:instance/{spot['InstanceId']}"],
        "detail": {"instance-id": spot["InstanceId"], "instance-action": "terminate"},
    }
    cloud.until(lambda: cloud.instances("terminated"), "the instance has ended")
    (shown,) = (each for each in listed(cloud) if each["InstanceId"] == spot["InstanceId"])
    assert shown["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    (request,) = cloud.boto("ec2").describe_spot_instance_requests()["SpotInstanceRequests"]
    assert request["Status"]["Code"] == "instance-terminated-by-service"


def test_a_queue_whose_policy_does_not_admit_eventbridge_gets_nothing(cloud: Cloud) -> None:
    url = queue_of_notices(cloud, "closed", admitted=False)
    (spot,) = run(cloud, **SPOT)["Instances"]
    cloud.rebalance(spot["InstanceId"])
    assert messages(cloud, url) == []


def test_an_on_demand_instance_is_not_interrupted(cloud: Cloud) -> None:
    (instance,) = run(cloud)["Instances"]
    with pytest.raises(OSError, match="400"):
        cloud.interrupt(instance["InstanceId"])


def test_s3_writes_are_conditional(cloud: Cloud) -> None:
    s3 = cloud.boto("s3")
    s3.create_bucket(Bucket="state")
    s3.put_object(Bucket="state", Key="lease", Body=b"a", IfNoneMatch="*")
    with pytest.raises(ClientError) as raised:
        s3.put_object(Bucket="state", Key="lease", Body=b"b", IfNoneMatch="*")
    assert code_of(raised) == "PreconditionFailed"


def test_a_reset_leaves_no_bucket_and_no_object(cloud: Cloud) -> None:
    s3 = cloud.boto("s3")
    s3.create_bucket(Bucket="left")
    s3.put_object(Bucket="left", Key="lease", Body=b"a", IfNoneMatch="*")
    cloud.control("POST", "reset")
    assert s3.list_buckets()["Buckets"] == []
    s3.create_bucket(Bucket="left")
    s3.put_object(Bucket="left", Key="lease", Body=b"b", IfNoneMatch="*")
