"""Many orders on a cloud that loses replies, while the processes of the fleet are killed: what became of every order.

python -m tests.aws.slots --slots 300 --kills 40 --lag 45    a table; it takes some minutes
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from fleetctl.clock import SYSTEM_CLOCK
from tests.aws.cloud.client import Cloud, running_cloud
from tests.e2e.fleet import Home, live_replicas
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

FLEET = "slots"
LIVE = ("pending", "running")
PROFILE = """
apiVersion: fleetctl/v1
name: slots
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
provider: aws
workload:
  peak_rps: 1
  prompt_tokens: {p50: 300, p99: 2000}
  output_tokens: {p50: 32, p99: 100}
lanes:
  chat:
    slo: {ttft: {p99: 2s}, itl: {p99: 90ms}}
    max_wait: 10s
    replicas: {min: SLOTS, max: SLOTS}
    spot: all
capacity: {gpus: [L40S], max_nodes: CAP}
control: {start_timeout: 2h}
gateway: {host: 127.0.0.1, port: PORT}
"""
# By action: what befalls so many of its calls.
FAULTS: tuple[tuple[str, str, float], ...] = (
    ("CreateFleet", "cut-after", 0.08),
    ("CreateFleet", "cut-before", 0.05),
    ("CreateFleet", "throttle", 0.10),
    ("TerminateInstances", "cut-after", 0.08),
    ("TerminateInstances", "throttle", 0.05),
    ("DescribeInstances", "throttle", 0.05),
)
_POLL_S = 1.0


@dataclass
class Ordeal:
    """One fleet's life on a cloud, and what was counted."""

    cloud: Cloud
    home: Home
    slots: int
    dice: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    living_most: int = 0

    @property
    def cap(self) -> int:
        return self.slots + max(2, self.slots // 10)

    def up(self) -> None:
        """Say what is wanted; the controller does the rest."""
        profile = self.home.root / "slots.yaml"
        text = PROFILE.replace("SLOTS", str(self.slots)).replace("CAP", str(self.cap))
        profile.write_text(text.replace("PORT", str(free_port())))
        self.home.fleetctl("up", str(profile), "--yes", "--detach", timeout_s=240)

    def afflict(self) -> None:
        """Set the faults: each of those that befall launches strikes one of the first for certain, whatever the dice say."""
        certain: list[dict[str, Any]] = []
        drawn: list[dict[str, Any]] = []
        for action, kind, probability in FAULTS:
            wanted: dict[str, Any] = {"kind": kind, "action": action}
            if kind == "throttle":
                wanted |= {"kind": "error", "code": "RequestLimitExceeded", "status": 503}
            if action == "CreateFleet":
                certain.append(wanted | {"times": 1})
            drawn.append(wanted | {"times": None, "probability": probability})
        for each in (*certain, *drawn):
            self.cloud.fault(**each)

    def kill(self) -> None:
        """Kill one process of the fleet, or a command in the middle of what it does."""
        what = self.dice.choice(("controller", "controller", "gateway", "command", "rival"))
        if what in ("controller", "gateway"):
            for process in self._processes(f"fleetctl.{what}"):
                with contextlib.suppress(psutil.Error):
                    process.kill()
                    self.kills[what] += 1
        elif what == "command":
            with self.home.start("up", str(self.home.root / "slots.yaml"), "--yes", "--detach") as command:
                SYSTEM_CLOCK.sleep_blocking(self.dice.uniform(0.2, 2.0))
                command.kill()
            self.kills[what] += 1
        else:
            # A second controller beside the first, and the first killed under it.
            argv = [sys.executable, "-m", "fleetctl.controller", FLEET]
            with subprocess.Popen(
                argv, env=self.home.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as rival:
                for process in self._processes("fleetctl.controller"):
                    with contextlib.suppress(psutil.Error):
                        process.kill()
                SYSTEM_CLOCK.sleep_blocking(self.dice.uniform(0.5, 3.0))
                rival.kill()
            self.kills[what] += 1

    def watch(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds, counting what lives meanwhile; return whether it came to hold."""
        deadline_s = SYSTEM_CLOCK.monotonic_s() + seconds
        while SYSTEM_CLOCK.monotonic_s() < deadline_s:
            self.count()
            if holds():
                return True
            SYSTEM_CLOCK.sleep_blocking(_POLL_S)
        return False

    def watch_launches(self, launched: int, seconds: float) -> None:
        """Wait until so many instances were launched in all, or for so long."""
        self.watch(lambda: len(self.cloud.instances()) >= launched, seconds)

    def count(self) -> int:
        living = len(self.cloud.instances(*LIVE))
        self.living_most = max(self.living_most, living)
        return living

    def unknown(self) -> list[str]:
        """Return the living instances that no record of the fleet knows."""
        known = {row.record.node_id for row in live_replicas(self.home.status(FLEET))}
        return [each["id"] for each in self.cloud.instances(*LIVE) if each["id"] not in known]

    def doubles(self) -> list[str]:
        """Return the intents and replicas that ever had, or have, more than one instance."""
        ever = Counter(each["tags"].get("fleetctl:intent", each["id"]) for each in self.cloud.instances())
        now = Counter(each["tags"].get("fleetctl:replica", each["id"]) for each in self.cloud.instances(*LIVE))
        return [name for counts in (ever, now) for name, count in counts.items() if count > 1]

    def _processes(self, module: str) -> list[psutil.Process]:
        found = []
        for process in self.home.processes():
            with contextlib.suppress(psutil.Error):
                if module in process.cmdline():
                    found.append(process)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of an ordeal's orders."""

    slots: int
    reached: int  # instances that lived at the same time once all was quiet
    living_most: int
    cap: int
    launched: int
    kills: dict[str, int]
    faults: dict[str, int]
    unknown: list[str]
    doubles: list[str]
    is_down: bool
    left: int  # instances after `down`

    def rows(self) -> list[tuple[str, str]]:
        return [
            ("slots wanted / reached", f"{self.slots} / {self.reached}"),
            ("most living at once / cap", f"{self.living_most} / {self.cap}"),
            ("instances ever launched", str(self.launched)),
            ("kills", ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items()))),
            ("faults met", ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))),
            ("orphans", str(len(self.unknown))),
            ("doubles", str(len(self.doubles))),
            ("left after down", f"{self.left}{'' if self.is_down else ' (down did not end)'}"),
        ]


