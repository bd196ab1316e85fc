"""The gateway as a process: its lock, its table, its sockets, its end."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import resource
import signal
import socket
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import psutil
import pytest

from fleetctl import codec
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.gateway import listeners
from fleetctl.model.gateway import GatewaySnapshot
from fleetctl.paths import FleetPaths
from fleetctl.unix_server import make_socket_dir
from tests.gateway.rig import HELLO, until
from tests.gateway.scripted import answers
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from fleetctl.model.gateway import RoutingTable

FLEET = "proc"


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetPaths:
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = FleetPaths(fleet=FLEET)
    made.make()
    return made


class Process:
    """A gateway process and ways to talk to it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, paths: FleetPaths) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.paths = paths
        self.http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
        self.admin = aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=str(paths.gateway_socket)))

    def has_socket(self) -> bool:
        return self.paths.gateway_socket.exists()

    async def post(self, **body: object) -> tuple[int, bytes]:
        async with self.http.post(self.url + "/v1/chat/completions", json=HELLO | body) as response:
            return response.status, await response.read()

    async def put(self, table: RoutingTable) -> int:
        async with self.admin.put("http://gateway/v1/table", data=codec.encode(table)) as response:
            return response.status

    async def snapshot(self) -> GatewaySnapshot:
        async with self.admin.get("http://gateway/v1/snapshot") as response:
            return codec.decode(GatewaySnapshot, await response.read())


@asynccontextmanager
async def running(
    paths: FleetPaths,
    *arguments: str,
    sockets: tuple[socket.socket, ...] = (),
    files_max: int = 4096,
    **env: str,
) -> AsyncIterator[Process]:
    port = sockets[0].getsockname()[1] if sockets else free_port()
    fds = tuple(s.fileno() for s in sockets)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fleetctl.gateway", FLEET, "--port", str(port), *arguments,
        env={**os.environ, **env, **({"FLEETCTL_LISTEN_FDS": ",".join(map(str, fds))} if fds else {})},
        pass_fds=fds, stderr=asyncio.subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max)),
    )  # fmt: skip
    make_socket_dir(paths)  # its place is known before the gateway is
    made = Process(process, port, paths)
    try:
        await until(made.has_socket, wait_s=30)
        await _until_answering(made)
        yield made
    finally:
        await made.http.close()
        await made.admin.close()
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _until_answering(gateway: Process) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await gateway.snapshot()
            except aiohttp.ClientError:
                await SYSTEM_CLOCK.sleep(0.02)
            else:
                return


async def test_a_restarted_gateway_serves_from_the_table_file(paths, rig):
    await rig.add("r1")
    paths.routing_table.parent.mkdir(parents=True, exist_ok=True)
    paths.routing_table.write_bytes(codec.encode(rig.table()))
    async with running(paths) as gateway:
        assert (await gateway.post())[0] == 200


async def test_a_damaged_table_file_waits_for_the_controller(paths, rig):
    await rig.add("r1")
    paths.routing_table.parent.mkdir(parents=True, exist_ok=True)
    paths.routing_table.write_bytes(b'{"fleet": 3}')
    async with running(paths) as gateway:
        assert (await gateway.post())[0] == 503
        assert await gateway.put(rig.table()) == 200
        assert (await gateway.post())[0] == 200


async def test_the_controller_puts_tables_and_reads_snapshots(paths, rig):
    await rig.add("r1")
    async with running(paths) as gateway:
        table = replace(rig.table(), version=5)
        assert await gateway.put(table) == 200
        assert await gateway.put(table) == 200
        assert await gateway.put(replace(table, version=4)) == 409
        assert await gateway.put(replace(table, epoch=2, version=5)) == 200
        assert await gateway.put(replace(table, epoch=1, version=9)) == 409, "of a controller that was fenced"
        async with gateway.admin.put("http://gateway/v1/table", data=b"{}") as response:
            assert response.status == 400
            assert "missing" in (await response.json())["error"]
        assert (await gateway.post(stream=True))[0] == 200
        snapshot = await gateway.snapshot()
        assert snapshot.table_version == 5
        assert snapshot.pid == gateway.process.pid
        assert snapshot.fleet == FLEET
        lane = snapshot.lanes[0]
        assert [w.seconds for w in lane.windows] == [10.0, 60.0, 300.0, 3600.0]
        assert lane.window(10.0).good == 1
        assert (snapshot.replicas[0].in_flight, snapshot.replicas[0].failures) == (0, 0)
        assert paths.gateway_socket.parent.stat().st_mode & 0o077 == 0


async def test_the_second_gateway_of_a_fleet_leaves_at_once(paths):
    async with running(paths):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fleetctl.gateway", FLEET, "--port", str(free_port()), stderr=asyncio.subprocess.PIPE
        )
        _, err = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 7
        assert b"holds gateway.lock" in err


async def test_a_taken_port_is_said_plainly(paths):
    del paths
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fleetctl.gateway", FLEET, "--port", port, stderr=asyncio.subprocess.PIPE
        )
        _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 3
    assert b"cannot listen on 127.0.0.1:" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_told_to_stop_it_finishes_what_is_in_flight(paths, rig, number):
    replica = await rig.add("r1", answers(["x"] * 20, gap_s=0.05))
    async with running(paths) as gateway:
        await gateway.put(rig.table())
        response = asyncio.create_task(gateway.post(stream=True))
        await until(lambda: replica.seen)
        gateway.process.send_signal(number)
        status, body = await response
        assert status == 200
        assert body.endswith(b"data: [DONE]\n\n")
        assert await asyncio.wait_for(gateway.process.wait(), 20) == 0
        assert not paths.gateway_socket.exists()


