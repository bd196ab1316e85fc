"""The Kubernetes provider under kills, beside strangers, and with pods that end in their own ways."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ProviderError
from fleetctl.model.catalogue import Market
from fleetctl.model.node import ContainerLaunch, Node, NodeState, NoticeKind
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing.orders import create, listed
from fleetctl.testing.samples import node_request
from fleetctl_kubernetes.provider import KubernetesProvider
from fleetctl_kubernetes.settings import MANAGED_BY, MANAGER, ORDER, ClusterSettings, fleet_name, pod_name
from tests.kube.cluster import GPU, TestCluster
from tests.kube.pods import FAULT
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fleetctl.model.node import NodeRequest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

OWNER, FLEET = "owner-of-these-tests", "demo"
SPOT, ON_DEMAND = f"1x{GPU}/zone-a/spot", f"1x{GPU}/zone-a/on-demand"
# An engine that ends at nothing but SIGKILL.
STUBBORN = ("python3", "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)")

# As the controller does: open intents are resolved by their token first, then new replicas are begun, several at a time.
CREATOR = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.replica import ReplicaState
from fleetctl.ports.store import IntentState
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing.orders import create, listed
from fleetctl.testing.samples import node_request, replica
from fleetctl_kubernetes.provider import KubernetesProvider
from fleetctl_kubernetes.settings import ClusterSettings

async def begun(store, provider, owner, name):
    made = replica(f"r{store.next_replica_number('demo')}", lane=name, changed_at=SYSTEM_CLOCK.now())
    # No node is in this zone: what counts here are pods, not what runs in them.
    request = node_request(
        made.id, owner=owner, replica_id=made.id, argv=("sleep", "600"), offering="1xNVIDIA-L40S/nowhere/on-demand"
    )
    store.begin_replica(made, request, now=SYSTEM_CLOCK.now())
    print("next", flush=True)
    node = await create(provider, request)
    store.settle_intent(made.id, IntentState.DONE, replica=replace(made, node_id=node.id))

async def main(path, owner, wanted, name, kubeconfig, namespace):
    settings = ClusterSettings(kubeconfig=kubeconfig, namespace=namespace, image="tests/emulator:1")
    store, provider = SqliteStore(path), KubernetesProvider(settings=settings)
    for resource in provider.needed(owner=owner, fleet="demo"):
        await provider.prepare(resource)
    for intent in store.open_intents("demo"):
        (made,) = [r for r in store.replicas("demo") if r.id == intent.replica_id]
        if made.lane != name:
            continue
        found = [n for n in await listed(provider, owner=owner, fleet="demo") if n.token == intent.token]
        if not found:
            found = [await create(provider, intent.request)]  # by the same token
        store.settle_intent(intent.token, IntentState.DONE, replica=replace(made, node_id=found[0].id))
    while (missing := wanted - sum(r.state.is_live and r.lane == name for r in store.replicas("demo"))) > 0:
        await asyncio.gather(*(begun(store, provider, owner, name) for _ in range(min(4, missing))))
    print("done", flush=True)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:]))
"""


@dataclass
class Space:
    """A namespace of a test's own, and the provider in it."""

    cluster: TestCluster
    name: str

    def provider(self) -> KubernetesProvider:
        return KubernetesProvider(settings=self.settings)

    @property
    def settings(self) -> ClusterSettings:
        return ClusterSettings(kubeconfig=str(self.cluster.kubeconfig), namespace=self.name, image="tests/emulator:1")

    async def prepared(self) -> KubernetesProvider:
        provider = self.provider()
        for resource in provider.needed(owner=OWNER, fleet=FLEET):
            await provider.prepare(resource)
        return provider

    @property
    def policy(self) -> Any:
        return client.PolicyV1Api(self.cluster.api)

    def pod(self, token: str) -> Any:
        return self.cluster.core.read_namespaced_pod(pod_name(OWNER, token), self.name)

    def annotate(self, token: str, **annotations: str | None) -> None:
        body = {"metadata": {"annotations": annotations}}
        self.cluster.core.patch_namespaced_pod(pod_name(OWNER, token), self.name, body)


