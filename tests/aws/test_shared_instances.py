"""Replicas that share an instance: one is launched, the others are placed on it by its tags, and it goes with the last."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from openai import OpenAI

from tests.aws.booted_home import booted_home, cloud_of_shared_instances, shared_instance_profile
from tests.aws.cloud.reaper import processes_of
from tests.aws.test_fleet import MODEL, what_is_left
from tests.e2e.fleet import live_replicas
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.aws.cloud.client import Cloud
    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.enable_socket]

PROFILE = shared_instance_profile("shared", replicas="min: 3, max: 4")
# On record of a node: its machine, and its GPUs there.
PRICE = 20.0 + 200 * 0.08 / 730  # of the instance, and of its disk by the packaged list
ALL_OF_IT = {(0, 1), (2, 3), (4, 5), (6, 7)}


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with cloud_of_shared_instances() as running:
        yield running


@pytest.fixture
def home(cloud: Cloud) -> Iterator[Home]:
    with booted_home(cloud, "shared") as home:
        yield home


def ready(home: Home) -> list[Any]:
    rows = live_replicas(home.status("shared"))
    return [row.record for row in rows if row.record.state.value == "ready"]


def engine_on(cloud: Cloud, port: int, *, but: int = 0) -> psutil.Process | None:
    """Return the engine on a port of a cloud's only instance, another than one that was there; None: there is none."""
    for process in processes_of(cloud.facts["directory"]):  # another cloud's instances have the same ports
        with contextlib.suppress(psutil.Error):
            if process.pid != but and str(port) in process.cmdline():
                return process
    return None


def caller(port: int) -> Callable[[], str]:
    """Return what asks the gateway for an answer."""
    client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=60)

    def reply() -> str:
        chat = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=8
        )
        return chat.choices[0].message.content or ""

    return reply


def test_four_replicas_are_one_instance_at_its_price_and_leave_it_one_by_one(home: Home, cloud: Cloud) -> None:
    port = free_port()
    profile = home.root / "shared.yaml"
    profile.write_text(PROFILE.replace("PORT", str(port)))
    planned = home.query("plan", str(profile))
    assert (planned["lanes"][0]["replicas"], planned["cost_usd_per_hour"]) == (4, pytest.approx(PRICE))

    home.fleetctl("up", str(profile), "--yes", timeout_s=300)
    cloud.until(lambda: len(ready(home)) == 4, "four replicas are ready", seconds=240)
    (instance,) = cloud.instances("pending", "running")
    assert {tuple(record.gpu_indices) for record in ready(home)} == ALL_OF_IT
    assert {record.machine_id for record in ready(home)} == {instance["id"]}
    assert len({(record.host, record.port) for record in ready(home)}) == 4
    cloud.until(
        lambda: home.status("shared").cost_usd_per_hour == pytest.approx(PRICE), "the instance is paid for once"
    )

    reply = caller(port)
    assert all(reply() for _ in range(8))
    four = ready(home)

    # One leaves: its slot's engine ends, and the instance, which costs what it did, stays for the others.
    home.fleetctl("scale", "chat=3", "--fleet", "shared", timeout_s=240)
    cloud.until(lambda: len(ready(home)) == 3, "one is told to go", seconds=120)
    left = {record.port for record in ready(home)}
    (freed,) = {record.port for record in four} - left
    cloud.until(lambda: engine_on(cloud, freed) is None, "its engine has ended", seconds=120)
    assert home.status("shared").cost_usd_per_hour == pytest.approx(PRICE)
    assert [each["id"] for each in cloud.instances("pending", "running")] == [instance["id"]]

    # One engine dies: it is started again in its slot, and the others serve on.
    others = ready(home)[1:]
    dying = ready(home)[0].port
    engine = engine_on(cloud, dying)
    assert engine is not None
    engine.kill()
    assert all(reply() for _ in range(8))
    cloud.until(lambda: engine_on(cloud, dying, but=engine.pid), "the engine runs again", seconds=120)
    served_on = {record.id for record in others}
    cloud.until(lambda: served_on < {record.id for record in ready(home)}, "the third is ready again", seconds=120)
    assert instance["id"] in {each["id"] for each in cloud.instances("pending", "running")}

    cloud.interrupt(instance["id"], notice_s=60)
    cloud.until(
        lambda: {r.machine_id for r in ready(home)}.isdisjoint({instance["id"]}) and len(ready(home)) >= 3,
        "all three have moved to another instance",
        seconds=240,
    )
    assert len(cloud.instances("running")) <= 2
    assert all(reply() for _ in range(8))

    home.fleetctl("down", "shared", "--yes", timeout_s=300)
    cloud.until(
        lambda: not cloud.instances("pending", "running", "shutting-down", "stopping", "stopped"),
        "no instance is left",
        seconds=120,
    )
    assert what_is_left(cloud) == {}