async def test_told_to_stop_it_does_not_wait_for_ever(paths, rig):
    replica = await rig.add("r1", answers(["x"] * 2000, gap_s=0.05))
    async with running(paths, "--stop-timeout-s", "0.5") as gateway:
        await gateway.put(rig.table())
        response = asyncio.create_task(gateway.post(stream=True))
        await until(lambda: replica.seen)
        gateway.process.terminate()
        assert await asyncio.wait_for(gateway.process.wait(), 20) == 0
        with pytest.raises(aiohttp.ClientError):
            await response


async def test_connections_wait_in_the_backlog_while_a_killed_gateway_restarts(paths, rig):
    await rig.add("r1")
    paths.routing_table.parent.mkdir(parents=True, exist_ok=True)
    paths.routing_table.write_bytes(codec.encode(rig.table()))
    sockets = tuple(listeners.bind("127.0.0.1", 0, 1))
    async with running(paths, sockets=sockets) as first:
        assert (await first.post())[0] == 200
        first.process.kill()
        await first.process.wait()
        async with aiohttp.ClientSession() as http:
            waiting = asyncio.create_task(_post(http, first.url))
            await SYSTEM_CLOCK.sleep(0.2)
            assert not waiting.done()
            async with running(paths, sockets=sockets) as second:
                assert await asyncio.wait_for(waiting, 20) == 200
                assert (await second.post())[0] == 200
    for sock in sockets:
        sock.close()


async def _post(http: aiohttp.ClientSession, url: str) -> int:
    async with http.post(url + "/v1/chat/completions", json=HELLO) as response:
        return response.status


async def test_sockets_that_do_not_listen_are_refused(paths):
    del paths
    with socket.socket() as deaf:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fleetctl.gateway", FLEET, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "FLEETCTL_LISTEN_FDS": str(deaf.fileno())}, pass_fds=(deaf.fileno(),),
        )  # fmt: skip
        _, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 3
    assert b"does not listen" in err


# Writes what it was given, and holds the lock for a while, as a controller does.
CONTROLLER = """
import fcntl, json, os, socket, sys, time
lock = open(sys.argv[1], "a")
fcntl.flock(lock, fcntl.LOCK_EX)
fds = [int(fd) for fd in os.environ["FLEETCTL_LISTEN_FDS"].split(",")]
ports = {socket.socket(fileno=fd).getsockname()[1] for fd in fds}
with open(sys.argv[2], "a") as out:
    out.write(json.dumps({"sid": os.getsid(0), "pid": os.getpid(), "ports": sorted(ports)}) + "\\n")
print("started", flush=True)
time.sleep(float(sys.argv[3]))
"""


async def test_a_missing_controller_is_started_while_the_fleet_should_be_up(paths, rig, tmp_path):
    await rig.add("r1")
    out = tmp_path / "started"
    argv = [sys.executable, "-c", CONTROLLER, str(paths.controller_lock), str(out), "600"]
    async with running(paths, FLEETCTL_CONTROLLER_ARGV=json.dumps(argv)) as gateway:
        await SYSTEM_CLOCK.sleep(1.5)
        assert not out.exists()  # No table, so no fleet to be up.
        await gateway.put(rig.table())
        await until(lambda: out.exists() and out.read_text().endswith("\n"), wait_s=20)
        await SYSTEM_CLOCK.sleep(1.5)
        started = [json.loads(line) for line in out.read_text().splitlines()]
        try:
            assert len(started) == 1
            assert started[0]["sid"] == started[0]["pid"]
            assert started[0]["ports"] == [int(gateway.url.rsplit(":", 1)[1])]
            assert "started" in (paths.logs / "controller.log").read_text()
        finally:
            os.kill(started[0]["pid"], signal.SIGKILL)


async def test_a_living_controller_is_left_alone(paths, rig, tmp_path):
    await rig.add("r1")
    out = tmp_path / "started"
    argv = [sys.executable, "-c", CONTROLLER, str(paths.controller_lock), str(out), "1"]
    with paths.controller_lock.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        async with running(paths, FLEETCTL_CONTROLLER_ARGV=json.dumps(argv)) as gateway:
            await gateway.put(rig.table())
            await SYSTEM_CLOCK.sleep(2.5)
            assert not out.exists()


async def test_more_idle_clients_than_it_may_have_files_leave_room_for_others(paths, rig):
    await rig.add("r1")
    async with running(paths, files_max=256) as gateway:
        assert await gateway.put(rig.table()) == 200
        idle = []
        try:
            for _ in range(1000):
                idle.append(await asyncio.open_connection(*gateway.url.removeprefix("http://").split(":")))
                if len(idle) % 100 == 0:
                    assert (await gateway.post())[0] == 200
        finally:
            for _, writer in idle:
                writer.transport.abort()
        assert (await gateway.snapshot()).replicas[0].failures == 0


async def test_it_is_lean(paths, rig):
    await rig.add("r1")
    async with running(paths) as gateway:
        await gateway.put(rig.table())
        for _ in range(20):
            await gateway.post(stream=True)
        process = psutil.Process(gateway.process.pid)
        assert process.memory_info().rss < 80 * 1024 * 1024
        before = sum(process.cpu_times()[:2])
        await SYSTEM_CLOCK.sleep(2.0)
        assert sum(process.cpu_times()[:2]) - before <= 0.1  # of two seconds; mostly 0.01 or 0.02
