"""An engine that ends at once on an instance that replicas share: it is named within seconds, its neighbour serves on, its slot is used again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.aws.booted_home import booted_home, cloud_of_shared_instances, shared_instance_profile
from tests.aws.test_shared_instances import caller, engine_on
from tests.e2e.fleet import live_replicas
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.aws.cloud.client import Cloud
    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.enable_socket]

FLEET = "loop"
# Two slots of four GPUs, and no second machine: a replica that is lost has its own slot alone to come back to.
PROFILE = (
    shared_instance_profile(FLEET, replicas="min: 2, max: 2")
    .replace("tensor_parallel: 2", "tensor_parallel: 4")
    .replace("max_nodes: 2", "max_nodes: 1")
)
WORDS = "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:2013, unhandled system error"
CAUSE = f"its engine ended 3 times in 10m: exit 1: {WORDS}"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with cloud_of_shared_instances() as running:
        yield running


@pytest.fixture
def home(cloud: Cloud) -> Iterator[Home]:
    with booted_home(cloud, FLEET) as home:
        yield home


def replicas(home: Home, state: str) -> list[Any]:
    return [row.record for row in home.status(FLEET).replicas if row.record.state.value == state]


def break_slot(cloud: Cloud, number: int) -> Path:
    """Have whatever starts in a slot of the cloud's only instance end at once; return what mends it by its removal."""
    places = Path(cloud.facts["directory"])
    instance: Path
    (instance,) = cloud.until(lambda: list(places.glob("[0-9]*")), "the instance boots", seconds=60)
    words = instance / "broken" / f"fleetctl-engine-{number}"
    words.parent.mkdir()
    words.write_text(f"{WORDS}\n")
    return words


def test_an_engine_that_keeps_ending_is_named_and_replaced_in_its_slot_and_its_neighbour_serves_on(
    home: Home, cloud: Cloud
) -> None:
    port = free_port()
    profile = home.root / f"{FLEET}.yaml"
    profile.write_text(PROFILE.replace("PORT", str(port)))
    home.fleetctl("up", str(profile), "--yes", "--detach", timeout_s=60)
    broken = break_slot(cloud, 1)
    cloud.until(lambda: len(replicas(home, "ready")) == 1, "the first serves", seconds=60)
    (first,) = replicas(home, "ready")
    engine = engine_on(cloud, first.port)
    assert engine is not None

    cloud.until(lambda: replicas(home, "failed"), "the second is given up", seconds=60)
    failed = replicas(home, "failed")[0]
    assert CAUSE in failed.reason
    assert CAUSE in home.fleetctl("why", failed.id, "--fleet", FLEET)
    assert CAUSE in home.fleetctl("events", FLEET)
    assert WORDS in home.fleetctl("status", FLEET)
    assert CAUSE in home.run("logs", failed.id, "--fleet", FLEET).err

    broken.unlink()
    cloud.until(lambda: len(replicas(home, "ready")) == 2, "another serves in its stead", seconds=90)
    again = next(each for each in replicas(home, "ready") if each.id != first.id)
    assert (again.node_id, again.gpu_indices) == (failed.node_id, failed.gpu_indices)
    assert engine.is_running()
    assert caller(port)()
    assert [each["id"] for each in cloud.instances()] == [first.machine_id]
    assert len(live_replicas(home.status(FLEET))) == 2


def test_one_that_has_served_and_keeps_ending_is_replaced_as_soon_as_its_machine_gives_it_up(
    home: Home, cloud: Cloud
) -> None:
    profile = home.root / f"{FLEET}.yaml"
    profile.write_text(PROFILE.replace("PORT", str(free_port())))
    home.fleetctl("up", str(profile), "--yes", timeout_s=120)
    cloud.until(lambda: len(replicas(home, "ready")) == 2, "both serve", seconds=60)
    first, second = sorted(replicas(home, "ready"), key=lambda record: record.port)
    broken = break_slot(cloud, 1)
    engine = engine_on(cloud, second.port)
    assert engine is not None
    engine.kill()
    cloud.until(lambda: replicas(home, "failed"), "it is given up", seconds=60)
    (failed,) = replicas(home, "failed")
    assert (failed.id, CAUSE in failed.reason) == (second.id, True)
    broken.unlink()
    cloud.until(lambda: len(replicas(home, "ready")) == 2, "another serves in its stead", seconds=60)
    assert {each.node_id for each in replicas(home, "ready")} == {first.node_id, second.node_id}
