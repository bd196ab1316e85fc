"""A fleet with one healthy lane and one whose engine is evil: what its clients get, what its processes hold, what it shows."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import pty
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from tests.e2e.fleet import Home
from tests.ports import free_port

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    import psutil

SOURCES = Path(__file__).parents[1] / "engines"
ENTRY_POINTS = "[fleetctl.engine]\nevil = evil_engine:EvilEngine\n"
PROFILE = """
apiVersion: fleetctl/v1
name: devils
model: {{id: meta-llama/Llama-3.1-8B-Instruct, served_name: m}}
engine: emulator
emulator: {{speed: 50, startup: 100ms}}
provider: local
workload: {{peak_rps: 2, prompt_tokens: {{p50: 50, p99: 200}}, output_tokens: {{p50: 8, p99: 20}}, batch_share: 50%}}
lanes:
  evil:
    match: {{batch: true}}
    engine: evil
    slo: {{ttft: {{p99: 2s}}}}
    max_wait: 500ms
    replicas: 2
    spot: none
    launch: {{env: {{EVIL_HOME: "{evil}", EVIL_MUCH: "{much}", EVIL_INTERNAL: "{internal}"}}}}
  good:
    slo: {{ttft: {{p99: 2s}}}}
    max_wait: 10s
    replicas: 1
    spot: none
capacity: {{gpus: [L40S]}}
gateway: {{port: {port}, api_keys: ["env:GATEWAY_KEY"], stall_timeout: 5s, request_timeout: 20s}}
"""
KEY = "a-good-key"  # a short one: its hash is the slow kind
# A face shows its own line ends and tabs; nothing else below a space, no C1, nothing that turns or hides text.
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
FACES = (
    ("status",), ("ls",), ("lanes",), ("events",), ("why",), ("logs", "gateway", "-n", "1000"),
    ("logs", "controller", "-n", "1000"), ("status", "-o", "json"), ("events", "-o", "json"), ("ls", "-o", "json"),
)  # fmt: skip
TOP_S = 4.0
START_S = 60.0  # of a command beside other work, until it has written anything
TRUSTED_S = 10.0


@dataclass(slots=True)
class Received:
    """What happened, by name."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def note(self, what: str, wrong: str = "") -> None:
        """Count an what; keep what was wrong about it."""
        self.counts[what] += 1
        if wrong:
            self.wrong.append(wrong)


