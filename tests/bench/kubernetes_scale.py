"""What a large fleet costs on a cluster: python -m tests.bench.kubernetes_scale [--replicas 200] [--nodes 300] [--taken 50].

A real control plane, nodes and pods played by kwok, and `up` as people run it. kwok's pods run nothing: their network is made
local to this machine, where each probe is answered as one emulated engine has answered the first of its kind. Needs root, and kwok with its stages.yaml
beside the control plane in KUBEBUILDER_ASSETS. The fleet's own calls are counted in the API server's audit log, by its service account.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml
from kubernetes import client, config

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.operations.planning import NO_PROOF
from tests.e2e.fleet import Home, live_replicas
from tests.kube.assets import control_plane_assets
from tests.kube.audit import audit_options, calls_logged
from tests.kube.containers import base_environment
from tests.kube.control_plane import ControlPlane
from tests.kube.processes import start
from tests.ports import free_port

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

NETWORK = "10.244.0.0/16"
_LOOK_S = 5.0  # a look at a thousand replicas is a process of a second
NAMESPACE, FLEET = "llm", "wide"
AUDIT_LOG = "audit.log"
PROFILE = """
apiVersion: fleetctl/v1
name: wide
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: STARTUP}
provider: kubernetes
workload:
  peak_rps: 3
  prompt_tokens: {p50: 300, p99: 2000}
  output_tokens: {p50: 64, p99: 200}
lanes:
  all:
    slo: {ttft: {p99: 3s}, itl: {p99: 90ms}}
    max_wait: 10s
    replicas: {min: REPLICAS, max: LIMIT}
    spot: all
capacity: {gpus: [L40S], max_nodes: LIMIT}
control: {rollout: {canary: 1%, bake: 5s, max_surge: 20%}}
gateway: {host: 127.0.0.1, port: PORT}
"""


@dataclass
class Bench:
    """A cluster with a fleet on it."""

    api: Any
    kubeconfig: Path
    home: Home
    engines: dict[int, list[subprocess.Popen[bytes]]]

    @property
    def core(self) -> Any:
        return client.CoreV1Api(self.api)

    def calls(self) -> Counter[str]:
        """Return how many requests of the fleet's own the API server has answered."""
        return calls_logged(self.kubeconfig.parent / AUDIT_LOG)

    def play_engines(self) -> None:
        """Have each port answered that pods have and nobody answers on yet: probes as one emulated engine has answered them."""
        for pod in self.core.list_namespaced_pod(NAMESPACE, limit=20).items:
            (container,) = pod.spec.containers
            port = container.ports[0].container_port
            if port not in self.engines:
                own = free_port()
                words = [
                    word.replace("$(POD_IP)", "127.0.0.1")
                    for word in (*(container.command or ()), *(container.args or ()))
                ]
                values = {each.name: each.value for each in container.env or [] if each.value}
                surroundings = {**os.environ, **base_environment(os.environ["HOME"]), **values, "POD_IP": "127.0.0.1"}
                self.engines[port] = [
                    subprocess.Popen([str(own) if word == str(port) else word for word in words], env=surroundings),
                    subprocess.Popen([sys.executable, "-m", "tests.bench.probe_answers", str(port), str(own)]),
                ]

    def ready(self) -> dict[str, str]:
        """Return the ready replicas of the fleet and the node of each."""
        rows = live_replicas(self.home.status(FLEET))
        names = {row.record.id for row in rows if row.record.state.value == "ready"}
        pods = self.core.list_namespaced_pod(NAMESPACE, resource_version="0").items
        at = {pod.metadata.labels.get("fleetctl.dev/replica", ""): pod.spec.node_name for pod in pods}
        return {name: at.get(name, "") for name in names}

    def controller(self) -> psutil.Process:
        return next(each for each in self.home.processes() if "fleetctl.controller" in each.cmdline())


async def control_plane(directory: Path) -> ControlPlane:
    options = audit_options(f"system:serviceaccount:{NAMESPACE}:operator", directory / AUDIT_LOG)
    plane = ControlPlane(control_plane_assets(), directory, "127.0.0.1", api_server_options=options)
    await plane.start()
    await start(
        plane.assets / "kwok", "--kubeconfig", str(plane.kubeconfig), "--config", str(plane.assets / "stages.yaml"),
        "--manage-all-nodes=true", "--node-lease-duration-seconds=40", f"--cidr={NETWORK}", "--node-ip=10.0.0.1",
        log=directory / "kwok.log", directory=directory,
    )  # fmt: skip
    return plane


@contextmanager
def local_network() -> Iterator[None]:
    subprocess.run(["ip", "route", "add", "local", NETWORK, "dev", "lo"], check=True)  # noqa: S607
    try:
        yield
    finally:
        subprocess.run(["ip", "route", "del", "local", NETWORK, "dev", "lo"], check=False)  # noqa: S607


