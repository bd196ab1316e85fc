from __future__ import annotations

import socketserver
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

import pytest

from fleetctl.codec import encode
from fleetctl.operations.remembered import remembered_status
from fleetctl.paths import FleetPaths, state_db
from fleetctl.state.locks import FileLock
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fleetctl.model.status import FleetStatus


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's directories of their own."""
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        directory = tmp_path / variable[4:8].lower()
        directory.mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(directory))
    monkeypatch.delenv("FLEETCTL_FLEET", raising=False)
    return tmp_path


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    opened = SqliteStore(state_db())
    yield opened
    opened.close()


@pytest.fixture
def fleet(store: SqliteStore) -> str:
    """A fleet on record and nothing alive."""
    store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    return "demo"


class SpokenController:
    """Answers on a fleet's controller socket as the real one does: from the store, with itself alive."""

    def __init__(self, fleet: str) -> None:
        self.paths = FleetPaths(fleet=fleet)
        self.paths.make()
        self.wakes = 0
        self.hang = threading.Event()
        self.lock = FileLock(self.paths.controller_lock, command="spoken controller")
        assert self.lock.try_acquire()
        self.server = _Server(str(self.paths.controller_socket), _Answer)
        self.server.controller = self
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def status(self) -> FleetStatus:
        store = SqliteStore(state_db())
        try:
            desired = store.fleet(self.paths.fleet)
            assert desired is not None
            return replace(remembered_status(store, desired), controller_alive=True, controller_pid=1)
        finally:
            store.close()

    def die(self) -> None:
        """As kill -9 does: the lock goes, the socket's file stays."""
        if self.thread.is_alive():
            self.hang.set()
            self.server.shutdown()
            self.thread.join()
            self.server.server_close()
            self.lock.release()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    controller: SpokenController


class _Answer(BaseHTTPRequestHandler):
    @property
    def controller(self) -> SpokenController:
        assert isinstance(self.server, _Server)
        return self.server.controller

    def do_GET(self) -> None:
        controller = self.controller
        if self.path == "/v1/stream":
            self._head(b"")
            while not controller.hang.wait(0.02):
                self.wfile.write(encode(controller.status()) + b"\n")
        elif self.path == "/v1/status":
            self._head(encode(controller.status()))

    def do_POST(self) -> None:
        self.controller.wakes += 1
        self._head(b"{}")

    def _head(self, body: bytes) -> None:
        self.send_response(200)
        if self.path != "/v1/stream":
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *args: object) -> None:
        del args  # a test's output is pytest's


@pytest.fixture
def spoken() -> Iterator[Callable[[str], SpokenController]]:
    """Starts controllers, one after another."""
    started: list[SpokenController] = []

    def start(fleet: str) -> SpokenController:
        FleetPaths(fleet=fleet).controller_socket.unlink(missing_ok=True)  # as the real one does, holding the lock
        started.append(SpokenController(fleet))
        return started[-1]

    yield start
    for controller in started:
        controller.die()


@pytest.fixture
def controller(fleet: str, spoken: Callable[[str], SpokenController]) -> SpokenController:
    return spoken(fleet)
