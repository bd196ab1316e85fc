"""The quickstart fleet, through the command line only: up, traffic, reads, steering, kills, down, nothing left."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest
import yaml

from fleetctl.core.conditions import ConditionType, fleet_condition
from fleetctl.model.replica import ReplicaState
from fleetctl.operations.planning import NO_PROOF
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.essential, pytest.mark.timeout(600)]

LANES = {"short": 3, "long": 3, "batch": 1}
WAIT_S = 120.0


@pytest.fixture(scope="module")
def home(home: Home) -> Home:
    """Directories of a user whose plans are proved, as everybody's are."""
    return replace(home, env={NO_PROOF: ""})


@pytest.fixture(scope="module")
def fleet(home: Home) -> Iterator[str]:
    """The base URL of a quickstart fleet that is up."""
    ran = home.run("up", "quickstart", "--port", str(free_port()), "--yes")
    assert ran.code == 0, ran.err
    yield ran.out.strip()
    ran = home.run("down", "quickstart", "--yes")
    assert ran.code == 0, ran.err


def wait_for(what: Callable[[], bool]) -> None:
    until(what, "it comes to pass", within_s=WAIT_S)


def chat(url: str, *, words: int = 20, stream: bool = False, headers: dict[str, str] | None = None) -> httpx.Response:
    body = {
        "model": "meta-llama/Llama-3.1-8B-Instruct", "max_tokens": 8, "stream": stream,
        "messages": [{"role": "user", "content": "tell me more " * words}],
    }  # fmt: skip
    return httpx.post(f"{url}/chat/completions", json=body, headers=headers, timeout=60)


