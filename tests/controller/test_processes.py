"""Real controller, gateway, local nodes and emulated engines; each is killed in turn, under requests."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil
import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.config.profile import parse_profile
from fleetctl.errors import UnavailableError
from fleetctl.model.desired import DesiredPhase
from fleetctl.model.node import NodeState
from fleetctl.model.replica import Replica, ReplicaState
from fleetctl.operations.planning import plan_profile
from fleetctl.paths import FleetPaths, state_db
from fleetctl.plugins import load_provider
from fleetctl.state.sqlite import SqliteStore
from fleetctl_host_local import controller_client
from tests.controller.xdg import use_xdg_directories
from tests.living_profiles import two_lanes_profile
from tests.own_processes import processes_under
from tests.sites import plugins_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleetctl.model.node import Node
    from fleetctl.model.status import FleetStatus

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FLEET = "kept"
PATIENCE_S = 60.0


@dataclass(slots=True)
class Kept:
    """A fleet in its own user's directories, and hands to hurt it with."""

    port: int
    store: SqliteStore
    controllers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_controller(self) -> subprocess.Popen[bytes]:
        paths = FleetPaths(fleet=FLEET)
        paths.make()
        with (paths.logs / "controller.log").open("ab") as log:
            started = subprocess.Popen(
                [sys.executable, "-m", "fleetctl.controller", FLEET],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.controllers.append(started)
        return started

    def status(self) -> FleetStatus:
        return controller_client.status(FLEET)

    def nodes(self) -> list[Node]:
        listing = asyncio.run(load_provider("local").list_nodes(owner=self.store.owner, fleet=FLEET))
        return [node for node in listing.nodes if node.state is not NodeState.GONE]

    def ready(self) -> list[Replica]:
        return [r for r in self.store.replicas(FLEET) if r.state is ReplicaState.READY]

    def is_whole(self) -> bool:
        """Whether four replicas serve, four nodes live, and they are each other's."""
        ready = self.ready()
        return len(ready) == 4 and {n.id for n in self.nodes()} == {r.node_id for r in ready} and self.serves()

    def serves(self) -> bool:
        try:
            status = self.status()
        except UnavailableError:
            return False
        return status.gateway_alive and all(lane.ready == lane.wanted for lane in status.lanes)

    def pid(self, lock: Path) -> int:
        """Return the pid in a lock file; 0 while it is being written."""
        try:
            held = json.loads(lock.read_bytes())
        except ValueError:
            return 0
        return int(held["pid"] if isinstance(held, dict) else held)

    def processes(self) -> list[psutil.Process]:
        return processes_under(os.environ["XDG_STATE_HOME"])

    def engine_of(self, replica: Replica) -> psutil.Process:
        for process in self.processes():
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if "fleetctl_emulator" in words and str(replica.port) in words:
                return process
        raise LookupError(f"no process of {replica.id}\n{self.logs()}")

    def logs(self) -> str:
        logs = sorted(Path(os.environ["XDG_STATE_HOME"]).rglob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-2500:]}" for path in logs)


def until(holds: Callable[[], bool], kept: Kept, what: str, within_s: float = PATIENCE_S) -> float:
    """Wait for it, and return how long it took; on the deadline show the logs."""
    begun_s = SYSTEM_CLOCK.monotonic_s()
    while not holds():
        assert SYSTEM_CLOCK.monotonic_s() - begun_s < within_s, f"not within {within_s} s: {what}\n{kept.logs()}"
        SYSTEM_CLOCK.sleep_blocking(0.1)
    return SYSTEM_CLOCK.monotonic_s() - begun_s


@pytest.fixture
def kept() -> Iterator[Kept]:
    # A socket's path holds 108 bytes; the test runner's own temporary directories are too deep for that.
    root = Path(tempfile.mkdtemp(prefix="fk-"))
    with pytest.MonkeyPatch.context() as patched, socket.socket() as probe:
        use_xdg_directories(root, patched)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        store = SqliteStore(state_db())
        kept = Kept(port=port, store=store)
        profile = parse_profile(two_lanes_profile(FLEET, port=port), source="a test")
        store.put_fleet(profile, asyncio.run(plan_profile(plugins_site(), profile)), now=SYSTEM_CLOCK.now())
        yield kept
        left = kept.processes()
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=10)
        for controller in kept.controllers:
            controller.wait(timeout=10)
        store.close()
    shutil.rmtree(root, ignore_errors=True)


def kill(pid: int) -> float:
    """Kill a process and return the time at which it was dead for certain: the last it could take a connection."""
    process = psutil.Process(pid)
    process.kill()
    deadline_s = SYSTEM_CLOCK.monotonic_s() + 10
    while SYSTEM_CLOCK.monotonic_s() < deadline_s:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                break
        except psutil.NoSuchProcess:
            break
        SYSTEM_CLOCK.sleep_blocking(0.005)
    return SYSTEM_CLOCK.monotonic_s()


