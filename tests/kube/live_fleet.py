"""A fleet on the tests' cluster with requests flowing through its gateway: what outages are tried on."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx
from kubernetes import client

from fleetctl.state.sqlite import SqliteStore
from fleetctl_kubernetes.settings import FLEET, OWNER, REPLICA, fleet_labels, selector
from tests.e2e.fleet import Home, live_replicas
from tests.kube.cluster import TestCluster
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.status import FleetStatus

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
_TOKENS = 40  # of an answer
_HOME = "default"  # the operators' namespace: theirs do not go with a fleet's
PROFILE = """
apiVersion: fleetctl/v1
name: NAME
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: emulator
emulator: {flavour: vllm, startup: 500ms, speed: 4}
provider: {kind: kubernetes, namespace: NAMESPACE, image: "tests/emulator:1"}
workload:
  peak_rps: 3
  prompt_tokens: {p50: 300, p99: 2000}
  output_tokens: {p50: 64, p99: 200}
lanes:
  all:
    slo: {ttft: {p99: 3s}, itl: {p99: 90ms}}
    max_wait: 30s
    replicas: {min: COUNT, max: COUNT}
    spot: MARKETS
capacity: {gpus: [L40S], on_demand: minimum, max_nodes: 16}
gateway: {host: 127.0.0.1, port: PORT}
"""


class Senders:
    """Threads that run until it is left."""

    def __init__(self, *threads: threading.Thread) -> None:
        self._over = threading.Event()
        self._threads = threads

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)


class Traffic(Senders):
    """Requests one after the other, from each client, until it is left; every other one is a stream.

    Of the lane that is named, else of the one that the gateway chooses.
    """

    def __init__(self, port: int, *, lane: str = "", clients: int = 3) -> None:
        super().__init__(*(threading.Thread(target=self._send) for _ in range(clients)))
        self.answered = 0
        self.failures: list[str] = []
        self._url = f"http://127.0.0.1:{port}/v1/chat/completions"
        self._headers = {"x-fleetctl-lane": lane} if lane else {}

    def _send(self) -> None:
        with httpx.Client(timeout=60) as sender:
            while not self._over.is_set():
                for is_stream in (False, True):
                    self._judge(sender, is_stream=is_stream)

    def _judge(self, sender: httpx.Client, *, is_stream: bool) -> None:
        body = {
            "model": MODEL, "messages": [{"role": "user", "content": "tell me something"}], "max_tokens": _TOKENS,
            "stream": is_stream, **({"stream_options": {"include_usage": True}} if is_stream else {}),
        }  # fmt: skip
        try:
            answer = sender.post(self._url, json=body, headers=self._headers)
        except httpx.HTTPError as exc:
            self.failures.append(repr(exc))
            return
        if answer.status_code == 200 and _completed(answer.text, is_stream=is_stream) == _TOKENS:
            self.answered += 1
        else:
            self.failures.append(f"{answer.status_code} {answer.headers} {answer.text[-400:]}")


def _completed(text: str, *, is_stream: bool) -> int:
    """Return how many tokens an answer has by its own count; 0: it is not whole."""
    if not is_stream:
        return int(json.loads(text)["usage"]["completion_tokens"])
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        return 0
    usage = json.loads(events[-2]).get("usage") or {}
    return int(usage.get("completion_tokens", 0))


@dataclass
class LiveFleet:
    """A fleet that is up, by a ServiceAccount's token of its own that can be taken away."""

    cluster: TestCluster
    home: Home
    name: str
    namespace: str
    port: int
    profile: Path
    replicas: int

    @property
    def token_file(self) -> Path:
        return self.home.root / "token"

    @cached_property
    def owner(self) -> str:
        """Whose the pods are: its store's."""
        here = list(self.home.root.rglob("state.db"))
        if not here:  # its state is in the cluster: the pods say it
            pods = self.cluster.core.list_namespaced_pod(self.namespace, label_selector=f"{FLEET}={self.name}").items
            return str(pods[0].metadata.labels[OWNER])
        (path,) = here
        store = SqliteStore(path)
        try:
            return store.owner
        finally:
            store.close()

    def status(self) -> FleetStatus:
        return self.home.status(self.name)

    def ready(self) -> set[str]:
        rows = live_replicas(self.status())
        return {row.record.id for row in rows if row.record.state.value == "ready"}

    def pods(self) -> dict[str, str]:
        """Return the replica of each pod of ours that is there, by the pod's uid, as the API server knows them."""
        chosen = selector(fleet_labels(self.owner, self.name))
        items = self.cluster.core.list_namespaced_pod(self.namespace, label_selector=chosen).items
        return {
            each.metadata.uid: each.metadata.labels[REPLICA] for each in items if not each.metadata.deletion_timestamp
        }

    def is_whole(self) -> bool:
        """Whether the replicas that are ready are as many as wanted, each with one pod, and there is no other pod."""
        status = self.status()
        ready = self.ready()
        pods = list(self.pods().values())
        return not status.reason and len(ready) == self.replicas and sorted(pods) == sorted(ready)

    def until_whole(self, what: str, *, within_s: float = 120.0) -> None:
        """Wait until it is whole; a failure shows the fleet's status and its pods."""
        try:
            until(self.is_whole, what, within_s=within_s)
        except AssertionError as exc:
            status = self.home.run("status", self.name).out
            raise AssertionError(f"{exc}\n{status}\n{self.pods()}\n{self.home.logs()}") from None

    def take_token_away(self) -> None:
        """End the token of now: it is bound to a Secret."""
        for each in self.cluster.core.list_namespaced_secret(_HOME).items:
            if each.metadata.name.startswith("token-") and each.metadata.name.endswith(f"-{self.port}"):
                self.cluster.core.delete_namespaced_secret(each.metadata.name, _HOME)

    def new_token(self) -> None:
        """Have the next calls made with a token that ends with a Secret."""
        core, name = self.cluster.core, f"token-{len(list(self.home.root.glob('token-*')))}-{self.port}"
        (self.home.root / name).touch()
        secret = core.create_namespaced_secret(_HOME, {"metadata": {"name": name}})
        bound = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": secret.metadata.uid}
        made = core.create_namespaced_service_account_token(
            f"operator-{self.namespace}", _HOME, {"spec": {"expirationSeconds": 36000, "boundObjectRef": bound}}
        )
        self.token_file.write_text(made.status.token)