def lanes_of(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {lane["name"]: lane for lane in status["lanes"]}


def ready_replicas(home: Home, lane: str) -> list[str]:
    found = [replica.record for replica in home.status("quickstart").replicas]
    return [record.id for record in found if record.lane == lane and record.state is ReplicaState.READY]


def test_every_lane_has_its_replicas_and_the_fleet_is_ready(fleet, home):
    status = home.query("status")
    assert {name: lane["ready"] for name, lane in lanes_of(status).items()} == LANES
    assert status["controller_alive"]
    assert status["gateway_alive"]
    assert status["condition"]["type"] == "READY"
    assert home.run("ls", "-o", "name").out == "quickstart\n"


@pytest.mark.parametrize(
    ("lane", "request_of"),
    [
        ("short", {"stream": True}),
        ("long", {"words": 1200}),
        ("batch", {"headers": {"x-fleetctl-batch": "true"}}),
        ("batch", {"headers": {"x-fleetctl-lane": "batch"}}),
    ],
)
def test_requests_reach_the_lane_they_belong_to(lane, request_of, fleet, home):
    answer = chat(fleet, **request_of)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-fleetctl-lane"] == lane
    assert answer.headers["x-fleetctl-replica"] in ready_replicas(home, lane)


@pytest.mark.parametrize("command", [("status",), ("lanes",), ("ls",), ("events",), ("why",), ("why", "short")])
def test_reads_speak_json_and_yaml(command, fleet, home):
    assert home.query(*command)
    ran = home.run(*command, "-o", "yaml")
    assert ran.code == 0
    assert yaml.safe_load(ran.out)


def test_lanes_count_what_was_sent(fleet, home):
    for _ in range(3):
        assert chat(fleet, stream=True).status_code == 200
    wait_for(lambda: lanes_of({"lanes": home.query("lanes")})["short"]["traffic"]["windows"][-1]["finished"] >= 3)


def test_up_again_changes_nothing(fleet, home):
    port = httpx.URL(fleet).port
    before = [r["record"]["id"] for r in home.query("status")["replicas"]]
    ran = home.run("up", "quickstart", "--port", str(port), "--yes")
    assert ran.code == 0, ran.err
    assert "already up, unchanged" in ran.err
    assert [r["record"]["id"] for r in home.query("status")["replicas"]] == before


def test_scaling_by_hand_adds_a_replica_and_auto_takes_it_away(fleet, home):
    assert home.run("scale", "short=4").code == 0
    wait_for(lambda: len(ready_replicas(home, "short")) == 4)
    assert any(event["action"] == "scale" for event in home.query("events", "-s", "short"))
    assert home.run("scale", "short=3").code == 0
    wait_for(lambda: len(ready_replicas(home, "short")) == 3)
    assert home.run("scale", "short", "auto").code == 0


def test_a_drained_replica_is_replaced_and_gone(fleet, home):
    victim = ready_replicas(home, "long")[0]
    ran = home.run("drain", victim, "--yes")
    assert ran.code == 0, ran.err
    assert "is drained and gone" in ran.err
    assert victim not in ready_replicas(home, "long")
    # Whether it is missing for a moment is not ours to say: its substitute may be ready first.
    wait_for(lambda: len(ready_replicas(home, "long")) == LANES["long"])


def test_a_broken_lane_refuses_with_a_retry_after_until_let_go(fleet, home):
    assert home.run("shed", "long", "--step", "breaker", "--yes").code == 0
    long = {"x-fleetctl-lane": "long"}
    # One request a second passes as a probe, so a refusal may need asking twice.
    wait_for(lambda: chat(fleet, headers=long).status_code == 429)
    refused = next(answer for answer in (chat(fleet, headers=long) for _ in range(20)) if answer.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["x-fleetctl-reason"] == "breaker"
    assert chat(fleet, stream=True).status_code == 200  # other lanes go on
    assert home.run("shed", "long", "--off").code == 0
    wait_for(lambda: [chat(fleet, headers=long).status_code for _ in range(3)] == [200, 200, 200])


def test_an_interrupted_spot_node_is_replaced(fleet, home):
    spot = [r["record"] for r in home.query("status")["replicas"] if r["record"]["market"] == "spot"]
    victim = next(record for record in spot if record["state"] == "ready")
    wanted = LANES[victim["lane"]]
    assert home.run("interrupt", victim["id"], "--notice", "none", "--yes").code == 0
    wait_for(lambda: victim["id"] not in ready_replicas(home, victim["lane"]))
    wait_for(lambda: len(ready_replicas(home, victim["lane"])) == wanted)


@pytest.mark.parametrize("who", ["controller_pid", "gateway_pid"])
def test_a_killed_process_comes_back_and_its_replicas_are_kept(who, fleet, home):
    wait_for(lambda: fleet_condition(home.status("quickstart")).type is ConditionType.READY)
    before = home.query("status")
    replicas = [r["record"]["id"] for r in before["replicas"] if r["record"]["state"] == "ready"]
    psutil.Process(before[who]).send_signal(signal.SIGKILL)

    def is_back() -> bool:
        seen = home.status("quickstart")
        return seen.controller_alive and seen.gateway_alive and getattr(seen, who) not in (0, before[who])

    wait_for(is_back)
    wait_for(lambda: chat(fleet, stream=True).status_code == 200)
    assert [r["record"]["id"] for r in home.query("status")["replicas"] if r["record"]["state"] == "ready"] == replicas


def test_load_reports_every_lane(fleet, home):
    ran = home.run("load", "quickstart", "--duration", "8s", "--batch-share", "40%", "-o", "json")
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert {lane["lane"] for lane in report["lanes"]} == set(LANES)
    total = report["total"]
    # A machine that stands still for a second has the fleet refuse, which is right; nothing else may happen to a request.
    assert total["ok"] + total["refused"] == total["requests"]
    assert total["ok"] > total["refused"]


async def test_watching_follows_the_fleet_live(fleet, home, monkeypatch):
    from fleetctl.cli.site import UserSite
    from fleetctl.operations import fleets

    for key, value in home.environment.items():
        if key.startswith("XDG_"):
            monkeypatch.setenv(key, value)
    seen = []
    async with asyncio.timeout(30):
        async for status in fleets.watch(UserSite().site, "quickstart"):
            seen.append(status.at)
            if len(seen) == 3:
                break
    assert seen == sorted(seen)
