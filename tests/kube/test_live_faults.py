"""A fleet with requests, its state in the cluster too, while calls to the API server fail, objects are edited and rights taken."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from fleetctl.catalogue.kubernetes_parts import IN_NAMESPACE, role_rules
from fleetctl.catalogue.kubernetes_rights import (
    AUTOSCALER_NODE_RIGHTS,
    NODE_RIGHTS,
    PRIORITY_NAMED_RIGHTS,
    PRIORITY_RIGHTS,
    STATE_RIGHTS,
)
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl_kubernetes.settings import FLEET, LANE, REPLICA, fleet_name
from tests.e2e.fleet import Home
from tests.kube.fault_proxy import Fault, proxy_thread
from tests.kube.gitops import run
from tests.kube.live_fleet import Traffic, live_fleet
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.kube.cluster import TestCluster
    from tests.kube.fault_proxy import FaultProxy
    from tests.kube.live_fleet import LiveFleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NAME = "rough"
SEED = 20261128
# One call in four fails; each fault as the API server or what stands before it gives it.
FAULTS = (
    Fault(status=409, message="the object has been modified; please apply your changes to the latest version"),
    Fault(status=429, headers={"Retry-After": "1"}, message="too many requests"),
    Fault(status=500, message="etcdserver: request timed out"),
    Fault(status=503, message="the server is currently unable to handle the request"),
    Fault(status=504, after=True, message="Timeout: request did not complete within the allotted timeout"),
    Fault(),
    Fault(after=True),
)


@pytest.fixture(scope="module")
def proxied(cluster: TestCluster) -> Iterator[tuple[LiveFleet, FaultProxy]]:
    with (
        proxy_thread(str(cluster.api.configuration.host)) as (proxy, url),
        live_fleet(
            cluster, NAME, replicas=2, server=url, variables={"FLEETCTL_STATE": f"kubernetes://{NAME}"}
        ) as fleet,
    ):
        yield fleet, proxy


@contextmanager
def answered_throughout(fleet: LiveFleet) -> Iterator[Traffic]:
    """Have requests sent meanwhile and until the fleet is whole again: none may fail."""
    with Traffic(fleet.port) as traffic:
        until(lambda: traffic.answered >= 5, "requests are answered")
        yield traffic
        fleet.until_whole("the fleet is whole again")
        answered = traffic.answered
        until(lambda: traffic.answered > answered + 5, "requests are answered afterwards")
    assert traffic.failures == []


def kinds(faults: Sequence[Fault]) -> set[tuple[int, bool]]:
    """Return what the faults are: the status each answers with (0: cut), and whether it takes effect first."""
    return {(each.status, each.after) for each in faults}


def delete_one(fleet: LiveFleet) -> str:
    """Have a pod deleted, as `kubectl delete` does; return its uid."""
    (first, *_) = fleet.cluster.core.list_namespaced_pod(fleet.namespace, label_selector=REPLICA).items
    fleet.cluster.core.delete_namespaced_pod(first.metadata.name, fleet.namespace, grace_period_seconds=20)
    return str(first.metadata.uid)


def test_one_call_in_four_fails_watches_break_and_a_pod_is_replaced_all_the_same(
    proxied: tuple[LiveFleet, FaultProxy],
) -> None:
    fleet, proxy = proxied
    dice, struck = random.Random(SEED), list[Fault]()
    every_kind = kinds([*FAULTS, Fault(status=410)])

    def choose(verb: str, path: str) -> Fault | None:
        if verb == "WATCH":
            is_first = all(each.method != "WATCH" for each in struck)
            fault = Fault(status=410, message="too old resource version") if is_first or dice.random() < 0.5 else None
        elif verb == "POST" and all(each.method != "POST" for each in struck):
            fault = Fault(status=504, after=True, message="the order has its effect, and no answer")
        else:
            fault = dice.choice(FAULTS) if dice.random() < 0.25 else None
        if fault is not None:
            struck.append(replace(fault, method=verb, path=path))
        return fault

    with answered_throughout(fleet):
        proxy.choose = choose
        try:
            gone = delete_one(fleet)
            for _ in range(8):
                SYSTEM_CLOCK.sleep_blocking(0.5)
                proxy.cut_watches()
            until(lambda: gone not in fleet.pods() and len(fleet.pods()) == 2, "it is replaced meanwhile", within_s=90)
            # How many calls that takes is not ours to say: the faults go on until each kind has struck.
            until(lambda: kinds(struck) >= every_kind, "each kind of fault strikes", within_s=90)
        finally:
            proxy.choose = lambda *_: None
    assert {each.method for each in struck} >= {"GET", "PATCH", "POST", "WATCH"}, f"seed {SEED}"


def test_what_another_field_manager_forces_on_our_objects_is_set_back_and_the_status_names_it(
    proxied: tuple[LiveFleet, FaultProxy], tmp_path: Path
) -> None:
    fleet, _ = proxied
    core, namespace, before = fleet.cluster.core, fleet.namespace, fleet.pods()
    (service,) = core.list_namespaced_service(namespace).items
    (pod, *_) = core.list_namespaced_pod(namespace, label_selector=REPLICA).items
    anchor = fleet_name(fleet.owner, fleet.name)
    edits = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": service.metadata.name},
         "spec": {"selector": {LANE: "another"}, "ports": [{"name": "http", "port": 8000, "targetPort": 1234}]}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.metadata.name, "labels": {FLEET: "another"}}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": anchor, "labels": {FLEET: "another"}}},
    ]  # fmt: skip

    def force(body: dict[str, Any]) -> None:
        path = tmp_path / "edit.json"
        path.write_text(json.dumps(body))
        run(
            "kubectl", "--kubeconfig", str(fleet.cluster.kubeconfig), "-n", namespace, "apply", "--server-side",
            "--field-manager", "another-tool", "--force-conflicts", "-f", str(path), home=tmp_path,
        )  # fmt: skip

    with answered_throughout(fleet):
        for body in edits:
            force(body)
        reasons = set[str]()

        def is_shown() -> bool:
            reasons.add(fleet.status().reason)
            shown = " ".join(reasons)
            return all(
                name in shown for name in (service.metadata.name, pod.metadata.name, "another-tool", "ConfigMap")
            )

        try:
            until(is_shown, "the status says what was set back", within_s=40)
        except AssertionError as exc:
            raise AssertionError(f"{exc}: {reasons}") from None
        assert core.read_namespaced_service(service.metadata.name, namespace).spec.selector[LANE] != "another"
        assert core.read_namespaced_pod(pod.metadata.name, namespace).metadata.labels[FLEET] == NAME
        assert core.read_namespaced_config_map(anchor, namespace).metadata.labels[FLEET] == NAME
    assert fleet.pods() == before, "no replica was replaced for it"


def test_a_copy_of_a_pod_of_ours_is_left_alone_and_said(proxied: tuple[LiveFleet, FaultProxy]) -> None:
    fleet, _ = proxied
    core, namespace = fleet.cluster.core, fleet.namespace
    (pod, *_) = core.list_namespaced_pod(namespace, label_selector=REPLICA).items
    kept = {key: getattr(pod.metadata, key) for key in ("labels", "annotations")}
    spec = {**fleet.cluster.api.sanitize_for_serialization(pod.spec), "nodeName": None, "nodeSelector": {"no": "node"}}
    core.create_namespaced_pod(namespace, {"metadata": {"name": "copied", **kept}, "spec": spec})
    try:
        with Traffic(fleet.port) as traffic:
            until(
                lambda: "pod copied has our labels" in fleet.status().reason, "the status says that it is none of ours"
            )
        assert traffic.failures == []
        uid = core.read_namespaced_pod("copied", namespace).metadata.uid
        assert len(fleet.ready()) == 2
    finally:
        core.delete_namespaced_pod("copied", namespace, grace_period_seconds=0)
    assert uid not in fleet.pods()


def test_rights_that_are_taken_away_are_named_by_the_status_while_requests_are_answered(
    proxied: tuple[LiveFleet, FaultProxy],
) -> None:
    fleet, proxy = proxied
    before = fleet.pods()
    with answered_throughout(fleet), granted(fleet) as grant:
        for lacking in (("list", "services"), ("watch", "pods"), ("list", "pods")):
            grant(lacking)
            proxy.cut_watches()  # the API server looks at rights when one begins
            until_shown(fleet, *lacking)
        grant(("", ""))
    assert fleet.pods() == before


def until_shown(fleet: LiveFleet, verb: str, kind: str) -> None:
    """Wait until the status names a right that is lacking."""

    def is_shown() -> bool:
        reason = fleet.status().reason
        return f"not allowed: {verb} " in reason and kind in reason

    until(is_shown, f"the status names {verb} {kind}: {fleet.status().reason}", within_s=40)


@contextmanager
def granted(fleet: LiveFleet) -> Iterator[Any]:
    """Have the fleet's account do all that it needs but for one right; yield what chooses another. Afterwards it may do anything."""
    roles, name = client.RbacAuthorizationV1Api(fleet.cluster.api), f"operator-{fleet.namespace}"
    everything = (
        *IN_NAMESPACE, *STATE_RIGHTS, *NODE_RIGHTS, *AUTOSCALER_NODE_RIGHTS, *PRIORITY_RIGHTS, *PRIORITY_NAMED_RIGHTS,
    )  # fmt: skip
    kept = f"{name}-needs"

    def rules(lacking: tuple[str, str]) -> list[Any]:
        return role_rules([each for each in everything if each != lacking])

    def grant(lacking: tuple[str, str]) -> None:
        roles.patch_cluster_role(kept, {"rules": rules(lacking)})

    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]
    roles.create_cluster_role({"metadata": {"name": kept}, "rules": rules(("", ""))})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": kept}
    roles.create_cluster_role_binding({"metadata": {"name": kept}, "roleRef": reference, "subjects": subjects})
    roles.delete_cluster_role_binding(name)
    try:
        yield grant
    finally:
        reference = {**reference, "name": "cluster-admin"}
        roles.create_cluster_role_binding({"metadata": {"name": name}, "roleRef": reference, "subjects": subjects})
        roles.delete_cluster_role_binding(kept)
        roles.delete_cluster_role(kept)


