"""A fleet of lanes each of whose requests end in a way of their own, and what every face says of each lane."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.clock import SYSTEM_CLOCK
from tests.e2e.fleet import Home
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

FLEET, OBJECTIVE = "scripts", 0.95
SOURCES = Path(__file__).parents[1] / "engines"
ENTRY_POINTS = "[fleetctl.engine]\nscripted = scripted_engine:ScriptedEngine\n"
# lane -> what its engine does in turn; docs/verdicts.md says how each ending counts.
SCRIPTS = {
    "good": "good",
    "refused": "busy,busy,busy,busy,good",
    "uneven": "long,long,long,long,uneven",  # 4 of 416 gaps are late: within a P99, and in a fifth of the answers
    "late": "late",
    "cut": "cut",
    "left": "slowly",
    "idle": "good",
    "few": "good",
    "empty": "empty",
    "failing": "fail",
    "failing-later": "fail_later,good",
    "choiceless": "no_choice,whole_error",
    "allowed": "busy,good,good,good,good",  # a fifth is refused, and may be
    "over-allowed": "busy,busy,busy,busy,good",  # a fifth may be
}
SHED = {"allowed": 0.2, "over-allowed": 0.2}  # of their requests may be refused
_HEAD = f"""\
apiVersion: fleetctl/v1
name: {FLEET}
model: {{{{id: meta-llama/Llama-3.1-8B-Instruct, served_name: m}}}}
engine: scripted
provider: local
workload: {{{{peak_rps: 20, prompt_tokens: {{{{p50: 20, p99: 40}}}}, output_tokens: {{{{p50: 10, p99: 20}}}}}}}}
slo: {{{{objective: {OBJECTIVE:.0%}, window: 7d}}}}
capacity: {{{{gpus: [L40S], max_nodes: 20}}}}
control: {{{{mode: shadow}}}}
gateway: {{{{port: {{port}}}}}}
lanes:
"""
_LANE = """\
  {name}:
    {match}
    slo: {{ttft: {{p99: 2s}}, itl: {{p99: 500ms}}, shed: {shed}}}
    max_wait: 1900ms
    replicas: 1
    spot: none
    lends: false
    launch: {{env: {{ENDINGS: "{script}"}}}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a face says of a lane's requests."""

    good: int
    bad: int
    kinds: dict[str, int]

    @property
    def attainment(self) -> float | None:
        """Return good of offered."""
        return self.good / (self.good + self.bad) if self.good + self.bad else None


class ScriptedFleet:
    """Brought up and asked in directories of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.port = root, free_port()
        site = root / "site"
        for package in ("acme", "scripted"):
            shutil.copytree(SOURCES / package, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        named = site / "scripted_engine-1.0.dist-info"
        named.mkdir()
        (named / "METADATA").write_text("Metadata-Version: 2.1\nName: scripted-engine\nVersion: 1.0\n")
        (named / "entry_points.txt").write_text(ENTRY_POINTS)
        self.home = Home(root=root, env={"PYTHONPATH": str(site)})

    def up(self) -> None:
        """Bring it up."""
        profile = self.root / "scripts.yaml"
        lanes = "".join(
            _LANE.format(name=name, script=script, match=_match(number), shed=SHED.get(name, 0.0))
            for number, (name, script) in enumerate(SCRIPTS.items())
        )
        profile.write_text(_HEAD.format(port=self.port) + lanes)
        self.home.fleetctl("up", str(profile), "-y", "-q", timeout_s=120)

    def trace(self, rows: dict[str, int], *, over_s: float, whole: tuple[str, ...] = ()) -> Path:
        """Write a trace with so many requests of each lane, evenly spread; those of `whole` do not stream."""
        path = self.root / "trace.csv"
        found = sorted((over_s * number / count, lane) for lane, count in rows.items() for number in range(count))
        lines = [f"{at_s:.3f},20,10,{lane},{str(lane not in whole).lower()}" for at_s, lane in found]
        path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,lane,stream", *lines, ""]))
        return path

    @contextmanager
    def recording(self) -> Iterator[Path]:
        """Record meanwhile; the file is whole once this is over."""
        path = self.root / "recording.jsonl.gz"
        process = self.home.start("record", FLEET, "-o", str(path), "-q")
        try:
            until(lambda: path.exists() and path.stat().st_size > 0, "the recording begins")
            yield path
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)

    def load(self, trace: Path, *more: str) -> tuple[int, dict[str, Any]]:
        """Send it; return the exit code and the report."""
        ran = self.home.run("load", FLEET, "--trace", str(trace), "-q", "-o", "json", *more, timeout_s=90)
        return ran.code, json.loads(ran.out)

    @contextmanager
    def leaving(self, lane: str, count: int, *, after_s: float) -> Iterator[None]:
        """Have so many clients beside ask this lane and go away before anything comes."""
        threads = [threading.Thread(target=self._leave, args=(lane, after_s)) for _ in range(count)]
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join()

    def _leave(self, lane: str, after_s: float) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "stream": True}
        headers = {"x-fleetctl-lane": lane, "content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        SYSTEM_CLOCK.sleep_blocking(after_s)
        connection.close()

    # Faces.

    def metrics(self) -> str:
        """Return the gateway's /metrics."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
        connection.close()
        return page

    def down(self) -> list[str]:
        """Take it down; return what was left, which is then killed."""
        self.home.fleetctl("down", FLEET, "-y", timeout_s=120)
        return self.home.kill_everything()


def _match(number: int) -> str:
    """Return which requests enter the lane of this number that name none: some have to, and the last takes all that are left."""
    return f'match: {{uncached_prompt_tokens: "< {512 * (number + 1)}"}}' if number < len(SCRIPTS) - 1 else "match: {}"


def sample(page: str, name: str, **labels: str) -> dict[str, float]:
    """Return the samples of a series that have these labels, by their other labels' values."""
    found = {}
    for line in page.splitlines():
        read = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if read is not None:
            own = dict(re.findall(r'(\w+)="([^"]*)"', read[1] or ""))
            if all(own.get(key) == value for key, value in labels.items()):
                rest = [value for key, value in sorted(own.items()) if key not in labels and key != "fleet"]
                found["/".join(rest)] = float(read[2])
    return found


@contextmanager
def scripted_fleet() -> Iterator[ScriptedFleet]:
    """Yield such a fleet, up; take it down and leave nothing."""
    # A socket's path holds 108 bytes; pytest's own temporary directories are too deep for that.
    root = Path(tempfile.mkdtemp(prefix="fs-"))
    fleet = ScriptedFleet(root)
    try:
        fleet.up()
        yield fleet
        assert fleet.down() == []
    finally:
        fleet.home.kill_everything()
        shutil.rmtree(root, ignore_errors=True)