@contextmanager
def live_fleet(
    cluster: TestCluster,
    name: str,
    *,
    namespace: str = "",
    replicas: int = 3,
    server: str = "",
    variables: dict[str, str] | None = None,
    names_namespace: bool = True,
    spot: str = "burst",
) -> Iterator[LiveFleet]:
    """Bring a fleet up, in a namespace of its name where none is named; take it down, and that namespace with it.

    Its calls go to `server` where one is named, which stands before the API server. Its profile names the namespace, or
    leaves that to the kubeconfig.
    """
    is_owned, namespace = not namespace, namespace or name
    root = Path(tempfile.mkdtemp(prefix="fo-"))
    port, profile = free_port(), root / "profile.yaml"
    if is_owned:
        cluster.namespace(name)
        _make_operator(cluster, name)
    home = Home(root=root, env={"KUBECONFIG": str(root / "kubeconfig"), **(variables or {})})
    settings = {"NAMESPACE": namespace, "NAME": name, "COUNT": str(replicas), "PORT": str(port), "MARKETS": spot}
    text = PROFILE
    if not names_namespace:
        text = text.replace("namespace: NAMESPACE, ", "")
    for key, value in settings.items():
        text = text.replace(key, value)
    profile.write_text(text)
    fleet = LiveFleet(cluster, home, name, namespace, port, profile, replicas)
    (root / "kubeconfig").write_text(_kubeconfig(cluster, fleet, server))
    fleet.new_token()
    try:
        home.fleetctl("up", str(profile), "--yes", timeout_s=240)
        fleet.until_whole("the fleet is up")
        yield fleet
    finally:
        home.run("down", name, "--yes")
        left = home.kill_everything()
        if is_owned and any(each.metadata.name == name for each in cluster.core.list_namespace().items):
            cluster.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
            cluster.core.delete_namespace(name)
        shutil.rmtree(root, ignore_errors=True)
    assert left == []


def _make_operator(cluster: TestCluster, namespace: str) -> None:
    name = f"operator-{namespace}"
    cluster.core.create_namespaced_service_account(_HOME, {"metadata": {"name": name}})
    roles = client.RbacAuthorizationV1Api(cluster.api)
    roles.create_cluster_role_binding(
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": _HOME}],
        }
    )


def _kubeconfig(cluster: TestCluster, fleet: LiveFleet, server: str) -> str:
    written: dict[str, Any] = json.loads(cluster.kubeconfig_to(server) if server else cluster.kubeconfig.read_text())
    written["users"][0]["user"] = {"tokenFile": str(fleet.token_file)}
    written["contexts"][0]["context"]["namespace"] = fleet.namespace
    return json.dumps(written)
