"""What a fleet that is placed in a cluster asks of the API server: python -m tests.bench.kubernetes_host [--replicas 4] [--minutes 2].

A real control plane and the tests' kubelet; controller, gateways and engines are its pods, the state is in ConfigMaps. Needs root.
Every call of the controller's ServiceAccount is counted in the audit log: while the fleet comes up and is
scaled, at rest with nobody looking and with one `fleetctl status` every five seconds, and through `down`.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from tests.kube.assets import control_plane_assets
from tests.kube.audit import audit_options, calls_logged
from tests.kube.cluster import running_cluster
from tests.kube.placed_fleet import placed_fleet
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.placed_fleet import PlacedFleet

_ACCOUNT = "system:serviceaccount:{namespace}:chat-fleetctl"
_LOGGED_WITHIN_S = 2.0  # the audit log is written in batches
_LOOK_EVERY_S = 5.0
_SHOWN = 8


@contextmanager
def counted(log: Path, what: str) -> Iterator[None]:
    """Print the calls of this part, a minute."""
    before, began_s = calls_logged(log), SYSTEM_CLOCK.monotonic_s()
    yield
    minutes = (SYSTEM_CLOCK.monotonic_s() - began_s) / 60
    SYSTEM_CLOCK.sleep_blocking(_LOGGED_WITHIN_S)
    made = calls_logged(log) - before
    kinds = ", ".join(f"{count / minutes:.0f} {kind}" for kind, count in made.most_common(_SHOWN))
    print(f"| {what} | {60 * minutes:.0f} s | {made.total() / minutes:.0f} | {kinds} |", flush=True)


def watch(fleet: PlacedFleet, seconds: float) -> None:
    end_s = SYSTEM_CLOCK.monotonic_s() + seconds
    while SYSTEM_CLOCK.monotonic_s() < end_s:
        assert fleet.laptop.status("chat").controller_alive
        SYSTEM_CLOCK.sleep_blocking(_LOOK_EVERY_S)


def main() -> None:
    """Play all parts on one fleet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=2.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="audit-") as directory:
        log = Path(directory) / "audit.log"
        user = _ACCOUNT.format(namespace="placed-1")
        with running_cluster(control_plane_assets(), *audit_options(user, log)) as cluster:
            cluster.node("gpus", gpus=4 * given.replicas)
            with placed_fleet(cluster) as fleet:
                assert fleet.namespace == "placed-1"
                play(fleet, log, given.replicas, 60 * given.minutes)


def play(fleet: PlacedFleet, log: Path, replicas: int, seconds: float) -> None:
    fleet.write_profile(("max_nodes: 4", f"max_nodes: {3 * replicas}"), ("min: 1, max: 3", f"min: 1, max: {replicas}"))
    print("| what | lasted | calls a minute | of them |\n|---|---|---|---|", flush=True)
    with counted(log, "up, one replica"):
        fleet.laptop.fleetctl("up", str(fleet.profile), "--yes", timeout_s=240)
    with counted(log, f"scaled to {replicas}"):
        fleet.laptop.fleetctl("scale", f"short={replicas}", "-f", "chat")
        until(lambda: fleet.laptop.status("chat").lanes[0].ready == replicas, "all are ready", within_s=240)
    with counted(log, f"at rest, {replicas} replicas"):
        SYSTEM_CLOCK.sleep_blocking(seconds)
    with counted(log, "at rest, one `status` every 5 s"):
        watch(fleet, seconds)
    with counted(log, "down"):
        fleet.laptop.fleetctl("down", "chat", "--yes", timeout_s=240)


if __name__ == "__main__":
    main()