@pytest.fixture
def space(cluster: TestCluster, request: pytest.FixtureRequest) -> Iterator[Space]:
    name = cluster.namespace(f"p{abs(hash(request.node.nodeid)) % 10**8}")
    yield Space(cluster, name)
    cluster.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
    cluster.core.delete_namespace(name)


def order(token: str, **changes: Any) -> NodeRequest:
    base = {"owner": OWNER, "replica_id": "r1", "argv": ("sleep", "600"), "offering": ON_DEMAND, "port": 8000}
    return node_request(token, **{**base, **changes})


async def described(provider: KubernetesProvider, token: str, is_so: Callable[[Node], bool], what: str) -> Node:
    """Return an order's node once something is so."""
    end_s = SYSTEM_CLOCK.monotonic_s() + 150.0
    while (node := await provider.describe(token, owner=OWNER)) is None or not is_so(node):
        assert SYSTEM_CLOCK.monotonic_s() < end_s, f"not so: {what}; it is {node}"
        await SYSTEM_CLOCK.sleep(0.2)
    return node


def test_creators_killed_at_random_over_300_slots_leave_no_orphan_and_no_double(space: Space, tmp_path: Path) -> None:
    path, rng = tmp_path / "state.db", Random(7)
    SqliteStore(path).close()
    kills = 0
    wanted = {"short": 150, "long": 150}
    place = (str(space.cluster.kubeconfig), space.name)
    done: set[str] = set()
    while done != set(wanted):
        left = [name for name in wanted if name not in done]
        running = {
            name: subprocess.Popen(
                [sys.executable, "-c", CREATOR, str(path), OWNER, str(wanted[name]), name, *place],
                stdout=subprocess.PIPE, text=True,
            )
            for name in left
        }  # fmt: skip
        lines = [rng.randint(10, 60) for _ in running]
        # Each by a thread of its own: while one is read, the other would go on, and be done before it is killed.
        with ThreadPoolExecutor(len(running)) as readers:
            read = readers.map(_killed_after, running.values(), lines)
        for (name, creator), (printed, rest) in zip(running.items(), read, strict=True):
            kills += "done\n" not in printed
            assert creator.returncode in (0, -signal.SIGKILL)
            if "done\n" in printed or "done" in rest:
                done.add(name)
    assert kills >= 6
    store = SqliteStore(path)
    live = [replica for replica in store.replicas(FLEET) if replica.state.is_live]
    assert Counter(replica.lane for replica in live) == wanted
    assert store.open_intents(FLEET) == ()
    store.close()
    # Counted by the API server, and not by the provider.
    pods = space.cluster.core.list_namespaced_pod(space.name).items
    tokens = Counter(json.loads(pod.metadata.annotations[ORDER])["token"] for pod in pods)
    assert tokens == Counter(replica.id for replica in live)
    assert Counter(replica.node_id for replica in live) == Counter(pod.metadata.name for pod in pods)


def _killed_after(creator: subprocess.Popen[str], lines: int) -> tuple[list[str], str]:
    """Kill a creator once it has printed so many lines; return these, and what it had printed beside."""
    assert creator.stdout is not None
    printed = [creator.stdout.readline() for _ in range(lines)]
    creator.kill()
    rest, _ = creator.communicate(timeout=60)
    return printed, rest


def test_a_teardown_removes_every_object_of_ours_and_nothing_of_a_neighbours(space: Space) -> None:
    core, name = space.cluster.core, space.name
    labels = {MANAGED_BY: MANAGER}  # another store's, on the same cluster
    core.create_namespaced_config_map(name, {"metadata": {"name": "neighbour", "labels": labels}})
    core.create_namespaced_pod(
        name,
        {
            "metadata": {"name": "neighbour"},
            "spec": {"containers": [{"name": "c", "image": "tests/i:1", "command": ["sleep", "600"]}]},
        },
    )

    def left() -> set[str]:
        listings = (
            core.list_namespaced_pod, core.list_namespaced_config_map, core.list_namespaced_service_account,
            core.list_namespaced_service, space.policy.list_namespaced_pod_disruption_budget,
        )  # fmt: skip
        found = {item.metadata.name for listing in listings for item in listing(name).items}
        return found - {"default", "kube-root-ca.crt"}

    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("t-1", env={"HF_TOKEN": "file:/somewhere"}))
        await listed(provider, owner=OWNER, fleet=FLEET)
        assert (
            len(left()) == 4
        )  # of the pod, of what the fleet shares, of what stands around its lane; and the neighbour's
        await provider.stop("neighbour", grace_s=1)
        for resource in reversed(provider.needed(owner=OWNER, fleet=FLEET)):
            await provider.teardown(resource)

    asyncio.run(scenario())

    until(lambda: left() == {"neighbour"}, "only the neighbour's objects are left")
    assert core.read_namespaced_pod("neighbour", name).metadata.deletion_timestamp is None


