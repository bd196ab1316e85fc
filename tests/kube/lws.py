"""The real LeaderWorkerSet controller, its webhooks called by URL."""

from __future__ import annotations

import base64
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.kube.assets import client_program, definition_file
from tests.kube.karpenter import define
from tests.kube.processes import running
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kube.cluster import TestCluster

_KIND = "leaderworkerset.x-k8s.io"
_CRD = f"{_KIND}_leaderworkersets.yaml"


@contextmanager
def running_lws(cluster: TestCluster) -> Iterator[None]:
    """Have the controller at work on a cluster; the kind, and all that was made of it, goes when it does."""
    program, definition = client_program("lws-controller"), definition_file(_CRD)
    crd = yaml.safe_load(definition.read_text())
    define(cluster, crd)
    hook, health = (free_port() for _ in range(2))
    home = cluster.directory / "lws"
    home.mkdir(exist_ok=True)
    for name in ("crt", "key"):  # the API server's own: it is of the tests' authority, for 127.0.0.1
        (home / f"tls.{name}").write_bytes((cluster.directory / f"server.{name}").read_bytes())
    (home / "lws.yaml").write_text(yaml.safe_dump(_configuration(home, hook, health)))
    admission, log = client.AdmissionregistrationV1Api(cluster.api), home / "log"
    argv = (program, "--kubeconfig", cluster.kubeconfig, "--config", home / "lws.yaml")
    with running(*argv, log=log) as process:
        try:
            until(
                lambda: process.poll() is not None or _is_ready(health, hook), "the LeaderWorkerSet controller is ready"
            )
            assert process.poll() is None, log.read_text()[-2000:]
            admission.create_mutating_webhook_configuration(_hooks(cluster, "mutate", hook))
            admission.create_validating_webhook_configuration(_hooks(cluster, "validate", hook))
            yield
        finally:
            client.ApiextensionsV1Api(cluster.api).delete_custom_resource_definition(crd["metadata"]["name"])
            until(lambda: not _has(cluster, crd["metadata"]["name"]), "the kind has gone")
            with suppress(ApiException):  # it was not ready
                admission.delete_mutating_webhook_configuration("lws-mutate")
                admission.delete_validating_webhook_configuration("lws-validate")


def _configuration(home: Path, hook: int, health: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1", "kind": "Configuration", "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": hook, "certDir": str(home)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"}, "metrics": {"bindAddress": "0"},
    }  # fmt: skip


def _hooks(cluster: TestCluster, what: str, port: int) -> dict[str, Any]:
    trusted = base64.b64encode((cluster.directory / "ca.crt").read_bytes()).decode()

    def one(path: str, group: str, resources: str, **more: Any) -> dict[str, Any]:
        return {
            "name": f"{what[0]}{resources}.kb.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": 10,
            "clientConfig": {"url": f"https://127.0.0.1:{port}/{what}-{path}", "caBundle": trusted},
            "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resources]}],
            **more,
        }  # fmt: skip

    of_groups = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}
    sets = one("leaderworkerset-x-k8s-io-v1-leaderworkerset", _KIND, "leaderworkersets")
    return {
        "metadata": {"name": f"lws-{what}"},
        "webhooks": [sets, one("-v1-pod", "", "pods", objectSelector=of_groups)],
    }


def _is_ready(health: int, hook: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", hook), 1):
            return httpx.get(f"http://127.0.0.1:{health}/readyz", timeout=2.0).status_code == 200
    except (OSError, httpx.HTTPError):
        return False


def _has(cluster: TestCluster, name: str) -> bool:
    definitions = client.ApiextensionsV1Api(cluster.api).list_custom_resource_definition().items
    return any(each.metadata.name == name for each in definitions)
