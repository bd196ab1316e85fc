"""How far an engine's start is, as its instance tells it: from user data to the model that it fetches."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl_aws.instance_notices import boots_in
from tests.aws.cloud.client import Cloud, running_cloud
from tests.aws.cloud.network import why_not_namespaced
from tests.aws.provider.conftest import Rented
from tests.providers.contract.cases import FLEET, Account

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.node import BootProgress, Node

ORDER = {"offering": "g6.xlarge/us-east-1b/spot", "port": 8000, "health_path": "/health"}
CHUNK, CHUNKS = 2**20, 40
# Fetches what an engine would, takes ten seconds to load it, long enough to be seen at that, and then serves.
ENGINE = """
import http.server, socket, sys, time
fetched, model = 0, socket.create_connection((sys.argv[1], int(sys.argv[2])))
while piece := model.recv(2**16):
    fetched += len(piece)
time.sleep(10)
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("0.0.0.0", 8000), Healthy).serve_forever()
"""


@pytest.mark.parametrize(
    "slot",
    [
        {},
        {"steps": [], "bytes": 0, "rate": 0},
        {"steps": [["image", "soon"]], "bytes": 0, "rate": 0},
        {"steps": [["image", 1e300]], "bytes": 0, "rate": 0},
        {"steps": [["image"]], "bytes": 0, "rate": 0},
        {"steps": [["image", 1.0]], "bytes": None, "rate": 0},
        "no slot",
    ],
)
def test_a_slot_in_another_form_says_nothing_and_leaves_the_others_alone(slot: object) -> None:
    good = {"steps": [["user-data", 1.5], ["image", 2.0]], "bytes": 7, "rate": 2.0}
    found = boots_in({"boot": {"0": good, "1": slot, "x": good}})
    assert list(found) == [0]
    assert (found[0].phase, found[0].done_bytes, len(found[0].steps)) == ("image", 7, 2)
    assert boots_in({"boot": [1]}) == boots_in({}) == {}


@pytest.fixture(scope="module")
def booting() -> Iterator[Cloud]:
    with running_cloud("--boot") as running:
        yield running


async def send_model(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send 40 MiB within ten seconds."""
    for _number in range(CHUNKS):
        writer.write(bytes(CHUNK))
        await writer.drain()
        await SYSTEM_CLOCK.sleep(0.25)
    writer.close()


@pytest.mark.e2e
@pytest.mark.enable_socket
@pytest.mark.timeout(180)
@pytest.mark.skipif(bool(why_not_namespaced()), reason="an instance needs a network namespace to be reached in")
async def test_an_instance_tells_the_phases_of_its_engines_start_and_how_much_it_has_fetched(
    booting: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in booting.environment.items():
        monkeypatch.setenv(name, value)
    host = str(booting.facts["host"])
    model = await asyncio.start_server(send_model, host, 0)
    provider = Rented(booting).provider(instance_profile="", gateway_source=f"{host}/32")
    argv = ("python3", "-c", ENGINE, host, str(model.sockets[0].getsockname()[1]))
    account = Account(provider, SYSTEM_CLOCK, "owner-of-a-start", defaults={**ORDER, "argv": argv})
    made = await account.node("t-1")
    events = provider.capabilities.events
    assert events is not None
    heard: list[Node] = []

    async def follow() -> None:
        async for node in events.watch(owner=account.owner, fleet=FLEET):
            heard.append(node)  # noqa: PERF401  # seen while it goes on

    following = asyncio.create_task(follow())
    seen: list[BootProgress] = []
    try:
        async with asyncio.timeout(90):
            while not is_loaded(seen):
                node = next(each for each in (await account.listing()).nodes if each.id == made.id)
                assert is_alive(node)
                if node.boot is not None and (not seen or node.boot != seen[-1]):
                    seen.append(node.boot)
                await SYSTEM_CLOCK.sleep(0.3)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await provider.stop(made.id, grace_s=1.0)
        model.close()
    steps = seen[-1].steps
    assert [step.phase for step in steps] == ["user-data", "image", "loading", "weights", "loading"]
    assert [step.began_at for step in steps] == sorted(step.began_at for step in steps)
    assert made.created_at.timestamp() - 5 < steps[0].began_at.timestamp() < SYSTEM_CLOCK.now().timestamp()
    fetching = [boot for boot in seen if boot.phase == "weights"]
    assert CHUNK < fetching[-1].done_bytes < 1.2 * CHUNK * CHUNKS
    assert max(boot.bytes_per_s for boot in fetching) > CHUNK
    phases = [node.boot.phase for node in heard if node.boot is not None]
    assert [phase for phase, later in pairwise([*phases, ""]) if phase != later][-2:] == ["weights", "loading"]
    assert seen[0].phase in ("launching", "user-data")


def is_loaded(seen: list[BootProgress]) -> bool:
    return bool(seen) and len(seen[-1].steps) > 4 and seen[-1].phase == "loading"


def is_alive(node: Node) -> bool:
    return node.exit_reason == ""