class Traffic:
    """Two clients that send one short request after another, each on a connection of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.done: list[tuple[float, float, str]] = []  # begun, ended, "ok" or what went wrong
        self._threads = [threading.Thread(target=self._client, args=(lane,)) for lane in ("short", "long")]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=90)

    def wrong_after(self, begun_s: float) -> Counter[str]:
        """Return what went wrong with requests begun later than this."""
        with self._lock:
            return Counter(how for begun, _, how in self.done if begun > begun_s and how != "ok")

    def good_after(self, begun_s: float) -> int:
        with self._lock:
            return sum(1 for begun, _, how in self.done if begun > begun_s and how == "ok")

    def _client(self, lane: str) -> None:
        while not self._stop.is_set():
            begun_s = SYSTEM_CLOCK.monotonic_s()
            try:
                how = send_request(self._port, lane)
            except (OSError, http.client.HTTPException) as exc:
                how = type(exc).__name__
            with self._lock:
                self.done.append((begun_s, SYSTEM_CLOCK.monotonic_s(), how))
            self._stop.wait(0.05)


def send_request(port: int, lane: str) -> str:
    body: dict[str, Any] = {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 4,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(
            "POST", "/v1/chat/completions", json.dumps(body),
            {"content-type": "application/json", "x-fleetctl-lane": lane},
        )  # fmt: skip
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    return "ok" if response.status == 200 and b"usage" in text else f"{response.status}: {text[:200]!r}"


def test_controller_gateway_and_replica_are_killed_in_turn_and_the_fleet_comes_back(kept):
    kept.start_controller()
    until(kept.is_whole, kept, "four replicas serve")
    paths = FleetPaths(fleet=FLEET)
    before = {r.id for r in kept.ready()}
    with Traffic(kept.port) as traffic:
        until(lambda: traffic.good_after(0) >= 4, kept, "requests are served")

        # The controller: nobody notices, and its successor doubles nothing.
        old = kept.pid(paths.controller_lock)
        killed_s = kill(old)
        until(lambda: kept.serves() and kept.pid(paths.controller_lock) not in (0, old), kept, "another controller")
        until(kept.is_whole, kept, "all is as it was")
        assert {r.id for r in kept.ready()} == before
        assert traffic.wrong_after(killed_s) == {}

        # The gateway: whoever comes while it is away waits in the backlog of the port the controller holds.
        old = kept.pid(paths.gateway_lock)
        killed_s = kill(old)
        until(lambda: kept.serves() and kept.pid(paths.gateway_lock) not in (0, old), kept, "another gateway")
        until(lambda: traffic.good_after(killed_s) >= 4, kept, "requests are served again")
        assert traffic.wrong_after(killed_s) == {}

        # A replica: replaced; what another can serve fails for nobody who comes later.
        victim = next(r for r in kept.ready() if r.lane == "short")
        killed_s = kill(kept.engine_of(victim).pid)
        until(lambda: kept.is_whole() and victim.id not in {r.id for r in kept.ready()}, kept, "a replacement")
        until(lambda: traffic.good_after(killed_s) >= 4, kept, "requests are served on")
        assert traffic.wrong_after(killed_s) == {}
    assert len(kept.nodes()) == 4
    take_down(kept)


def test_a_notice_and_a_drain_lose_no_request(kept):
    kept.start_controller()
    until(kept.is_whole, kept, "four replicas serve")
    with Traffic(kept.port) as traffic:
        until(lambda: traffic.good_after(0) >= 4, kept, "requests are served")
        spot = next(r for r in kept.ready() if r.market.value == "spot")
        noticed_s = SYSTEM_CLOCK.monotonic_s()
        interruptions = load_provider("local").capabilities.interruptions
        assert interruptions is not None
        asyncio.run(interruptions.interrupt(spot.node_id, notice_s=30))
        until(lambda: kept.is_whole() and spot.id not in {r.id for r in kept.ready()}, kept, "a replacement")
        draining = next(r for r in kept.ready() if r.lane == "short")
        kept.store.request_drain(FLEET, draining.id, now=SYSTEM_CLOCK.now())
        controller_client.wake(FLEET)
        until(lambda: kept.is_whole() and draining.id not in {r.id for r in kept.ready()}, kept, "a replacement")
        until(lambda: traffic.good_after(noticed_s) >= 8, kept, "requests are served")
    assert traffic.wrong_after(0) == {}
    journal = [f"{e.kind} {e.action} {e.subject}" for e in kept.store.journal(FLEET, limit=1000)]
    assert f"notice drain {spot.id}" in journal
    assert f"decision drain {draining.id}" in journal
    take_down(kept)


def test_controllers_killed_again_and_again_while_the_fleet_comes_up_double_nothing(kept):
    most = 0
    for life_s in (0.45, 0.7, 0.9, 1.2, 0.6, 1.0):
        controller = kept.start_controller()
        SYSTEM_CLOCK.sleep_blocking(life_s)
        controller.kill()
        controller.wait(timeout=10)
        most = max(most, len(kept.nodes()))
    kept.start_controller()
    until(kept.is_whole, kept, "four replicas serve")
    assert most <= 4
    assert len({n.replica_id for n in kept.nodes()}) == 4
    assert kept.store.open_intents(FLEET) == ()
    take_down(kept)


def test_a_port_taken_by_a_stranger_is_said_and_taken_once_it_is_free(kept):
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", kept.port))
        stranger.listen()
        kept.start_controller()
        until(lambda: any(e.action == "start-gateway" and not e.ok for e in entries(kept)), kept, "it is said")
        entry = next(e for e in entries(kept) if e.action == "start-gateway" and not e.ok)
        assert f"port {kept.port} on 127.0.0.1 is in use by python" in entry.reason
    until(kept.is_whole, kept, "the gateway takes the port")
    take_down(kept)


def entries(kept: Kept) -> Any:
    return kept.store.journal(FLEET, limit=1000)


def take_down(kept: Kept) -> None:
    """Take the fleet down and see that nothing is left."""
    kept.store.set_phase(FLEET, DesiredPhase.DOWN, now=SYSTEM_CLOCK.now())
    until(lambda: kept.store.fleet(FLEET) is None, kept, "the fleet is forgotten")
    until(lambda: kept.processes() == [], kept, "no process is left", within_s=20)
    assert kept.nodes() == []
    paths = FleetPaths(fleet=FLEET)
    assert not paths.controller_socket.exists()
    assert not paths.gateway_socket.exists()