def test_a_deleted_service_account_is_made_again_for_the_next_pod(proxied: tuple[LiveFleet, FaultProxy]) -> None:
    fleet, _ = proxied
    name = fleet_name(fleet.owner, fleet.name)
    fleet.cluster.core.delete_namespaced_service_account(name, fleet.namespace)
    with answered_throughout(fleet):
        gone = delete_one(fleet)
        until(lambda: gone not in fleet.pods() and len(fleet.pods()) == 2, "a pod is replaced", within_s=60)
    assert fleet.cluster.core.read_namespaced_service_account(name, fleet.namespace)


def test_up_from_another_machine_on_the_same_state_starts_no_second_controller(
    proxied: tuple[LiveFleet, FaultProxy],
) -> None:
    fleet, _ = proxied
    before, pid = fleet.pods(), fleet.status().controller_pid
    root = Path(tempfile.mkdtemp(prefix="fo-"))
    there = Home(root=root, env={**fleet.home.env, "KUBECONFIG": str(fleet.cluster.kubeconfig)})
    # Both machines are this one, where the gateway's port is taken: so another is asked for.
    port = free_port()
    try:
        ran = there.run("up", str(fleet.profile), "--yes", "--port", str(port), timeout_s=90)
        assert ran.code == 0, ran.err
        assert "its controller on" in ran.err
        assert there.processes() == []
    finally:
        left = there.kill_everything()
        shutil.rmtree(root, ignore_errors=True)
    assert left == []
    assert fleet.status().controller_pid == pid
    assert fleet.pods() == before
