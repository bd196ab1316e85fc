"""The real KEDA: its operator and its metrics API."""

from __future__ import annotations

import base64
import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import httpx
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.kube.assets import client_program, definition_file
from tests.kube.certificates import make_certificate
from tests.kube.karpenter import define
from tests.kube.processes import running
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.kube.cluster import TestCluster

GROUP, VERSION, PLURAL = "keda.sh", "v1alpha1", "scaledobjects"
_CRDS = (
    "keda.sh_scaledobjects", "keda.sh_scaledjobs", "keda.sh_triggerauthentications", "keda.sh_clustertriggerauthentications",
    "eventing.keda.sh_cloudeventsources", "eventing.keda.sh_clustercloudeventsources",
)  # fmt: skip
_NAMESPACE, _SERVICE = "keda", "keda-metrics-apiserver"
_API = "v1beta1.external.metrics.k8s.io"
_NAME = f"{_SERVICE}.{_NAMESPACE}.svc"


@contextmanager
def running_keda(cluster: TestCluster) -> Iterator[None]:
    """Have KEDA at work on a cluster, and its metrics API with the API server; both go when it does."""
    programs = [client_program(name) for name in ("keda-operator", "keda-adapter")]
    for name in _CRDS:
        define(cluster, yaml.safe_load(definition_file(f"{name}.yaml").read_text()))
    cluster.namespace(_NAMESPACE)
    at = cluster.directory / "keda"
    at.mkdir()
    make_certificate(cluster.directory, "keda", addresses=("127.0.0.1",), names=(_NAME, "localhost"))
    for source, name in (("ca.crt", "ca.crt"), ("keda.crt", "tls.crt"), ("keda.key", "tls.key")):
        (at / name).write_bytes((cluster.directory / source).read_bytes())
    calls, health, secure, metrics = (free_port() for _ in range(4))
    operator = (
        f"--cert-dir={at}", f"--metrics-service-bind-address=127.0.0.1:{calls}", f"--health-probe-bind-address=127.0.0.1:{health}",
        "--metrics-bind-address=0", "--enable-cert-rotation=false", "--leader-elect=false", "--kube-api-qps=100", "--kube-api-burst=200",
    )  # fmt: skip
    config = cluster.kubeconfig
    adapter = (
        "--bind-address=127.0.0.1", f"--secure-port={secure}", f"--port={metrics}", f"--cert-dir={at}", f"--tls-cert-file={at}/tls.crt",
        f"--tls-private-key-file={at}/tls.key", f"--metrics-service-address=127.0.0.1:{calls}", f"--lister-kubeconfig={config}",
        f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}",
    )  # fmt: skip
    env = {
        "PATH": os.environ["PATH"], "KUBECONFIG": str(config), "POD_NAMESPACE": _NAMESPACE,
        "KEDA_CLUSTER_OBJECT_NAMESPACE": _NAMESPACE, "WATCH_NAMESPACE": "",
    }  # fmt: skip
    with ExitStack() as stack:
        processes = [
            stack.enter_context(running(program, *arguments, env=env, log=at / f"{program.name}.log"))
            for program, arguments in zip(programs, (operator, adapter), strict=True)
        ]
        ready = (f"http://127.0.0.1:{health}/readyz", f"https://127.0.0.1:{secure}/readyz")
        until(lambda: _have_ended(processes) or all(map(_answers, ready)), "KEDA is ready", within_s=90)
        assert not _have_ended(processes), "".join(each.read_text()[-2000:] for each in at.glob("*.log"))
        stack.enter_context(_metrics_api(cluster, secure))
        yield


@contextmanager
def _metrics_api(cluster: TestCluster, port: int) -> Iterator[None]:
    """Have the API server hand on what is asked of external metrics."""
    service = {"type": "ExternalName", "externalName": "localhost"}
    cluster.core.create_namespaced_service(_NAMESPACE, {"metadata": {"name": _SERVICE}, "spec": service})
    apis = client.ApiregistrationV1Api(cluster.api)
    trusted = base64.b64encode((cluster.directory / "ca.crt").read_bytes()).decode()
    spec = {
        "group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
        "caBundle": trusted, "service": {"name": _SERVICE, "namespace": _NAMESPACE, "port": port},
    }  # fmt: skip
    apis.create_api_service({"metadata": {"name": _API}, "spec": spec})

    def is_available() -> bool:
        conditions = apis.read_api_service(_API).status.conditions or []
        return any((each.type, each.status) == ("Available", "True") for each in conditions)

    try:
        until(is_available, "the API of external metrics answers", within_s=90)
        yield
    finally:
        # While it is registered and nobody answers for it, no namespace of this cluster could go.
        apis.delete_api_service(_API)
        with suppress(ApiException):
            cluster.core.delete_namespace(_NAMESPACE)


def _have_ended(processes: list[subprocess.Popen[bytes]]) -> bool:
    return any(each.poll() is not None for each in processes)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0, verify=False).status_code == 200  # noqa: S501  # of the tests' own authority, on loopback
    except httpx.HTTPError:
        return False
