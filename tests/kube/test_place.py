"""Somebody switches to another context: a controller that starts by it finds none of the fleet's pods, and does nothing about it."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.kube.live_fleet import Traffic, live_fleet
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kube.cluster import TestCluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
HERE, ELSEWHERE = "place", "place-elsewhere"


def switch(kubeconfig: Path, namespace: str) -> None:
    """Have the current context lead to another namespace, as `kubectl config set-context --current --namespace` does."""
    written = json.loads(kubeconfig.read_text())
    written["contexts"][0]["context"]["namespace"] = namespace
    kubeconfig.write_text(json.dumps(written))


def test_a_switched_context_loses_no_pod_and_makes_none(cluster: TestCluster) -> None:
    cluster.namespace(ELSEWHERE)
    try:
        with live_fleet(cluster, HERE, replicas=2, names_namespace=False) as fleet:
            kubeconfig, pods = fleet.home.root / "kubeconfig", fleet.pods()
            with Traffic(fleet.port) as traffic:
                switch(kubeconfig, ELSEWHERE)
                before = fleet.status().controller_pid
                assert before
                os.kill(before, signal.SIGKILL)
                until(lambda: fleet.status().controller_pid not in (0, None, before), "it is started again")
                until(lambda: f"the nodes of {HERE} are in namespace {HERE}" in fleet.status().reason, "it says so")
                refused = fleet.home.run("up", str(fleet.profile), "--yes")
                assert refused.code != 0
                assert f"these credentials lead to namespace {ELSEWHERE}" in refused.err
                answered = traffic.answered
                until(lambda: traffic.answered > answered + 5, "requests are answered")
                assert fleet.pods() == pods
                assert cluster.core.list_namespaced_pod(ELSEWHERE).items == []
                switch(kubeconfig, HERE)
                os.kill(int(fleet.status().controller_pid or 0), signal.SIGKILL)
                fleet.until_whole("it is kept again")
            assert traffic.failures == []
            assert fleet.pods() == pods
    finally:
        cluster.core.delete_namespace(ELSEWHERE)
