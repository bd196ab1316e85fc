"""A spot interruption on a live fleet of booted instances, moment by moment.

python -m tests.aws.interruption --messages 5    the timeline of one, then from message to rotation of more; some minutes
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import socket
import statistics
import sys
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import UnavailableError
from fleetctl_host_local.unix_connection import call
from tests.aws.cloud.client import Cloud, running_cloud
from tests.e2e.fleet import Home, live_replicas
from tests.living_profiles import placed_profile
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.replica import Replica

FLEET = "taken"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
PROFILE = placed_profile(
    "taken",
    provider="aws",
    lane="chat",
    replicas="min: 2, max: 4",
    ttft="2s",
    output_tokens="p50: 32, p99: 100",
    startup="5s",
    keys="""\
    spot: all
capacity: {gpus: [L40S], max_nodes: 6}
gateway: {host: 127.0.0.1, port: PORT}
""",
)
# What each moment is, in the order in which they come.
MOMENTS = {
    "message": "EventBridge's message is put into the queue",
    "seen": "the controller's decision has seen it",
    "ordered": "a substitute is ordered",
    "serving": "the substitute is ready and in rotation",
    "out": "the gateway sends the noticed replica nothing new",
    "drained": "what it had in flight is over; it is stopped",
    "gone": "its address answers no more",
}
_POLL_S = 0.01
_WITHIN_S = 150.0
_REQUESTS_PER_S = 4.0
_LATE_S = 8.0


@dataclass
class Rotation:
    """Follows which replicas the gateway's own table has in rotation."""

    home: Home
    left_at_s: dict[str, float] = field(default_factory=dict)  # replica -> seconds since the epoch
    _ended: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        """Look until told to end; a replica that comes back is in rotation again."""
        while not self._ended.wait(_POLL_S):
            (path,) = self.home.root.rglob("routing-table.json")
            with contextlib.suppress(UnavailableError, ValueError):
                raw = call(path.parent / "gateway.sock", "GET", "/v1/snapshot", of="the gateway", deadline_s=2.0)
                now_s = SYSTEM_CLOCK.now().timestamp()
                table = json.loads(path.read_bytes())
                if json.loads(raw)["table_version"] == table["version"]:
                    self._note({row["id"] for row in table["replicas"] if row["in_rotation"]}, now_s)

    _in: set[str] = field(default_factory=set)

    def _note(self, there: set[str], now_s: float) -> None:
        for replica in self._in - there:
            self.left_at_s.setdefault(replica, now_s)
        self._in = there

    def end(self) -> None:
        self._ended.set()


