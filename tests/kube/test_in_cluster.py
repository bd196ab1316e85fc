"""Controller and gateway in the cluster, by what `render --target in-cluster` writes: their rights, their pod, its next one."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml
from kubernetes import client
from openai import OpenAI

from fleetctl.catalogue.kubernetes_rights import (
    AUTOSCALER_NODE_RIGHTS,
    AUTOSCALER_RIGHTS,
    CLAIM_NODE_RIGHTS,
    CLAIM_RIGHTS,
    GROUP_RIGHTS,
    IDENTITY_RIGHTS,
    NETWORK_RIGHTS,
    NODE_RIGHTS,
    OWN_NAMESPACE_RIGHT,
    PRIORITY_NAMED_RIGHTS,
    PRIORITY_RIGHTS,
    RIGHTS,
    STATE_RIGHTS,
)
from fleetctl_kubernetes.settings import REPLICA
from tests.e2e.fleet import Home
from tests.kube.test_render import kubectl
from tests.living_profiles import placed_profile
from tests.own_processes import processes_under
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NAMESPACE = "inside"
KEY = "sk-of-the-tests"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
PROFILE = placed_profile(
    "kept",
    provider="kubernetes",
    replicas="min: 1, max: 1",
    keys="""\
capacity: {gpus: [L40S], on_demand: minimum, max_nodes: 4}
gateway: {host: 0.0.0.0, port: PORT, api_keys: [env:LLM_KEY]}
""",
)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def home(request: pytest.FixtureRequest, cluster: TestCluster, port: int, tmp_path: Path) -> Iterator[Home]:
    """What the manifests of a fleet were applied from; a test's parameter has further options of `render`."""
    root = Path(tempfile.mkdtemp(prefix="fc-"))
    home = Home(root=root, env={"KUBECONFIG": str(cluster.kubeconfig), "FLEETCTL_KUBE_NAMESPACE": NAMESPACE})
    cluster.namespace(NAMESPACE)
    (tmp_path / "kept.yaml").write_text(PROFILE.replace("PORT", str(port)))
    out = str(tmp_path / "out")
    home.fleetctl(
        "render", str(tmp_path / "kept.yaml"), "-o", out, "--target", "in-cluster", "--image", "tests/fleetctl:1",
        *getattr(request, "param", ()),
    )  # fmt: skip
    applied = kubectl(cluster, "apply", "--server-side", "--validate=strict", "-f", f"{out}/in-cluster")
    assert applied.returncode == 0, applied.stderr
    yield home
    kubectl(cluster, "delete", "--wait=false", "-f", f"{out}/in-cluster")
    cluster.core.delete_collection_namespaced_pod(NAMESPACE, grace_period_seconds=0)
    cluster.core.delete_namespace(NAMESPACE)
    gone = lambda: all(each.metadata.name != NAMESPACE for each in cluster.core.list_namespace().items)  # noqa: E731
    until(gone, "the namespace has gone", within_s=120)
    shutil.rmtree(root, ignore_errors=True)


def test_the_service_account_may_do_what_is_needed_and_nothing_else(cluster: TestCluster, home: Home) -> None:
    user = f"system:serviceaccount:{NAMESPACE}:kept-fleetctl"
    reviews = client.AuthorizationV1Api(cluster.api)

    def may(verb: str, kind: str, namespace: str = NAMESPACE, name: str = "") -> bool:
        resource, _, group = kind.partition(".")
        resource, _, sub = resource.partition("/")
        wanted = {
            "verb": verb,
            "resource": resource,
            "subresource": sub,
            "namespace": namespace,
            "group": group,
            "name": name,
        }
        found = reviews.create_subject_access_review({"spec": {"user": user, "resourceAttributes": wanted}})
        return bool(found.status.allowed)

    granted = {
        *RIGHTS,
        *IDENTITY_RIGHTS,
        *NETWORK_RIGHTS,
        *GROUP_RIGHTS,
        *CLAIM_RIGHTS,
        *AUTOSCALER_RIGHTS,
        OWN_NAMESPACE_RIGHT,
        *STATE_RIGHTS,
    }
    of_cluster = {*NODE_RIGHTS, *AUTOSCALER_NODE_RIGHTS, *CLAIM_NODE_RIGHTS, *PRIORITY_RIGHTS}
    verbs = ("create", "get", "list", "watch", "update", "patch", "delete", "deletecollection")
    kinds = sorted({kind for _, kind in granted})
    kinds += ["pods/exec", "pods/eviction", "serviceaccounts/token", "persistentvolumeclaims"]
    kinds += ["roles.rbac.authorization.k8s.io", "deployments.apps", "customresourcedefinitions.apiextensions.k8s.io"]
    assert {(verb, kind) for verb in verbs for kind in kinds if may(verb, kind)} == granted
    nodes = {kind for _, kind in of_cluster}
    assert {(verb, kind) for verb in verbs for kind in nodes if may(verb, kind, namespace="")} == of_cluster
    assert not [kind for kind in kinds for verb in verbs if may(verb, kind, namespace="default")]
    priorities = "priorityclasses.scheduling.k8s.io"
    ours = {(verb, priorities) for verb in verbs if may(verb, priorities, namespace="", name="fleetctl-lane-1")}
    assert ours == {("list", priorities), *PRIORITY_RIGHTS, *PRIORITY_NAMED_RIGHTS}
    theirs = {verb for verb in verbs if may(verb, priorities, namespace="", name="theirs")}
    assert theirs == {"create", "list"}


