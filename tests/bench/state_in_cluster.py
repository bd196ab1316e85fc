"""Count what a controller asks of an API server that keeps its state: calls and KB a minute, while a fleet starts and at rest.

    KUBEBUILDER_ASSETS=... python -m tests.bench.state_in_cluster --replicas 4 300 --minutes 10

The controller, its decisions and its writes are the product's; the provider, the engines and the gateway are the shipped
fakes, on virtual time; the API server and etcd are real. Prints a line for the first three minutes, in which the replicas
are ordered, start and become ready, and one for the minutes after, with no request. Bytes are of bodies, base64 included.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fleetctl.controller.store_access import InlineAccess
from fleetctl.controller.write_behind import WriteBehindStore
from fleetctl.model.profile import CapacitySpec, ReplicaBounds
from fleetctl.model.replica import ReplicaState
from fleetctl.ports.lease import LeaseHolder
from fleetctl.state.shared import SharedStore
from fleetctl.testing import samples
from fleetctl.testing.samples import EPOCH
from fleetctl.testing.virtual_time import run_virtual
from fleetctl_kubernetes.state_objects import ConfigMapObjects, open_config_maps
from tests.controller.rig import FLEET, Rig
from tests.kube.api_server import ApiServer, running_api_server
from tests.kube.assets import api_server_assets

if TYPE_CHECKING:
    from collections.abc import Callable

_START_S = 180.0


class Counted:
    """Counts calls and bytes by method and kind, in the place of a connection's `request`."""

    def __init__(self, request: Callable[..., Any]) -> None:
        self._request = request
        self.calls: Counter[str] = Counter()
        self.sent, self.received = 0, 0

    def __call__(self, method: str, path: str, *, body: object = None, **options: Any) -> Any:
        kind = next(each for each in ("leases", "configmaps") if f"/{each}" in path)
        self.calls[f"{method} {kind}"] += 1
        self.sent += len(msgspec.json.encode(body)) if body is not None else 0
        answer = self._request(method, path, body=body, **options)
        self.received += len(msgspec.json.encode(answer))
        return answer


def main() -> None:
    """Run each size on a prefix of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[4, 300])
    parser.add_argument("--minutes", type=float, default=10.0, help="at rest, of virtual time")
    options = parser.parse_args()
    with running_api_server(api_server_assets()) as server:
        os.environ["KUBECONFIG"] = str(server.kubeconfig)
        server.core.create_namespace({"metadata": {"name": "bench"}})
        for count in options.replicas:
            measure(server, count, options.minutes)


def measure(server: ApiServer, count: int, minutes: float) -> None:
    """Print what one fleet of so many replicas asks for."""
    home = Path(tempfile.mkdtemp(prefix="sc-"))
    os.environ["XDG_STATE_HOME"] = str(home)
    objects = open_config_maps(f"/bench/n{count}", 30.0)
    counted = Counted(objects._connection.request)
    objects._connection.request = counted  # type: ignore[method-assign]  # counted
    run_virtual(_kept(objects, counted, home, count, minutes))
    named = server.core.list_namespaced_config_map("bench", label_selector=f"fleetctl.dev/state=n{count}").items
    stored = sum(len(each.binary_data["object"]) for each in named) * 3 // 4
    print(f"{count} replicas: {len(named)} ConfigMaps, {stored / 1e3:.0f} KB, the largest of "
          f"{max(len(each.binary_data['object']) for each in named) * 3 // 4 / 1e3:.0f} KB", flush=True)  # fmt: skip


async def _kept(objects: ConfigMapObjects, counted: Counted, home: Path, count: int, minutes: float) -> None:
    rig = Rig(home)
    store = SharedStore(objects)
    profile = samples.profile(FLEET)
    lanes = tuple(replace(lane, replicas=ReplicaBounds(min=count // 2, max=count)) for lane in profile.lanes)
    plan = samples.plan(FLEET)
    planned = tuple(replace(lane, replicas=count // 2, on_demand=count // 2, spot=0) for lane in plan.lanes)
    store.put_fleet(
        replace(profile, lanes=lanes, capacity=CapacitySpec(max_nodes=count)), replace(plan, lanes=planned), now=EPOCH
    )
    holder = LeaseHolder(pid=1, host="bench", boot_id="b", started_at=EPOCH)
    leased = store.under(store.acquire_lease(FLEET, holder, now=EPOCH))
    rig.world = replace(rig.world, store=WriteBehindStore(InlineAccess(leased), FLEET, rig.clock))
    rig.engines.owner = store.owner
    async with rig.controller() as controller:
        for what, seconds in (("start", _START_S), ("rest", 60 * minutes)):
            counted.calls.clear()
            counted.sent = counted.received = 0
            await rig.clock.sleep(seconds)
            ready = sum(each.state is ReplicaState.READY for each in store.replicas(FLEET))
            shown = ", ".join(f"{n * 60 / seconds:.0f} {kind}" for kind, n in sorted(counted.calls.items()))
            print(
                f"{count} replicas, {what}: {ready} ready; a minute {sum(counted.calls.values()) * 60 / seconds:.0f} calls ({shown}), "
                f"{counted.sent * 60 / seconds / 1e3:.0f} KB sent, {counted.received * 60 / seconds / 1e3:.0f} KB received",
                flush=True,
            )
        assert controller.status() is not None


if __name__ == "__main__":
    main()