@dataclass
class Fleet:
    """A fleet that serves a steady trickle of requests."""

    cloud: Cloud
    home: Home
    port: int
    rotation: Rotation
    answers: Counter[str] = field(default_factory=Counter)
    _ended: threading.Event = field(default_factory=threading.Event)

    def ready(self) -> list[Replica]:
        rows = live_replicas(self.home.status(FLEET))
        return [row.record for row in rows if row.record.state.value == "ready"]

    def send_requests(self) -> None:
        """Send requests until told to end."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 16}
        with httpx.Client(timeout=30.0) as client:
            while not self._ended.wait(1.0 / _REQUESTS_PER_S):
                try:
                    answer = client.post(f"http://127.0.0.1:{self.port}/v1/chat/completions", json=body)
                    self.answers["answered" if answer.status_code == 200 else f"refused {answer.status_code}"] += 1
                except httpx.HTTPError as exc:
                    self.answers[type(exc).__name__] += 1

    def end(self) -> None:
        self._ended.set()
        self.rotation.end()

    def entries(self, since_s: float) -> list[dict[str, Any]]:
        """Return the journal since an instant, oldest first."""
        found = self.home.query("events", FLEET, "--limit", "1000")
        found = found["entries"] if isinstance(found, dict) else found
        at_s = [(datetime.fromisoformat(each["at"]).timestamp(), each) for each in found]
        return [each | {"at_s": at} for at, each in sorted(at_s, key=lambda one: one[0]) if at >= since_s]

    def left_rotation(self, replica: Replica) -> float:
        """Wait until the gateway sends a replica nothing new; return when that was."""
        self.cloud.until(
            lambda: replica.id in self.rotation.left_at_s, f"{replica.id} is out of rotation", seconds=_WITHIN_S
        )
        return self.rotation.left_at_s[replica.id]


@contextmanager
def living_fleet() -> Iterator[Fleet]:
    """Bring a fleet of two up on a cloud whose instances boot; nothing is left of it."""
    root = Path(tempfile.mkdtemp(prefix="fi-"))
    with running_cloud("--boot") as cloud:
        settings = {
            "FLEETCTL_AWS_IMAGE": "example.com/emulator:1", "FLEETCTL_AWS_GATEWAY_SOURCE": f"{cloud.facts['host']}/32",
        }  # fmt: skip
        home, port = Home(root=root, env={**cloud.environment, **settings}), free_port()
        fleet = Fleet(cloud, home, port, Rotation(home))
        threads = [threading.Thread(target=each, daemon=True) for each in (fleet.send_requests, fleet.rotation.follow)]
        try:
            profile = root / "taken.yaml"
            profile.write_text(PROFILE.replace("PORT", str(port)))
            home.fleetctl("up", str(profile), "--yes", timeout_s=240)
            cloud.until(lambda: len(fleet.ready()) >= 2, "two replicas are ready", seconds=120)
            for thread in threads:
                thread.start()
            yield fleet
        finally:
            fleet.end()
            for thread in threads:
                if thread.is_alive():
                    thread.join(timeout=40)
            home.run("down", FLEET, "--yes")
            left = home.kill_everything()
            shutil.rmtree(root, ignore_errors=True)
            assert left == []


def timeline(fleet: Fleet, *, notice_s: float) -> dict[str, float]:
    """Interrupt a replica whose lane has none to spare; return each moment in seconds since its message."""
    victim, before = fleet.ready()[0], {each.id for each in fleet.ready()}
    address = next(each["address"] for each in fleet.cloud.instances("running") if each["id"] == victim.node_id)
    put_s = fleet.cloud.interrupt(victim.node_id, notice_s=notice_s)
    at_s = {"message": put_s, "out": fleet.left_rotation(victim)}
    while _answers(address):
        assert SYSTEM_CLOCK.now().timestamp() < put_s + notice_s + 60.0, f"{address} is still there"
        SYSTEM_CLOCK.sleep_blocking(0.1)
    at_s["gone"] = SYSTEM_CLOCK.now().timestamp()
    fleet.cloud.until(lambda: len(fleet.ready()) >= len(before), "as many are ready as before", seconds=_WITHIN_S)
    entries = fleet.entries(put_s)
    (substitute,) = {each.id for each in fleet.ready()} - before
    at_s["seen"] = entries[0]["at_s"]
    for name, replica, action in (
        ("ordered", substitute, "request-node"), ("serving", substitute, "admit"), ("drained", victim.id, "stop"),
    ):  # fmt: skip
        at_s[name] = next(
            each["at_s"] for each in entries if each["action"] == action and each["subject"]["name"] == replica
        )
    return {name: at_s[name] - put_s for name in MOMENTS}


def message_to_rotation(fleet: Fleet) -> float:
    """Interrupt a replica so late that it has to leave rotation at once; return the seconds from message to that.

    Its event says that the notice was given most of the two minutes ago, and its metadata say nothing.
    """
    victim, before = fleet.ready()[0], len(fleet.ready())
    put_s = fleet.cloud.interrupt(victim.node_id, notice_s=_LATE_S, metadata=False, age_s=120.0 - _LATE_S)
    taken_s = fleet.left_rotation(victim) - put_s
    fleet.cloud.until(lambda: len(fleet.ready()) >= before, "as many are ready as before", seconds=_WITHIN_S)
    return taken_s


def _answers(address: str) -> bool:
    try:
        with socket.create_connection((address, 8016), timeout=0.5):
            return True
    except OSError:
        return False


def main() -> int:
    """Print the timeline and the latencies."""
    parser = argparse.ArgumentParser(prog="python -m tests.aws.interruption", description=__doc__)
    parser.add_argument("--messages", type=int, default=5, help="messages timed until out of rotation")
    parser.add_argument("--notice", type=float, default=120.0, help="seconds from the notice to the instance's end")
    options = parser.parse_args()
    with living_fleet() as fleet:
        taken = [message_to_rotation(fleet) for _ in range(options.messages)]
        moments = timeline(fleet, notice_s=options.notice)
    out = sys.stdout.write
    out("".join(f"{at_s:8.2f} s  {MOMENTS[name]}\n" for name, at_s in sorted(moments.items(), key=lambda one: one[1])))
    if taken:
        out(
            f"message to out of rotation where it leaves at once: median {statistics.median(taken):.2f} s, most {max(taken):.2f} s"
        )
        out(f" of {len(taken)}\n")
    out("requests meanwhile: " + ", ".join(f"{count} {what}" for what, count in sorted(fleet.answers.items())) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
