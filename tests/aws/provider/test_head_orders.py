"""The orders of a fleet's heads, in a state on S3: however many laptops act and wherever one dies, one machine at a time."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import AmbiguousOutcomeError, FleetctlError
from fleetctl.model.head import HeadState
from fleetctl.model.host_choice import HostChoice, HostRecord
from fleetctl.model.provider_setting import ProviderChoice
from fleetctl.ports.host import HostPlace
from fleetctl.state.opening import open_store
from fleetctl_host_node.archive import make_archive, requirements
from fleetctl_host_node.orders import HeadOrders
from tests.aws.provider.conftest import PROFILE

if TYPE_CHECKING:
    from tests.aws.provider.conftest import Rented

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

BUCKET = "orders-of-tests"


Placing = Callable[[], HeadOrders]


@pytest.fixture
def orders(rented: Rented, request: pytest.FixtureRequest) -> Placing:
    """Return what a laptop places orders with: a store and a provider of its own, on this test's state."""
    rented.cloud.boto("s3").create_bucket(Bucket=BUCKET)
    url = f"s3://{BUCKET}/{request.node.name}"
    return lambda: placing(rented, url)


def placing(rented: Rented, url: str, *, ami: str = "", tell: Callable[[str], None] = lambda _: None) -> HeadOrders:
    choice = HostChoice(name="node", settings={"instance_profile": PROFILE} | ({"ami": ami} if ami else {}))
    record = HostRecord(choice=choice, provider=ProviderChoice(name="aws"), port=8080, address="127.0.0.1")
    place = HostPlace(
        fleet="demo", record=record, store=open_store(url), provider=rented.provider, clock=SYSTEM_CLOCK, tell=tell
    )  # fmt: skip
    return HeadOrders(place, state_url=url)


def test_laptops_at_once_have_one_head(orders: Placing, rented: Rented) -> None:
    with ThreadPoolExecutor(3) as laptops:
        found = list(laptops.map(lambda each: each.standing(), [orders() for _ in range(3)]))
    assert {order.number for order, _ in found} == {1}
    assert len({head.id for _, head in found}) == 1
    assert len(rented.cloud.instances("pending", "running")) == 1


def test_a_laptop_that_dies_in_its_order_leaves_one_that_the_next_sends_again(orders: Placing, rented: Rented) -> None:
    rented.cloud.fault("cut-after", action="RunInstances")
    with pytest.raises(AmbiguousOutcomeError):
        orders().standing()
    rented.cloud.fault("cut-before", action="RunInstances")
    order, head = orders().standing()
    assert order.number == 1
    assert [each["id"] for each in rented.cloud.instances("pending", "running")] == [head.id]


def test_the_next_head_is_ordered_once_the_one_before_is_seen_ended(orders: Placing, rented: Rented) -> None:
    _, one = orders().standing()
    again, same = orders().standing()
    assert (again.number, same.id) == (1, one.id)
    rented.cloud.boto("ec2").terminate_instances(InstanceIds=[one.id])
    assert orders().is_gone()
    order, two = orders().standing()
    assert order.number == 2
    assert two.id != one.id
    assert two.state is not HeadState.ENDED
    orders().forget()
    assert orders().newest() is None


def test_a_head_that_is_replaced_starts_from_the_image_of_the_first(
    rented: Rented, request: pytest.FixtureRequest
) -> None:
    ec2, parameter, notes = rented.cloud.boto("ec2"), "/fleetctl/newest", list[str]()
    rented.cloud.boto("s3").create_bucket(Bucket=BUCKET)
    older, region = rented.cloud.image(), rented.cloud.region
    newer = ec2.copy_image(Name="newer", SourceImageId=older, SourceRegion=region)["ImageId"]  # it goes away below

    def publish(image: str) -> None:
        rented.cloud.boto("ssm").put_parameter(Name=parameter, Value=image, Type="String", Overwrite=True)

    def placed() -> HeadOrders:
        url = f"s3://{BUCKET}/{request.node.name}"
        return placing(rented, url, ami=f"ssm:{parameter}", tell=notes.append)

    def next_image() -> str:
        # A laptop of its own each time: what is kept is in the state.
        _, head = placed().standing()
        (shown,) = ec2.describe_instances(InstanceIds=[head.id])["Reservations"][0]["Instances"]
        ec2.terminate_instances(InstanceIds=[head.id])
        return str(shown["ImageId"])

    publish(older)
    placed().refresh_image()
    assert next_image() == older
    publish(newer)
    assert next_image() == older
    rented.cloud.fault("error", service="ssm", action="GetParameter", code="AccessDeniedException", status=400, times=1)
    placed().refresh_image()
    assert f"stays {older} (ssm:{parameter})" in notes[-1]
    assert next_image() == older
    placed().refresh_image()
    assert notes[-1] == f"the next head of demo starts from {newer} (ssm:{parameter}); the one that runs stays"
    publish(older)
    assert next_image() == newer
    ec2.deregister_image(ImageId=newer)
    assert next_image() == older, "one that is not there any more is no reason to have no head"


def test_without_the_state_no_head_is_ordered(orders: Placing, rented: Rented) -> None:
    placed = orders()
    rented.cloud.fault("error", service="s3", code="AccessDenied", status=403, times=None)
    with pytest.raises(FleetctlError):
        placed.standing()
    assert rented.cloud.instances() == []


def test_equal_files_are_an_equal_archive_that_holds_what_a_head_runs() -> None:
    archive, digest = make_archive()
    assert make_archive() == (archive, digest)
    with zipfile.ZipFile(BytesIO(archive)) as packed:
        names = set(packed.namelist())
        needed = packed.read("requirements.txt").decode().splitlines()
    assert {
        "fleetctl/cli/head.py", "fleetctl_host_node/on_head/read_log.py", "fleetctl_aws/provider.py",
        "fleetctl/_data/templates/aws/fleetctl-head.service.j2",
    } <= names  # fmt: skip
    assert any(name.endswith(".dist-info/entry_points.txt") for name in names)
    assert needed == requirements()
    assert {"boto3", "msgspec", "uvloop"} <= {line.partition("==")[0] for line in needed}
    assert not {"pytest", "moto"} & {line.partition("==")[0] for line in needed}
