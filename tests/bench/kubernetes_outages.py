"""What becomes of a fleet's requests while its cluster's control plane fails: python -m tests.bench.kubernetes_outages [--only NAME].

A real control plane, the tests' kubelet with one engine a pod, `up` as people run it, three clients that send one request after
the other, and one fault after the other. Each row says how many were answered and how many failed from the fault until the
fleet was whole again, what `fleetctl status` reasons meanwhile, and how long after the fault's end it was whole.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from tests.kube.assets import control_plane_assets
from tests.kube.cluster import running_cluster
from tests.kube.live_fleet import Traffic, live_fleet
from tests.kube.outages import OUTAGES
from tests.waiting import until

if TYPE_CHECKING:
    from tests.kube.live_fleet import LiveFleet
    from tests.kube.outages import Outage

_WHOLE_WITHIN_S = 100.0


def play(fleet: LiveFleet, name: str, outage: Outage, lasts_s: float) -> None:
    with Traffic(fleet.port) as traffic:
        until(lambda: traffic.answered >= 5, "requests are answered")
        traffic.answered, reasons, before = 0, set[str](), fleet.pods()
        with outage(fleet):
            end_s = SYSTEM_CLOCK.monotonic_s() + lasts_s
            while SYSTEM_CLOCK.monotonic_s() < end_s:
                reasons.add(fleet.status().reason)
                SYSTEM_CLOCK.sleep_blocking(0.5)
        began_s = SYSTEM_CLOCK.monotonic_s()
        fleet.until_whole(f"{name}: the fleet is whole again", within_s=_WHOLE_WITHIN_S)
        took_s = SYSTEM_CLOCK.monotonic_s() - began_s
        answered = traffic.answered
        until(lambda: traffic.answered > answered + 5, "requests are answered")
    kept = len(before.keys() & fleet.pods().keys())
    print(
        f"| {name} | {lasts_s:.0f} s | {traffic.answered} | {len(traffic.failures)} | {took_s:.0f} s | {kept} of {len(before)} | "
        f"{'; '.join(sorted(each for each in reasons if each)) or 'nothing'} |",
        flush=True,
    )
    for each in traffic.failures[:3]:
        print(f"    {each}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(OUTAGES), action="append")
    parser.add_argument("--lasts", type=float, default=30.0, help="seconds of each fault")
    options = parser.parse_args()
    with running_cluster(control_plane_assets()) as cluster:
        for number in range(2):
            cluster.node(f"spot-{number}", labels={"karpenter.sh/capacity-type": "spot"})
            cluster.node(f"on-demand-{number}", labels={"karpenter.sh/capacity-type": "on-demand"})
        with live_fleet(cluster, "outages") as fleet:
            print("| fault | lasted | answered | failed | whole after | pods kept | `status` meanwhile |", flush=True)
            print("|---|---|---|---|---|---|---|", flush=True)
            for name in options.only or OUTAGES:
                play(fleet, name, OUTAGES[name], options.lasts)


if __name__ == "__main__":
    main()