def test_objects_of_our_names_that_are_somebody_elses_are_refused_and_left_as_they_are(space: Space) -> None:
    core, name = space.cluster.core, space.name
    core.create_namespaced_config_map(name, {"metadata": {"name": fleet_name(OWNER, FLEET)}, "data": {"theirs": "yes"}})
    container = {"name": "c", "image": "tests/i:1", "command": ["sleep", "600"]}
    core.create_namespaced_pod(
        name, {"metadata": {"name": pod_name(OWNER, "t-1")}, "spec": {"containers": [container]}}
    )

    async def scenario() -> None:
        with pytest.raises(ProviderError, match="somebody else's"):
            await space.prepared()
        provider = space.provider()
        for resource in provider.needed(owner=OWNER, fleet=FLEET):
            await provider.teardown(resource)
        core.delete_namespaced_config_map(fleet_name(OWNER, FLEET), name)
        provider = await space.prepared()
        with pytest.raises(ProviderError, match="no order of ours"):
            await create(provider, order("t-1"))
        await provider.stop(pod_name(OWNER, "t-1"), grace_s=1)

    asyncio.run(scenario())
    assert core.read_namespaced_pod(pod_name(OWNER, "t-1"), name).metadata.deletion_timestamp is None


def test_secrets_are_in_no_pod_and_go_with_it(space: Space) -> None:
    core, name = space.cluster.core, space.name
    argv = ("sh", "-c", "echo got $HF_TOKEN; exec sleep 600")

    async def scenario() -> None:
        provider = await space.prepared()
        request = order("t-1", argv=argv, env={"HF_TOKEN": "env:TOKEN", "PLAIN": "1"})
        resolved = {"HF_TOKEN": "hf_very_secret", "PLAIN": "1"}
        for _ in range(2):
            (result,) = await provider.create((request,), resolve_secrets=lambda _: dict(resolved))
            assert result.error is None
        await described(provider, "t-1", lambda node: node.state is NodeState.RUNNING, "it runs")
        await printed(provider, "hf_very_secret")

    asyncio.run(scenario())
    assert "hf_very_secret" not in str(space.pod("t-1"))
    (secret,) = core.list_namespaced_secret(name).items
    assert base64.b64decode(secret.data["HF_TOKEN"]) == b"hf_very_secret"
    core.delete_namespaced_pod(pod_name(OWNER, "t-1"), name, grace_period_seconds=1)
    until(lambda: not core.list_namespaced_secret(name).items, "the secret has gone with its pod")


async def printed(provider: KubernetesProvider, text: str) -> str:
    """Return the log of the replica once a text is in it."""
    logs = provider.capabilities.logs
    assert logs is not None
    end_s = SYSTEM_CLOCK.monotonic_s() + 60.0
    while text not in (
        log := (await logs.read_log(owner=OWNER, fleet=FLEET, replica_id="r1", after=None, bytes_max=1000)).text
    ):
        assert SYSTEM_CLOCK.monotonic_s() < end_s, f"not printed: {text}; but {log!r}"
        await SYSTEM_CLOCK.sleep(0.2)
    return log