def run_ordeal(*, slots: int, kills: int, lag_s: float, seed: int, patience_s: float) -> Verdict:
    """Bring a fleet up under kills and faults, let it come to rest, take it down, and judge."""
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    with running_cloud("--seed", str(seed)) as cloud:
        settings = {"FLEETCTL_AWS_IMAGE": "example.com/emulator:1", "FLEETCTL_AWS_GATEWAY_SOURCE": "172.31.0.1/32"}
        home = Home(root=root, env={**cloud.environment, **settings})
        ordeal = Ordeal(cloud, home, slots, random.Random(seed))
        try:
            return _judged(ordeal, kills=kills, lag_s=lag_s, patience_s=patience_s)
        finally:
            home.run("down", FLEET, "--yes")
            home.kill_everything()
            shutil.rmtree(root, ignore_errors=True)


def _judged(ordeal: Ordeal, *, kills: int, lag_s: float, patience_s: float) -> Verdict:
    cloud = ordeal.cloud
    cloud.behave(lag_s=lag_s)
    ordeal.afflict()
    ordeal.up()
    # Spread over the launches, and the faults last until all have been made: after them there is nothing to lose.
    for number in range(kills):
        ordeal.watch_launches(ordeal.slots * number // kills, patience_s / kills)
        ordeal.watch(lambda: False, ordeal.dice.uniform(0.5, 4.0))
        ordeal.kill()
    ordeal.watch_launches(ordeal.slots, patience_s)
    faults = Counter(each["fault"] for each in cloud.calls() if each["fault"])
    cloud.clear_faults()
    ordeal.home.run("up", str(ordeal.home.root / "slots.yaml"), "--yes", "--detach")
    ordeal.watch(lambda: ordeal.count() == ordeal.slots and not ordeal.unknown(), patience_s)
    reached, unknown, doubles = ordeal.count(), ordeal.unknown(), ordeal.doubles()
    down = ordeal.home.run("down", FLEET, "--yes", timeout_s=patience_s + lag_s + 120)
    ordeal.watch(lambda: ordeal.count() == 0, patience_s)
    return Verdict(
        slots=ordeal.slots, reached=reached, living_most=ordeal.living_most, cap=ordeal.cap,
        launched=len(cloud.instances()), kills=dict(ordeal.kills), faults=dict(faults),
        unknown=unknown, doubles=doubles, is_down=down.code == 0, left=ordeal.count(),
    )  # fmt: skip


def main() -> int:
    """Print the table; return 1 if an order was lost or doubled, or a cap passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.aws.slots", description=__doc__)
    parser.add_argument("--slots", type=int, default=300)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--lag", type=float, default=45.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=float, default=400.0)
    options = parser.parse_args()
    verdict = run_ordeal(
        slots=options.slots, kills=options.kills, lag_s=options.lag, seed=options.seed, patience_s=options.patience
    )
    sys.stdout.write("".join(f"{name:28} {value}\n" for name, value in verdict.rows()))
    is_kept = not verdict.unknown and not verdict.doubles and verdict.is_down and not verdict.left
    return 0 if is_kept and verdict.living_most <= verdict.cap and verdict.reached == verdict.slots else 1


if __name__ == "__main__":
    sys.exit(main())
