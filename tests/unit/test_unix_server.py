"""A fleet's sockets: found by whoever reads the state, and made anew where they vanish."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web

from fleetctl.paths import FleetPaths, has_room_for_sockets
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.samples import EPOCH
from fleetctl.unix_server import UnixServer, make_socket_dir

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

DEEP = "a-directory-whose-name-alone-is-as-long-as-some-whole-paths-are/and-another-one-below-it-of-the-same-kind"


@pytest.fixture(params=["short", "long"])
def paths(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FleetPaths]:
    """A state directory that has room for sockets, and one that has none."""
    root = Path(tempfile.mkdtemp(prefix="fu-"))
    state = root / DEEP if request.param == "long" else root
    state.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    made = FleetPaths(fleet="demo")
    made.make()
    assert has_room_for_sockets(made.home) == (request.param == "short")
    yield made
    if made.socket_dir not in (None, made.home):
        shutil.rmtree(made.socket_dir, ignore_errors=True)
    shutil.rmtree(root)


async def answer(paths: FleetPaths) -> str:
    """Ask as a client does that knows nothing but the state directory."""
    connector = aiohttp.UnixConnector(path=str(FleetPaths(fleet=paths.fleet).controller_socket))
    async with aiohttp.ClientSession(connector=connector) as client, client.get("http://controller/") as response:
        return await response.text()


@asynccontextmanager
async def serving(paths: FleetPaths, text: str = "here") -> AsyncIterator[UnixServer]:
    application = web.Application()

    async def get(_: web.Request) -> web.Response:
        return web.Response(text=text)

    application.router.add_get("/", get)
    server = UnixServer(application, paths, lambda paths: paths.controller_socket)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


async def look(server: UnixServer, *, is_ours: bool = True) -> None:
    """Let the server look once whether its socket is still there."""
    clock = ManualClock(EPOCH)
    keeping = asyncio.ensure_future(server.keep(clock, is_ours=lambda: is_ours))
    await clock.advance(1.0)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_a_client_that_knows_the_state_finds_the_server(paths, monkeypatch, tmp_path):
    async with serving(paths):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        assert await answer(paths) == "here"
    assert not paths.controller_socket.exists()


async def test_a_socket_that_was_removed_is_made_again(paths):
    async with serving(paths) as server:
        paths.controller_socket.unlink()
        await look(server)
        assert await answer(paths) == "here"


async def test_a_directory_that_was_removed_is_made_again(paths):
    async with serving(paths) as server:
        before = paths.controller_socket
        shutil.rmtree(before.parent)
        paths.make()
        await look(server)
        assert await answer(paths) == "here"


def test_a_directory_others_could_have_planted_is_not_used(paths):
    if has_room_for_sockets(paths.home):
        assert make_socket_dir(paths) == paths.home
        return
    planted = Path(tempfile.mkdtemp(prefix="fu-"))
    planted.chmod(0o755)
    paths.socket_dir_record.write_text(str(planted))
    made = make_socket_dir(paths)
    planted.rmdir()
    assert made != planted
    assert made == paths.socket_dir == make_socket_dir(paths)
    assert made.stat().st_mode & 0o077 == 0


async def test_a_socket_that_another_process_has_by_now_is_left_to_it(paths):
    async with serving(paths, "first") as first, serving(paths, "second"):
        await look(first, is_ours=False)
        assert await answer(paths) == "second"
        await first.close()
        assert await answer(paths) == "second"