def test_a_fleet_whose_state_is_in_the_cluster_outlives_its_pod_however_that_ends(
    cluster: TestCluster, home: Home, port: int
) -> None:
    core = cluster.core
    secret = {"metadata": {"name": "kept-fleetctl-secrets"}, "stringData": {"LLM_KEY": KEY}}
    core.create_namespaced_secret(NAMESPACE, secret)
    until(lambda: is_ready(cluster), f"the pod is ready:\n{log(cluster)}", within_s=180)
    assert answer(cluster, port)
    started = set(engines(cluster))
    outside = Home(root=home.root, env={**home.env, "FLEETCTL_STATE": f"kubernetes://{NAMESPACE}"})
    epochs = [epoch(outside)]
    for grace_s in (30, 0):  # ended as Kubernetes does, and gone with its machine
        before = our_pod(cluster).metadata.uid
        if not grace_s:
            kill_inside(cluster)
        core.delete_namespaced_pod(our_pod(cluster).metadata.name, NAMESPACE, grace_period_seconds=grace_s)
        until(
            lambda before=before: is_ready(cluster) and our_pod(cluster).metadata.uid != before,  # type: ignore[misc]  # bound now
            f"another is ready:\n{log(cluster)}",
            within_s=180,
        )
        assert answer(cluster, port)
        epochs.append(epoch(outside))
    assert epochs == sorted(set(epochs)), "each takes the lease anew"
    assert set(engines(cluster)) == started, "nothing was lost, and nothing ordered twice"
    holder = client.CoordinationV1Api(cluster.api).read_namespaced_lease("fleetctl.kept", NAMESPACE).spec
    assert holder.lease_transitions == epochs[-1]
    # From outside, by its state alone: the controller in the cluster reads what was written.
    assert "kept" in outside.fleetctl("status", "kept")
    outside.fleetctl("down", "kept", "--yes", timeout_s=120)
    until(lambda: engines(cluster) == [], "no engine is left", within_s=120)
    assert outside.processes() == []


def kill_inside(cluster: TestCluster) -> None:
    """Kill all that runs in our pod at once, as the death of its machine does."""
    inside = processes_under(str(cluster.directory / "pods"))
    ours = [p for p in inside if any(word.endswith((".controller", ".gateway", "/fleetctl")) for word in p.cmdline())]
    assert len(ours) >= 3, [p.cmdline() for p in inside]
    for process in ours:
        process.kill()
    psutil.wait_procs(ours, timeout=10)


def epoch(home: Home) -> int:
    (kept,) = home.query("state", "show")["fleets"]
    return int(kept["epoch"])