def test_how_an_engine_ended_is_said_with_its_last_words(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("exits", argv=("sh", "-c", "echo no GPU found >&2; exit 3")))
        await create(provider, order("killed", replica_id="r2", argv=("sh", "-c", "kill -9 $$")))
        await create(provider, order("starved", replica_id="r3"))
        await described(provider, "starved", lambda node: node.state is NodeState.RUNNING, "it runs")
        limits = {"limits": [{"type": "Container", "default": {"memory": "16Gi"}}]}
        space.cluster.core.create_namespaced_limit_range(space.name, {"metadata": {"name": "m"}, "spec": limits})
        await create(provider, order("limited", replica_id="r4"))
        await described(provider, "limited", lambda node: node.state is NodeState.RUNNING, "it runs")
        reasons = {}
        for token in ("starved", "limited"):
            space.annotate(token, **{FAULT: "OOMKilled"})
        for token in ("exits", "killed", "starved", "limited"):
            node = await described(provider, token, lambda node: node.state is NodeState.GONE, f"{token} has ended")
            reasons[token] = node.exit_reason
        ran_out = {"starved": "OOMKilled, no limit of its own", "limited": "OOMKilled, limit 16GiB"}
        assert reasons == {"exits": "exit 3", "killed": "signal 9", **ran_out}
        node = await described(provider, "exits", lambda _: True, "it is there")
        assert "no GPU found" in node.log_tail
        assert {node.state for node in await listed(provider, owner=OWNER, fleet=FLEET)} == {NodeState.GONE}

    asyncio.run(scenario())


def test_of_what_there_was_too_little_is_said_of_a_pod_that_kubelet_evicts(space: Space) -> None:
    why = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 3Gi."

    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("large", gpu_count=64))  # no kubelet of ours writes to what has no machine
        space.cluster.core.patch_namespaced_pod_status(
            pod_name(OWNER, "large"), space.name, {"status": {"phase": "Failed", "reason": "Evicted", "message": why}}
        )
        node = await described(provider, "large", lambda node: node.state is NodeState.GONE, "it has ended")
        assert node.exit_reason == f"Evicted ({why})"

    asyncio.run(scenario())


def test_words_and_variables_reach_the_engine_as_they_are(space: Space) -> None:
    argv = ("sh", "-c", 'printf "%s|" "$@" "$KEPT"; exec sleep 600', "sh", "$(HOSTNAME)", "$$", "$(POD_IP)", "{}")

    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("t-1", argv=argv, env={"KEPT": "a$$b$(PATH)"}))
        node = await described(provider, "t-1", lambda node: bool(node.host), "it has an address")
        assert await printed(provider, "a$$b$(PATH)|") == f"$(HOSTNAME)|$$|{node.host}|{{}}|a$$b$(PATH)|"

    asyncio.run(scenario())


def test_why_a_pod_is_not_running_yet_is_said(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("large", gpu_count=64))
        image = ContainerLaunch(image="tests/missing:1", entrypoint=("sleep",), args=("600",))
        await create(provider, order("pulled", replica_id="r2", container=image))
        large = await described(provider, "large", lambda node: "Unschedulable" in node.pending_reason, "no room")
        assert "nvidia.com/gpu" in large.pending_reason
        await described(provider, "pulled", lambda node: "ImagePullBackOff" in node.pending_reason, "no image")

    asyncio.run(scenario())


def test_an_eviction_is_a_notice_with_the_deadline_of_its_grace(space: Space) -> None:
    async def scenario() -> None:
        provider = await space.prepared()
        await create(provider, order("t-1", argv=("sh", "-c", "trap '' TERM; while true; do sleep 0.2; done")))
        await described(provider, "t-1", lambda node: node.state is NodeState.RUNNING, "it runs")
        name = pod_name(OWNER, "t-1")
        eviction = {"metadata": {"name": name}, "deleteOptions": {"gracePeriodSeconds": 8}}
        space.cluster.core.create_namespaced_pod_eviction(name, space.name, eviction)
        node = await described(provider, "t-1", lambda node: node.notice is not None, "a notice")
        assert node.notice is not None
        assert node.notice.kind is NoticeKind.INTERRUPTION
        assert node.notice.takes_node
        assert node.notice.taken_by.startswith("the eviction API")
        assert node.state is NodeState.STOPPING

    asyncio.run(scenario())


