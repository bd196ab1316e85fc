"""Gateways that a controller calls over TCP: real processes and sockets, a token, an epoch in every write, an end that loses nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import aiohttp
import pytest

from fleetctl import codec
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.controller.http import GatewayClients, HttpGatewayClient
from fleetctl.controller.several_gateways import SeveralGateways
from fleetctl.core.allotment import Allotter
from fleetctl.errors import UnavailableError
from fleetctl.model.gateway import SignalFeed
from fleetctl.model.gateway_process import EPOCH_HEADER, TOKEN_HEADER, GatewayIdentity
from fleetctl.model.slo_feed import SloFeed
from fleetctl.paths import FleetPaths
from fleetctl.ports.runtime import GatewayAddress
from tests.gateway.rig import HELLO, GatewayRig, until
from tests.gateway.scripted import answers
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from fleetctl.model.allotment import GatewayHoldings
    from fleetctl.model.gateway import RoutingTable

FLEET, TOKEN = "remote", "of-the-tests"


@dataclass
class Remote:
    """One gateway process of a machine of its own, as far as it can tell."""

    process: subprocess.Popen[bytes]
    port: int
    address: GatewayAddress

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def control(self) -> str:
        return f"http://127.0.0.1:{self.address.port}"

    async def readiness(self) -> int:
        async with aiohttp.ClientSession() as http, http.get(self.control + "/readyz") as response:
            return response.status


class Gateways:
    """Implements RemoteGateways over such processes."""

    def __init__(self, found: dict[int, Remote]) -> None:
        self.found = found

    def lead(self, epoch: int) -> None:
        """Look for nothing."""

    def address_of(self, number: int) -> GatewayAddress:
        if number not in self.found:
            raise UnavailableError(f"there is no gateway {number}")
        return self.found[number].address

    def is_leaving(self, number: int) -> bool:
        del number
        return False

    def place_of(self, number: int) -> str:
        del number
        return ""

    def clients(self, epoch: int) -> GatewayClients:
        return GatewayClients(FleetPaths(fleet=FLEET), remote=self, epoch=epoch)


@pytest.fixture
async def rig() -> AsyncIterator[GatewayRig]:
    """Scripted replicas, and the table that names them."""
    async with GatewayRig() as made:
        yield made


def started(tmp_path: Path, number: int, *arguments: str) -> Remote:
    home, token = tmp_path / f"home-{number}", tmp_path / "token"
    token.write_text(TOKEN + "\n")
    port, control = free_port(), free_port()
    with (tmp_path / f"gateway-{number}.log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "fleetctl.gateway", FLEET, "--port", str(port), "--beside",
                "--control-port", str(control), "--control-token", str(token), *arguments,
            ],
            env={**os.environ, "XDG_STATE_HOME": str(home)}, stderr=log,
        )  # fmt: skip
    return Remote(process, port, GatewayAddress(host="127.0.0.1", port=control, token=TOKEN))


@asynccontextmanager
async def running(tmp_path: Path, number: int, *arguments: str) -> AsyncIterator[Remote]:
    made = started(tmp_path, number, *arguments)
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    await made.readiness()
                except aiohttp.ClientError:
                    await SYSTEM_CLOCK.sleep(0.05)
                else:
                    break
        yield made
    finally:
        made.process.kill()
        made.process.wait()


@asynccontextmanager
async def client(gateway: Remote, epoch: int) -> AsyncIterator[HttpGatewayClient]:
    async with HttpGatewayClient(lambda: gateway.address, epoch=epoch) as made:
        yield made


async def exchange(
    allotter: Allotter, table: RoutingTable, clients: dict[int, HttpGatewayClient], epoch: int
) -> dict[int, GatewayHoldings]:
    """Exchange once, as a controller does."""
    allotter.living(clients)
    allotter.plan(table)
    found = {}
    for allotment_of in (allotter.lowered, allotter.raised):
        allotter.begin()
        for number, each in clients.items():
            allotment = allotment_of(number)
            found[number] = await (each.allot(allotment) if allotment is not None else each.holdings(epoch))
            allotter.heard(number, found[number])
    return found


async def test_nobody_is_heard_without_the_token_and_nothing_is_written_without_an_epoch(tmp_path, rig):
    await rig.add("r1")
    table = codec.encode(rig.table())
    async with running(tmp_path, 1) as gateway, aiohttp.ClientSession(gateway.control) as http:
        for headers in ({}, {TOKEN_HEADER: "another"}, {"authorization": f"Bearer {TOKEN}"}):
            for method, path in (("GET", "/v1/snapshot"), ("PUT", "/v1/table"), ("GET", "/v1/requests")):
                async with http.request(method, path, headers=headers, data=table) as response:
                    assert response.status == 401, (headers, path)
        for epoch in ({}, {EPOCH_HEADER: "x"}, {EPOCH_HEADER: "-1"}):
            async with http.put("/v1/table", headers={TOKEN_HEADER: TOKEN, **epoch}, data=table) as response:
                assert response.status == 400, epoch
        async with http.get("/livez") as response:
            assert response.status == 200
        (tmp_path / "token").unlink()
        async with http.get("/v1/snapshot", headers={TOKEN_HEADER: ""}) as response:
            assert response.status == 503, "no token is no open door"


@pytest.mark.parametrize(("options", "status"), [((), 401), (("--open-metrics",), 200)])
async def test_figures_are_for_who_has_no_token_only_where_that_is_meant(tmp_path, rig, options, status):
    await rig.add("r1")
    async with running(tmp_path, 1, *options) as gateway, aiohttp.ClientSession(gateway.control) as http:
        async with client(gateway, 1) as controller:
            await controller.put_table(replace(rig.table(), epoch=1))
        async with http.get("/metrics") as response:
            assert response.status == status
            shown = await response.text()
        assert ('fleetctl_gateway_in_flight{fleet="remote"' in shown) is (status == 200)
        async with http.get("/v1/snapshot") as response:
            assert response.status == 401


async def test_once_a_controller_has_spoken_an_older_one_is_fenced_in_every_write(tmp_path, rig):
    await rig.add("r1")
    old, new = replace(rig.table(), epoch=4, version=9), replace(rig.table(), epoch=5, version=1)
    async with running(tmp_path, 1) as gateway, client(gateway, 4) as before, client(gateway, 5) as after:
        await after.holdings(5)
        assert await before.put_table(old) == 0, "it has none, and takes none of a fenced controller"
        assert (await after.snapshot()).table_version == 0
        with pytest.raises(UnavailableError, match="409"):
            await before.put_signals(SignalFeed(replicas=()))
        with pytest.raises(UnavailableError, match="409"):
            await before.put_slo(SloFeed(at_s=0.0, objective=0.99, window_s=60.0, lanes=()))
        stale = Allotter(4)
        stale.begin()
        assert (await before.allot(stale.alone())).seq == 0
        async with aiohttp.ClientSession(headers={TOKEN_HEADER: TOKEN, EPOCH_HEADER: "4"}) as http:
            async with http.get(gateway.control + "/v1/identity") as response:
                identity = codec.decode(GatewayIdentity, await response.read())
            query = {"number": "3", "instance": identity.instance}
            async with http.put(gateway.control + "/v1/number", params=query) as response:
                assert response.status == 409
        assert identity.number == 0
        assert await after.put_table(new) == 1
        await after.put_signals(SignalFeed(replicas=()))


async def test_a_gateway_that_is_given_a_number_keeps_the_socket_it_has(tmp_path):
    async with running(tmp_path, 1) as gateway:
        headers = {TOKEN_HEADER: TOKEN, EPOCH_HEADER: "1"}
        async with aiohttp.ClientSession(gateway.control, headers=headers) as http:
            async with http.get("/v1/identity") as response:
                identity = codec.decode(GatewayIdentity, await response.read())
            async with http.put("/v1/number", params={"number": "3", "instance": identity.instance}) as response:
                assert codec.decode(GatewayIdentity, await response.read()).number == 3
        await SYSTEM_CLOCK.sleep(2.5)  # it looks for its socket once a second
    text = (tmp_path / "gateway-1.log").read_text()
    assert "this is gateway 3 now" in text
    assert "vanished" not in text


async def test_where_no_gateway_lives_that_is_said() -> None:
    several = SeveralGateways(Gateways({}).clients(2).of, are_remote=True)
    several.numbers = ()
    with pytest.raises(UnavailableError, match="none of 0 gateways answers"):
        await several.snapshot()
    assert several.seen == {}


async def test_two_hold_a_replicas_limit_together_and_one_that_goes_leaves_its_part_to_the_other(tmp_path, rig):
    await rig.add("r1", answers(["x"] * 4, gap_s=0.02), concurrency_max=6)
    table = replace(rig.table(), epoch=2)
    async with running(tmp_path, 1) as first, running(tmp_path, 2) as second:
        remote = Gateways({1: first, 2: second})
        clients = remote.clients(2)
        several, allotter = SeveralGateways(clients.of, are_remote=True), Allotter(2)
        several.numbers = (1, 2)
        assert {await first.readiness(), await second.readiness()} == {503}, "neither has a table"
        assert (await several.snapshot()).table_version == 0
        both = {number: clients.of(number) for number in several.numbers}
        await exchange(allotter, table, both, 2)
        assert await several.put_table(table) == table.version
        for _ in range(3):
            await exchange(allotter, table, both, 2)
        held = await exchange(allotter, table, both, 2)
        slots = [each.slots or 0 for found in held.values() for each in found.replicas]
        assert sum(slots) == 6
        assert all(slots)
        for each in (first, second):
            await until_ready(each)
            assert await post(each) == 200
        merged = await several.snapshot()
        assert sum(lane.window(10.0).good for lane in merged.lanes) == 2
        second.process.kill()
        second.process.wait()
        several.numbers = (1,)
        await exchange(allotter, table, {1: both[1]}, 2)
        held = await exchange(allotter, table, {1: both[1]}, 2)
        assert [each.slots for each in held[1].replicas] == [6]
        await clients.close()


async def test_told_to_end_it_serves_on_while_others_learn_of_it_and_nobody_is_refused(tmp_path, rig):
    await rig.add("r1", answers(["x"] * 10, gap_s=0.05))
    table = replace(rig.table(), epoch=2)
    leaving = ("--leave-s", "1.5", "--stop-timeout-s", "10")
    async with running(tmp_path, 1, *leaving) as gateway, client(gateway, 2) as controller:
        await exchange(Allotter(2), table, {1: controller}, 2)
        await controller.put_table(table)
        await until_ready(gateway)
        async with aiohttp.ClientSession() as http:
            assert await answered(http, gateway) == (200, False)
            stream = asyncio.create_task(answered(http, gateway, stream=True))
            await until(lambda: len(rig.replicas[0].seen) > 1)
            gateway.process.terminate()
            await SYSTEM_CLOCK.sleep(0.2)
            # A connection that is kept is told to close with its next answer; a new one is taken.
            assert await answered(http, gateway) == (200, True)
            assert await answered(http, gateway) == (200, True)
            assert await gateway.readiness() == 200, "where nobody else is ready it is still better than nothing"
            assert (await stream)[0] == 200
        assert await asyncio.to_thread(gateway.process.wait, 20) == 0


async def until_ready(gateway: Remote) -> None:
    async with asyncio.timeout(10):
        while await gateway.readiness() != 200:
            await SYSTEM_CLOCK.sleep(0.05)


async def post(gateway: Remote) -> int:
    async with aiohttp.ClientSession() as http:
        return (await answered(http, gateway))[0]


async def answered(http: aiohttp.ClientSession, gateway: Remote, *, stream: bool = False) -> tuple[int, bool]:
    """Return an answer's status, and whether its connection is closed with it."""
    async with http.post(gateway.url + "/v1/chat/completions", json=HELLO | {"stream": stream}) as response:
        await response.read()
        return response.status, response.headers.get("connection") == "close"