@pytest.mark.parametrize("home", [("--state-on-claim",)], indirect=True)
def test_a_fleet_kept_in_the_cluster_answers_and_outlives_its_gateways_pod(
    cluster: TestCluster, home: Home, port: int
) -> None:
    core = cluster.core
    until(lambda: our_pod(cluster) is not None, "the deployment makes a pod")
    volume = {
        "metadata": {"name": "kept-state"},
        "spec": {
            "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOncePod"], "hostPath": {"path": "/var/lib/kept"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }  # fmt: skip
    core.create_persistent_volume(volume)
    try:
        # Its Secret is what people make themselves: the container waits for it.
        core.create_namespaced_secret(
            NAMESPACE, {"metadata": {"name": "kept-fleetctl-secrets"}, "stringData": {"LLM_KEY": KEY}}
        )
        until(lambda: is_ready(cluster), f"the pod is ready:\n{log(cluster)}", within_s=180)
        assert answer(cluster, port)
        started = set(engines(cluster))
        first = our_pod(cluster)
        core.delete_namespaced_pod(first.metadata.name, NAMESPACE)
        until(
            lambda: is_ready(cluster) and our_pod(cluster).metadata.uid != first.metadata.uid, "another", within_s=180
        )
        assert answer(cluster, port)
        assert started & set(engines(cluster)), "the next controller finds the replica that is there"
        down(cluster, home)
        until(lambda: engines(cluster) == [], "no engine is left", within_s=120)
        config_maps = {each.metadata.name for each in core.list_namespaced_config_map(NAMESPACE).items}
        assert config_maps == {"kube-root-ca.crt", "kept-fleetctl"}
        services = {each.metadata.name for each in core.list_namespaced_service(NAMESPACE).items}
        assert services == {"kept-fleetctl"}
    finally:
        core.delete_persistent_volume("kept-state")


def down(cluster: TestCluster, home: Home) -> None:
    """Take the fleet down as `kubectl exec` into its pod does: by its state."""
    state = cluster.directory / "claims" / f"{NAMESPACE}-kept-fleetctl" / "state"
    assert state.is_dir()
    Home(root=home.root, env={**home.env, "XDG_STATE_HOME": str(state)}).fleetctl(
        "down", "kept", "--yes", timeout_s=120
    )


def our_pod(cluster: TestCluster) -> Any:
    labels = "app.kubernetes.io/name=fleetctl"
    found = cluster.core.list_namespaced_pod(NAMESPACE, label_selector=labels).items
    return next((each for each in found if each.metadata.deletion_timestamp is None), None)


def is_ready(cluster: TestCluster) -> bool:
    pod = our_pod(cluster)
    statuses = (pod.status.container_statuses or []) if pod is not None else []
    return bool(statuses) and all(each.ready for each in statuses)


def engines(cluster: TestCluster) -> list[str]:
    return sorted(p.metadata.name for p in cluster.core.list_namespaced_pod(NAMESPACE, label_selector=REPLICA).items)


def log(cluster: TestCluster) -> str:
    logs = sorted(cluster.directory.glob("pods/*/fleetctl.log"), key=os.path.getmtime)
    return logs[-1].read_text(errors="replace")[-3000:] if logs else "no log yet"


def answer(cluster: TestCluster, port: int) -> str:
    """Return what it says; its Service leads to it, and its every address is this machine's."""
    proxied = cluster.core.connect_get_namespaced_service_proxy_with_path
    until(lambda: "ok" in healthy(proxied), "the service leads to the gateway")
    url = f"http://127.0.0.1:{port}/v1"
    with OpenAI(base_url=url, api_key=KEY, max_retries=20, timeout=30) as openai:
        found = openai.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=8
        )
    assert found.usage is not None
    assert found.usage.completion_tokens == 8
    return str(found.choices[0].message.content)


def healthy(proxied: Any) -> str:
    try:
        return str(proxied("kept-fleetctl:http", NAMESPACE, "health"))
    except client.ApiException as exc:
        return str(exc.body)


def test_what_is_written_runs_without_rights_on_its_machine(cluster: TestCluster, home: Home, tmp_path: Path) -> None:
    written = yaml.safe_load_all((tmp_path / "out/in-cluster/fleetctl.yaml").read_text())
    pod = next(each for each in written if each["kind"] == "Deployment")["spec"]["template"]
    namespace = cluster.core.read_namespace(NAMESPACE)
    labels = {**(namespace.metadata.labels or {}), "pod-security.kubernetes.io/enforce": "restricted"}
    cluster.core.patch_namespace(NAMESPACE, {"metadata": {"labels": labels}})
    body = {"metadata": {"name": "tried", **pod["metadata"]}, "spec": pod["spec"]}
    cluster.core.create_namespaced_pod(NAMESPACE, body, dry_run="All")
    body["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(client.ApiException, match="restricted"):
        cluster.core.create_namespaced_pod(NAMESPACE, body, dry_run="All")