def prepare(api: Any, nodes: int, kubeconfig: Path, own: Path) -> None:
    core = client.CoreV1Api(api)
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    for number in range(nodes):
        name = f"node-{number}"
        labels = {
            "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "zone-a",
            "nvidia.com/gpu.product": "NVIDIA-L40S", "karpenter.sh/capacity-type": "spot",
        }  # fmt: skip
        status = {"capacity": capacity, "allocatable": capacity}
        core.create_node({"metadata": {"name": name, "labels": labels}, "status": status})
    core.create_namespace({"metadata": {"name": NAMESPACE}})
    core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": "operator"}})
    client.RbacAuthorizationV1Api(api).create_cluster_role_binding(
        {
            "metadata": {"name": "operator"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": NAMESPACE}],
        }
    )
    token = core.create_namespaced_service_account_token("operator", NAMESPACE, {"spec": {"expirationSeconds": 36000}})
    written = yaml.safe_load(kubeconfig.read_text())
    written["users"][0]["user"] = {"token": token.status.token}
    own.write_text(yaml.safe_dump(written))


def measured(bench: Bench, what: str, is_done: Callable[[dict[str, str]], bool] | None, *, within_s: float) -> None:
    """Print how long something takes, or for None what that long costs, and what it costs meanwhile."""
    began_s, calls, spent = SYSTEM_CLOCK.monotonic_s(), bench.calls(), -1.0
    passed_s, ready = 0.0, {}
    while passed_s < within_s:
        bench.play_engines()
        if spent < 0 and (running := [p for p in bench.home.processes() if "fleetctl.controller" in p.cmdline()]):
            spent = sum(running[0].cpu_times()[:2])
        ready = bench.ready() if spent >= 0 else {}
        passed_s = SYSTEM_CLOCK.monotonic_s() - began_s
        if is_done is not None and is_done(ready):
            break
        SYSTEM_CLOCK.sleep_blocking(_LOOK_S)
    controller = bench.controller()
    cpu = (sum(controller.cpu_times()[:2]) - max(spent, 0.0)) / passed_s
    rss, made = controller.memory_info().rss / 2**20, bench.calls() - calls
    rate = made.total() / passed_s * 60
    done = "" if is_done is None else "done" if is_done(ready) else f"not reached: {len(ready)} ready"
    verbs = ", ".join(f"{count / passed_s * 60:.0f} {name}" for name, count in made.most_common(6))
    print(
        f"| {what} | {done} | {passed_s:.0f} s | {rate:.0f} ({verbs}) | {100 * cpu:.0f} % | {rss:.0f} MiB |", flush=True
    )


def play(bench: Bench, options: argparse.Namespace, profile: Path) -> None:
    print("| what | | after | API calls/min | controller's CPU | RSS |\n|---|---|---|---|---|---|", flush=True)
    bench.home.fleetctl("up", str(profile), "--yes", "--detach", timeout_s=300)
    measured(
        bench, f"up, {options.replicas} replicas", lambda ready: len(ready) >= options.replicas, within_s=options.within
    )
    measured(bench, "nothing changes", None, within_s=options.idle)
    before = bench.ready().keys()
    profile.write_text(profile.read_text().replace("startup: 100ms", "startup: 110ms"))
    bench.home.fleetctl("up", str(profile), "--yes", "--detach", timeout_s=300)

    def is_rolled(ready: dict[str, str]) -> bool:
        return len(ready) >= int(options.replicas) and not before & ready.keys()

    measured(bench, "a rolling change of all", is_rolled, within_s=options.within)
    held = sorted({node for node in bench.ready().values() if node})[: options.taken]
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    for name in held:
        bench.core.patch_node(name, {"spec": {"taints": [taint]}})

    def elsewhere(ready: dict[str, str]) -> bool:
        return len([node for node in ready.values() if node and node not in held]) >= int(options.replicas)

    measured(bench, f"{len(held)} spot nodes taken", elsewhere, within_s=options.within)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--taken", type=int, default=50)
    parser.add_argument("--within", type=float, default=600.0, help="seconds for each part")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds in which nothing changes")
    parser.add_argument(
        "--keep", action="store_true", help="leave logs and state where they are, and say where that is"
    )
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="fk-"))
    loop = asyncio.new_event_loop()
    engines: dict[int, list[subprocess.Popen[bytes]]] = {}
    with local_network():
        plane = loop.run_until_complete(control_plane(root))
        with config.new_client_from_config(str(plane.kubeconfig)) as api:
            own = root / "own"
            prepare(api, options.nodes, plane.kubeconfig, own)
            variables = {
                "KUBECONFIG": str(own), "FLEETCTL_KUBE_NAMESPACE": NAMESPACE, "FLEETCTL_KUBE_IMAGE": "any:1",
                NO_PROOF: "1",  # how long a plan of so many is simulated is no matter of the cluster's
            }  # fmt: skip
            home = Home(root=root, env=variables)
            profile = root / "wide.yaml"
            replicas = str(options.replicas)
            limit = str(max(options.replicas + 8 * options.taken, 6 * options.replicas // 5))
            text = PROFILE.replace("STARTUP", "100ms").replace("REPLICAS", replicas).replace("LIMIT", limit)
            profile.write_text(text.replace("PORT", str(free_port())))
            try:
                play(Bench(api, plane.kubeconfig, home, engines), options, profile)
            finally:
                home.kill_everything()
                for each in psutil.Process().children(recursive=True):
                    each.kill()
                if options.keep:
                    print(f"logs and state: {root}", flush=True)
                else:
                    shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