def test_a_machine_that_karpenter_takes_is_a_notice_on_every_pod_of_it_and_on_no_other(space: Space) -> None:
    core = space.cluster.core

    async def scenario() -> None:
        provider = await space.prepared()
        for number in (1, 2):
            await create(provider, order(f"t-{number}", replica_id=f"r{number}", offering=SPOT, market=Market.SPOT))
        await create(provider, order("t-3", replica_id="r3"))
        for number in (1, 2, 3):
            await described(provider, f"t-{number}", lambda node: node.state is NodeState.RUNNING, "it runs")
        core.patch_node("spot-1", {"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}})
        try:
            for token in ("t-1", "t-2"):
                node = await described(provider, token, lambda node: node.notice is not None, "a notice")
                assert node.machine_id == "spot-1"
                assert node.notice is not None
                assert node.notice.takes_node
                # Karpenter's spot nodes are AWS's: two minutes from the taint, by the API server's own record of it.
                assert node.notice.deadline is not None
                left_s = (node.notice.deadline - SYSTEM_CLOCK.now()).total_seconds()
                assert 30.0 < left_s <= 120.0
            other = await described(provider, "t-3", lambda _: True, "it is there")
            assert (other.machine_id, other.notice) == ("on-demand-1", None)
            assert Market.SPOT not in {offering.market for offering in await provider.offerings()}
        finally:
            core.patch_node("spot-1", {"spec": {"taints": None}})

    asyncio.run(scenario())


def test_what_happens_to_pods_and_to_their_machines_is_told_without_being_asked_for(space: Space) -> None:
    core = space.cluster.core

    async def scenario() -> None:
        provider = await space.prepared()
        assert provider.capabilities.events is not None
        seen: list[Node] = []

        async def watch() -> None:
            assert provider.capabilities.events is not None
            async for node in provider.capabilities.events.watch(owner=OWNER, fleet=FLEET):
                seen.append(node)  # noqa: PERF401  # looked at while it goes on

        async def until_seen(number: int, is_so: Callable[[Node], bool], what: str) -> Node:
            end_s = SYSTEM_CLOCK.monotonic_s() + 60.0
            while not (found := [node for node in seen if node.token == f"t-{number}" and is_so(node)]):
                assert SYSTEM_CLOCK.monotonic_s() < end_s, f"nobody told: {what}; seen {seen}"
                assert not watching.done()
                await SYSTEM_CLOCK.sleep(0.05)
            seen.clear()
            return found[-1]

        watching = asyncio.ensure_future(watch())
        await create(provider, order("t-1", offering=SPOT, market=Market.SPOT))
        await until_seen(1, lambda node: node.state is NodeState.RUNNING, "it runs")
        core.patch_node("spot-1", {"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}})
        try:
            node = await until_seen(1, lambda node: node.notice is not None, "its machine is taken")
            assert node.machine_id == "spot-1"
        finally:
            core.patch_node("spot-1", {"spec": {"taints": None}})
        await until_seen(1, lambda node: node.notice is None, "its machine stays")
        await provider.stop(pod_name(OWNER, "t-1"), grace_s=10)
        node = await until_seen(1, lambda node: node.state is NodeState.GONE, "it was stopped")
        assert (node.exit_reason, node.notice) == ("stopped", None)
        await create(provider, order("t-2", replica_id="r2"))
        await until_seen(2, lambda node: node.state is NodeState.RUNNING, "it runs")
        core.delete_namespaced_pod(pod_name(OWNER, "t-2"), space.name, grace_period_seconds=10)
        node = await until_seen(2, lambda node: node.notice is not None, "it is deleted")
        assert node.state is NodeState.STOPPING
        node = await until_seen(2, lambda node: node.state is NodeState.GONE, "it has gone")
        assert node.exit_reason == "deleted"
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(scenario())


def test_a_cluster_that_does_not_answer_and_one_that_knows_us_not_are_told_apart(space: Space, tmp_path: Path) -> None:
    config = json.loads(space.cluster.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = "wrong"  # noqa: S105  # which is the point
    stranger = tmp_path / "stranger"
    stranger.write_text(json.dumps(config))
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    silent = tmp_path / "silent"
    silent.write_text(json.dumps(config))

    async def code(path: Path) -> int:
        provider = KubernetesProvider(settings=ClusterSettings(kubeconfig=str(path), namespace=space.name))
        with pytest.raises(ProviderError) as raised:
            await provider.list_nodes(owner=OWNER, fleet=FLEET)
        return raised.value.exit_code

    assert asyncio.run(code(stranger)) == 13
    assert asyncio.run(code(silent)) == 10
    assert asyncio.run(code(tmp_path / "absent")) == 13