class EvilFleet:
    """Brought up, asked and looked at by a test or a bench, in directories of its own."""

    def __init__(self, root: Path, *, much: int) -> None:
        self.root, self.port, self.much = root, free_port(), much
        self.evil = root / "evil"
        self.evil.mkdir()
        site = root / "site"
        for package in ("acme", "evil"):
            shutil.copytree(SOURCES / package, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        named = site / "evil_engine-6.6.dist-info"
        named.mkdir()
        (named / "METADATA").write_text("Metadata-Version: 2.1\nName: evil-engine\nVersion: 6.6\n")
        (named / "entry_points.txt").write_text(ENTRY_POINTS)
        self.home = Home(root=root, env={"PYTHONPATH": str(site), "GATEWAY_KEY": KEY})
        self.internal = socket.create_server(("127.0.0.1", 0))
        self.visits = 0  # connections to an address that only a redirect names
        threading.Thread(target=self._count_visits, daemon=True).start()

    def up(self) -> None:
        """Bring it up, well-behaved still; then let the evil begin."""
        profile = self.root / "devils.yaml"
        where = f"127.0.0.1:{self.internal.getsockname()[1]}"
        profile.write_text(PROFILE.format(port=self.port, evil=self.evil, much=self.much, internal=where))
        self.home.fleetctl("up", str(profile), "--yes", timeout_s=120)
        for lane in ("good", "evil"):
            assert self.send_chat("hello", lane)[0] == 200, self.home.logs()
        (self.evil / "go").touch()

    def done(self) -> Counter[str]:
        """Return what the engine has done so far, by name."""
        place = self.evil / "done"
        return Counter(place.read_text().splitlines() if place.exists() else [])

    def send_chat(
        self, prompt: str, lane: str, *, stream: bool = False, key: str = KEY, timeout_s: float = 30.0
    ) -> tuple[int, bytes]:
        """Send one chat on a connection of its own; return status and body, 0 where the connection broke."""
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": 8, "stream": stream}
        headers = {
            "authorization": f"Bearer {key}", "x-fleetctl-lane": lane, "content-type": "application/json",
        }  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, self._whole(response)
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def _whole(self, response: http.client.HTTPResponse) -> bytes:
        """Return the end of a body: what has no end is read as long as it is sent, and not kept."""
        kept = b""
        while piece := response.read1(65536):
            kept = (kept + piece)[-65536:]
        return kept

    def _count_visits(self) -> None:
        while True:
            try:
                self.internal.accept()[0].close()
            except OSError:
                return
            self.visits += 1

    def process(self, role: str) -> psutil.Process:
        """Return the gateway or the controller."""
        return next(p for p in self.home.processes() if p.cmdline()[1:3] == ["-m", f"fleetctl.{role}"])

    def down(self) -> list[str]:
        """Take it down; return what was left, which is then killed."""
        self.home.fleetctl("down", "--yes", timeout_s=120)
        self.internal.close()
        return self.home.kill_everything()

    # Beside the evil, at the same time.

    @contextmanager
    def healthy_clients(self, received: Received) -> Iterator[None]:
        """Ask the healthy lane all the while, alternately as a stream; every answer must be whole."""

        def send_one(number: int) -> None:
            status, body = self.send_chat(f"healthy {number}", "good", stream=number % 2 == 0)
            is_whole = body.rstrip().endswith(b"[DONE]") if number % 2 == 0 else b'"finish_reason"' in body
            right = status == 200 and is_whole
            received.note("right" if right else "wrong", "" if right else f"{status} {body[-200:]!r}")

        with _repeating(send_one, pause_s=0.05):
            yield

    @contextmanager
    def wrong_keys(self, received: Received, *, clients: int = 8) -> Iterator[None]:
        """Flood with keys that are wrong, each another one."""

        def send_one(number: int) -> None:
            status, _ = self.send_chat("let me in", "good", key=f"wrong-{number}-{threading.get_ident()}")
            refused = status in (401, 429)
            received.note(str(status), "" if refused else f"a wrong key got {status}")

        with _repeating(send_one, pause_s=0.01, threads=clients):
            yield

    @contextmanager
    def watched_memory(self) -> Iterator[dict[str, int]]:
        """Sample what gateway and controller hold; yield the growth of each in KiB, filled in as it is seen."""
        processes = {role: self.process(role) for role in ("gateway", "controller")}
        before = {role: process.memory_info().rss for role, process in processes.items()}
        grown = dict.fromkeys(processes, 0)

        def look(_: int) -> None:
            for role, process in processes.items():
                grown[role] = max(grown[role], (process.memory_info().rss - before[role]) // 1024)

        with _repeating(look, pause_s=0.1):
            yield grown

    def campaign(self, rng: random.Random, names: list[str]) -> Received:
        """Do every evil thing once in a random order, as a stream or whole; note what the client got."""
        received = Received()
        order = rng.sample(names, len(names))
        for name in order:
            self._wait_until_trusted()
            stream = rng.random() < 0.5
            status, _ = self.send_chat(f"evil:{name}", "evil", stream=stream)
            received.note(f"{name} {status}")
        return received

    def _wait_until_trusted(self) -> None:
        """Be served by the evil lane, twice: a replica that fails several times in a row is not asked for a while."""
        deadline_s = SYSTEM_CLOCK.monotonic_s() + TRUSTED_S
        served = 0
        while served < 2 and SYSTEM_CLOCK.monotonic_s() < deadline_s:
            served += self.send_chat("fine", "evil")[0] == 200

    # What it shows.

    def shown(self) -> dict[str, str]:
        """Return what every face shows, as a terminal would get it where one asks for a terminal."""
        replicas = [r["record"]["id"] for r in self.home.query("status")["replicas"]]
        faces = {
            " ".join(words): self.home.run(*words, "--fleet", "devils") if words[0] == "logs" else self.home.run(*words)
            for words in FACES
        }
        faces |= {f"logs {name}": self.home.run("logs", name, "-n", "2000") for name in replicas}
        faces |= {f"why {name}": self.home.run("why", name) for name in replicas}
        return {name: ran.out + ran.err for name, ran in faces.items()}

    def on_a_terminal(self, *words: str, seconds: float = TOP_S, begins_with: str = "") -> str:
        """Return what a command writes to a terminal in so many seconds, counted from where it first wrote a text."""
        primary, secondary = pty.openpty()
        fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        running = subprocess.Popen(
            [sys.executable, "-m", "fleetctl", *words], env=self.home.environment | {"TERM": "xterm-256color"},
            stdin=secondary, stdout=secondary, stderr=secondary, start_new_session=True,
        )  # fmt: skip
        os.close(secondary)
        raw, has_begun = b"", not begins_with
        deadline_s = SYSTEM_CLOCK.monotonic_s() + (seconds if has_begun else START_S)
        os.set_blocking(primary, False)
        while SYSTEM_CLOCK.monotonic_s() < deadline_s:
            try:
                raw += os.read(primary, 65536)
                if not has_begun and begins_with.encode() in raw:
                    has_begun, deadline_s = True, SYSTEM_CLOCK.monotonic_s() + seconds
            except BlockingIOError:
                SYSTEM_CLOCK.sleep_blocking(0.05)
            except OSError:
                break  # it has ended
        running.kill()
        running.wait()
        os.close(primary)
        return raw.decode(errors="replace")


@contextmanager
def devils(*, much: int) -> Iterator[EvilFleet]:
    """Yield such a fleet, up; take it down and leave nothing."""
    # A socket's path holds 108 bytes; pytest's own temporary directories are too deep for that.
    root = Path(tempfile.mkdtemp(prefix="fd-"))
    fleet = EvilFleet(root, much=much)
    try:
        fleet.up()
        yield fleet
        left = fleet.down()
        assert left == []
    finally:
        fleet.home.kill_everything()
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _repeating(once: Callable[[int], None], *, pause_s: float, threads: int = 1) -> Iterator[None]:
    """Call something again and again in threads until the block ends."""
    stop = threading.Event()

    def repeat(first: int) -> None:
        number = first
        while not stop.is_set():
            once(number)
            number += threads
            stop.wait(pause_s)

    running = [threading.Thread(target=repeat, args=(first,)) for first in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in running:
            thread.join()
