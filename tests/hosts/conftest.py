from __future__ import annotations

import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

import pytest

from fleetctl.codec import encode
from fleetctl.locks import FileLock
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.profile import Mode
from fleetctl.model.status import FleetStatus
from fleetctl.paths import FleetPaths
from fleetctl.testing import samples
from fleetctl.unix_server import make_socket_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's directories of their own."""
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        directory = tmp_path / variable[4:8].lower()
        directory.mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(directory))
    for variable in ("FLEETCTL_FLEET", "FLEETCTL_LISTEN_FDS", "FLEETCTL_CONTROLLER_ARGV"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def fleet() -> str:
    return "demo"


class AnsweringController:
    """Answers on a fleet's controller socket as the real one does: from the store, with itself alive."""

    def __init__(self, fleet: str) -> None:
        self.paths = FleetPaths(fleet=fleet)
        self.paths.make()
        make_socket_dir(self.paths)
        self.wakes = 0
        self.hang = threading.Event()
        self.lock = FileLock(self.paths.controller_lock, command="answering controller")
        assert self.lock.try_acquire()
        self.server = _Server(str(self.paths.controller_socket), _StatusHandler)
        self.server.controller = self
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def status(self) -> FleetStatus:
        return FleetStatus(
            fleet=self.paths.fleet, at=samples.EPOCH, phase=DesiredPhase.UP, mode=Mode.ACTIVE, model="m", provider="fake",
            generation=1, gateway_url="http://127.0.0.1:8080", gateway_alive=False, controller_alive=True,
            controller_pid=1, gateway_pid=0, cost_usd_per_hour=0.0, max_cost_usd_per_hour=None,
            cost_usd_per_1m_tokens=None, lanes=(), replicas=(), decisions=(),
        )  # fmt: skip

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
    controller: AnsweringController


class _StatusHandler(BaseHTTPRequestHandler):
    @property
    def controller(self) -> AnsweringController:
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
def answering() -> Iterator[Callable[[str], AnsweringController]]:
    """Starts controllers, one after another."""
    started: list[AnsweringController] = []

    def start(fleet: str) -> AnsweringController:
        FleetPaths(fleet=fleet).controller_socket.unlink(missing_ok=True)  # as the real one does, holding the lock
        started.append(AnsweringController(fleet))
        return started[-1]

    yield start
    for controller in started:
        controller.die()


@pytest.fixture
def controller(fleet: str, answering: Callable[[str], AnsweringController]) -> AnsweringController:
    return answering(fleet)
