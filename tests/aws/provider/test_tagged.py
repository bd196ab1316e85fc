"""What lies in an account under our tags and on no record: found by two readings, from five minutes on, and removed."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fleetctl.cli.main import main
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.head import HeadSign, sign_key
from fleetctl.model.replica import ReplicaState
from fleetctl.operations.site import Site
from fleetctl.plugins import load_engine
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples
from fleetctl.testing.host import FakeHost
from fleetctl_aws import tags
from tests.aws.policies import refused, rights_used, shipped

if TYPE_CHECKING:
    from datetime import datetime

    import pytest

    from tests.aws.provider.conftest import Rented


class AheadClock:
    """The wall's clock, so much ahead that what was made just now is no longer young."""

    def __init__(self, ahead: timedelta) -> None:
        self.ahead = ahead

    def now(self) -> datetime:
        return SYSTEM_CLOCK.now() + self.ahead

    def __getattr__(self, name: str) -> Any:  # of the system's clock
        return getattr(SYSTEM_CLOCK, name)


def site_on(rented: Rented, store: SqliteStore, *, ahead_s: float) -> Site:
    clock: Any = AheadClock(timedelta(seconds=ahead_s))
    return Site(
        store=store, host=FakeHost(clock=clock), providers=lambda _: rented.provider(), engines=load_engine,
        clock=clock, provider_names=lambda: ("aws",),
    )  # fmt: skip


def strew(rented: Rented, owner: str, fleet: str = "lost") -> dict[str, str]:
    """Leave one of each kind, and a volume on nobody; return ids by kind."""
    ec2, named = rented.cloud.boto("ec2"), tags.tag_list(tags.of_fleet(owner, fleet))
    headed = tags.tag_list({tags.HEAD_OWNER: owner, tags.HEAD: fleet})

    def tagged(kind: str, own: list[dict[str, str]] = named) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": own}]

    head = ec2.run_instances(
        ImageId=rented.cloud.image(), InstanceType="t3.small", MinCount=1, MaxCount=1,
        TagSpecifications=tagged("instance", headed),
    )["Instances"][0]["InstanceId"]  # fmt: skip
    group = ec2.create_security_group(
        GroupName=f"of-{owner}-{fleet}", Description="d", TagSpecifications=tagged("security-group")
    )["GroupId"]
    template = ec2.create_launch_template(
        LaunchTemplateName=f"of-{owner}-{fleet}", LaunchTemplateData={"InstanceType": "g6.xlarge"},
        TagSpecifications=tagged("launch-template"),
    )["LaunchTemplate"]["LaunchTemplateId"]  # fmt: skip
    volume = ec2.create_volume(AvailabilityZone="us-east-1a", Size=1, TagSpecifications=tagged("volume"))["VolumeId"]
    return {"head": head, "security-group": group, "launch-template": template, "volume": volume}


def listed(site: Site, capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, str]:
    assert main(["gc", "-q", "-o", "json", *argv], site=site) == 0
    return {each["kind"]: each["id"] for each in json.loads(capsys.readouterr().out)}


def test_what_no_record_knows_is_listed_then_removed_and_strangers_things_stay(
    rented: Rented, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SqliteStore(None)
    site = site_on(rented, store, ahead_s=600)
    ours, theirs = strew(rented, store.owner), strew(rented, "somebody-else")
    rented.cloud.hold_to(shipped("aws-policy"))
    assert listed(site, capsys) == ours
    assert main(["gc", "--yes", "-q"], site=site) == 0
    assert capsys.readouterr().out.count("removed") == len(ours)
    assert listed(site, capsys) == {}
    assert {each["id"] for each in rented.cloud.instances("pending", "running")} == {theirs["head"]}
    assert listed(site, capsys, "--owner", "somebody-else") == theirs
    assert main(["gc", "--yes", "-q", "--owner", "somebody-else"], site=site) == 0
    assert rented.cloud.instances("pending", "running") == []
    assert refused(rented.cloud) == []
    assert "ec2:DeleteVolume" in rights_used(rented.cloud)


def test_what_is_young_or_of_a_fleet_that_is_there_is_left_alone(
    rented: Rented, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SqliteStore(None)
    strew(rented, store.owner, "living")
    store.put_fleet(samples.profile("living"), samples.plan("living"), now=samples.EPOCH)
    assert listed(site_on(rented, store, ahead_s=600), capsys) == {}
    store = SqliteStore(None)
    young = strew(rented, store.owner)
    # EC2 does not say when a group was made; of a fleet that is on record it never gets this far.
    assert listed(site_on(rented, store, ahead_s=0), capsys) == {"security-group": young["security-group"]}


def test_a_kind_that_may_not_be_listed_is_named_and_the_others_are_found(
    rented: Rented, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SqliteStore(None)
    ours = strew(rented, store.owner)
    rented.cloud.fault("error", action="DescribeVolumes", code="UnauthorizedOperation", times=None, status=403)
    assert main(["gc", "-o", "json"], site=site_on(rented, store, ahead_s=600)) == 0
    captured = capsys.readouterr()
    assert {each["kind"] for each in json.loads(captured.out)} == ours.keys() - {"volume"}
    assert "volumes could not be asked" in captured.err


def test_a_machine_on_record_is_left_alone_whatever_somebody_has_made_of_its_tags(
    rented: Rented, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SqliteStore(None)
    ec2, named = rented.cloud.boto("ec2"), tags.tag_list(tags.of_fleet(store.owner, "mistyped"))
    launched = ec2.run_instances(
        ImageId=rented.cloud.image(), InstanceType="g6.xlarge", MinCount=4, MaxCount=4,
        TagSpecifications=[{"ResourceType": "instance", "Tags": named}],
    )["Instances"]  # fmt: skip
    serving, shared, head, orphaned = [each["InstanceId"] for each in launched]
    store.put_fleet(samples.profile("living"), samples.plan("living"), now=samples.EPOCH)
    store.begin_replica(samples.replica(fleet="living"), samples.node_request(fleet="living"), now=samples.EPOCH)
    second = {"replica_id": "r2", "fleet": "living"}
    store.begin_replica(samples.replica(**second), samples.node_request("t-2", **second), now=samples.EPOCH)
    ready = {"state": ReplicaState.READY, "fleet": "living"}
    store.put_replica(samples.replica(node_id=serving, machine_id=serving, **ready))
    store.put_replica(samples.replica("r2", node_id=f"{shared}/1", machine_id=shared, **ready))
    sign = HeadSign(
        number=1, machine_id=head, address="10.0.0.4", host_key="ssh-ed25519 A", version="0", up_at=samples.EPOCH
    )
    store.put_record(StoredRecord.of(Collection.HEADS, sign_key(1), sign, at=samples.EPOCH, fleet="living"))
    site = site_on(rented, store, ahead_s=600)
    assert listed(site, capsys) == {"instance": orphaned}
    assert main(["gc", "--yes", "-q"], site=site) == 0
    assert {each["id"] for each in rented.cloud.instances("pending", "running")} == {serving, shared, head}
