"""The Unix sockets of a fleet's processes: their user's alone, and unmoved by whatever is written to them."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from fleetctl.gateway import admin
from fleetctl.gateway.frontend import Frontend
from fleetctl.gateway.limits import GatewayLimits
from fleetctl.paths import FleetPaths
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.samples import EPOCH
from fleetctl.unix_server import UnixServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from aiohttp import web

GROWTH_KIB_MAX = 100 * 1024
PIECE = b"x" * 65536
PUT = b"PUT /v1/table HTTP/1.1\r\nhost: gateway\r\n"
# Connecting as somebody else; its exit code is the error's number, 0 for none.
STRANGER = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
with socket.socket(socket.AF_UNIX) as client:
    sys.exit(client.connect_ex(sys.argv[1]))
"""


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[FleetPaths]:
    root = Path(tempfile.mkdtemp(prefix="fu-"))
    root.chmod(0o755)  # what keeps others out is the fleet's own directory
    monkeypatch.setenv("XDG_STATE_HOME", str(root))
    made = FleetPaths(fleet="demo")
    made.make()
    yield made
    shutil.rmtree(root)


def gateway_app() -> web.Application:
    return admin.app(Frontend("demo", ManualClock(EPOCH), random.Random(1), GatewayLimits()))


@asynccontextmanager
async def serving(paths: FleetPaths) -> AsyncIterator[Path]:
    server = UnixServer(gateway_app(), paths, lambda paths: paths.gateway_socket)
    await server.start()
    try:
        yield paths.gateway_socket
    finally:
        await server.close()


async def test_nobody_else_gets_as_far_as_the_socket(paths: FleetPaths) -> None:
    async with serving(paths) as place:
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        if os.geteuid() != 0:
            pytest.skip("only root can try as somebody else")
        tried = await asyncio.create_subprocess_exec(sys.executable, "-c", STRANGER, str(place))
        assert await tried.wait() == 13  # EACCES


async def test_its_own_mode_keeps_others_out_too(paths: FleetPaths) -> None:
    before = os.umask(0)
    try:
        async with serving(paths) as place:
            assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"", b"\x00\x01\xff junk " * 4000),
        (b"GET / HTTP/1.1\r\n", b"x: " + b"y" * 1000 + b"\r\n"),
        (b"GET /" , PIECE),
        (b"GET / HTTP/1.1\r\nx: ", PIECE),
        (PUT + b"content-length: 99999999999\r\n\r\n", PIECE),
        (PUT + b"transfer-encoding: chunked\r\n\r\n", b"10000\r\n" + PIECE + b"\r\n"),
        (PUT + b"transfer-encoding: chunked\r\n\r\n10000;", PIECE),
        (PUT + b"content-encoding: gzip\r\ncontent-length: 99999999\r\n\r\n\x1f\x8b\x08", PIECE),
    ],
)  # fmt: skip
async def test_junk_without_end_is_refused_and_forgotten(paths: FleetPaths, head: bytes, piece: bytes) -> None:
    async with serving(paths) as place:
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(3):
            reader, writer = await asyncio.open_unix_connection(str(place))
            try:
                writer.write(head)
                for _ in range(256 * 1024 * 1024 // len(piece) // 4):
                    writer.write(piece)
                    async with asyncio.timeout(10):
                        await writer.drain()
                    if reader.at_eof():
                        break
            except (ConnectionError, TimeoutError):
                pass
            finally:
                writer.transport.abort()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < GROWTH_KIB_MAX
        connector = aiohttp.UnixConnector(path=str(place))
        async with aiohttp.ClientSession(connector=connector) as client:
            for body in (b"", b"[]", b'{"version":', b"[" * 100_000, b"\xff", b'{"version": 1e999}'):
                async with client.put("http://gateway/v1/table", data=body) as response:
                    assert 400 <= response.status < 500
            async with client.get("http://gateway/v1/snapshot") as response:
                assert response.status == 200


def test_a_command_leaves_what_another_user_owns(paths: FleetPaths) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    os.chown(paths.home, 65534, 65534)
    done = subprocess.run(
        [sys.executable, "-c", "from fleetctl.paths import FleetPaths; FleetPaths(fleet='demo').make()"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "belongs to user 65534" in done.stderr
