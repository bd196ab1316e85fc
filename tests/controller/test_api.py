"""The controller's socket: a status, a stream, a wake."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from fleetctl.codec import decode
from fleetctl.controller import api
from fleetctl.controller.loop import Controller
from fleetctl.model.status import FleetStatus
from fleetctl.paths import FleetPaths
from fleetctl.testing.virtual_time import run_virtual
from fleetctl.unix_server import UnixServer
from tests.controller.rig import FLEET, Rig
from tests.controller.xdg import use_xdg_directories

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


@pytest.fixture
def status(tmp_path: Path) -> FleetStatus:
    async def scenario() -> FleetStatus:
        rig = Rig(tmp_path)
        rig.up()
        found = await rig.run(10)
        rig.store.close()
        assert found is not None
        return found

    return run_virtual(scenario())


@pytest.fixture
def socket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="fa-"))
    use_xdg_directories(root, monkeypatch)
    yield root / "controller.sock"
    shutil.rmtree(root)


class Served:
    """An API with a status that the test sets."""

    def __init__(self) -> None:
        self.now: FleetStatus | None = None
        self.woken = 0
        self.broadcast = api.Broadcast()

    def wake(self) -> None:
        self.woken += 1


@pytest.fixture
async def served(socket: Path) -> AsyncIterator[tuple[Served, aiohttp.ClientSession]]:
    served = Served()
    application = api.app(lambda: served.now, served.broadcast, served.wake)
    server = UnixServer(application, FleetPaths(fleet="demo"), lambda _: socket)
    await server.start()
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as client:
        yield served, client
    await server.close()


async def test_before_the_first_tick_it_says_so(served):
    _, client = served
    async with client.get("http://controller/v1/status") as response:
        assert response.status == 503
        assert "first look" in await response.text()


async def test_a_status_can_be_read_back(served, status):
    server, client = served
    server.now = status
    async with client.get("http://controller/v1/status") as response:
        assert decode(FleetStatus, await response.read()) == status
    assert [lane.ready for lane in status.lanes] == [2, 2]
    assert status.cost_usd_per_hour == pytest.approx(3 * 1.861 + 0.7444)
    assert status.decisions[-1].seq > 0


async def test_a_stream_gives_one_line_a_tick_and_a_slow_reader_the_latest(served, status):
    server, client = served
    server.now = status
    async with client.get("http://controller/v1/stream") as response:
        assert decode(FleetStatus, await response.content.readline()) == status
        for _ in range(3):
            await asyncio.wait_for(until(lambda: server.broadcast.listeners == 1), 10)
            server.broadcast.announce()
            assert decode(FleetStatus, await response.content.readline()).fleet == FLEET
    await asyncio.wait_for(until(lambda: server.broadcast.listeners == 0, server.broadcast.announce), 10)


async def test_a_wake_wakes(served):
    server, client = served
    async with client.post("http://controller/v1/wake") as response:
        assert response.status == 200
    assert server.woken == 1


async def until(holds: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
    while not holds():
        meanwhile()
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        loop.call_later(0.01, turn.set_result, None)
        await turn


def test_a_controller_has_no_status_before_it_looked(tmp_path):
    async def scenario() -> None:
        rig = Rig(tmp_path)
        assert Controller(rig.world).status() is None
        rig.store.close()

    run_virtual(scenario())
