"""A fleet on a state on S3 whose `up` is killed in the middle: nothing twice, nothing left."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.aws.cloud.client import running_cloud
from tests.aws.test_fleet import PROFILE
from tests.e2e.fleet import Home
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aws.cloud.client import Cloud

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400), pytest.mark.enable_socket]

BUCKET = "fleetctl-outages"
LIVING = ("pending", "running")


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with running_cloud() as running:
        running.boto("s3").create_bucket(Bucket=BUCKET)
        yield running


@pytest.fixture
def home(cloud: Cloud) -> Iterator[Home]:
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    variables = {"FLEETCTL_AWS_IMAGE": "example.com/emulator:1", "FLEETCTL_AWS_GATEWAY_SOURCE": "10.0.3.7/32"}
    home = Home(root=root, env={**cloud.environment, **variables, "FLEETCTL_STATE": f"s3://{BUCKET}/team"})
    # Nobody boots here: instances run, and their engines never answer.
    text = PROFILE.replace("PORT", str(free_port())) + "control: {start_timeout: 2h}\n"
    (root / "booted.yaml").write_text(text)
    yield home
    cloud.clear_faults()
    home.run("down", "booted", "--yes")
    left = home.kill_everything()
    shutil.rmtree(root, ignore_errors=True)
    assert left == []


def doubles(cloud: Cloud) -> list[str]:
    """Return the orders that ever had more than one instance, and the replicas that have more than one now."""
    ever = Counter(each["tags"]["fleetctl:intent"] for each in cloud.instances())
    now = Counter(each["tags"]["fleetctl:replica"] for each in cloud.instances(*LIVING))
    return [name for counts in (ever, now) for name, count in counts.items() if count > 1]


def test_an_up_that_is_killed_is_carried_on_by_the_next(home: Home, cloud: Cloud) -> None:
    profile = str(home.root / "booted.yaml")
    with home.start("up", profile, "--yes") as command:
        cloud.until(lambda: cloud.calls("CreateFleet"), "it has ordered", seconds=120)
        command.send_signal(signal.SIGKILL)
    home.fleetctl("up", profile, "--yes", "--detach", timeout_s=120)
    cloud.until(lambda: len(cloud.instances("running")) == 2, "two instances run", seconds=120)
    assert doubles(cloud) == []
    home.fleetctl("down", "booted", "--yes", timeout_s=200)
    assert cloud.instances(*LIVING) == []
