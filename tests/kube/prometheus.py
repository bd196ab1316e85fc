"""A real Prometheus that scrapes what rendered monitors select, configured from them as Prometheus' operator would.

Debian's has no discovery of Kubernetes' own: the pods are listed here, with the labels that it would give them, into a file
that Prometheus watches. What is selected of them is its own doing, by relabelling.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

from tests.kube.processes import running
from tests.ports import free_port
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.kube.cluster import TestCluster

# install.sh puts it beside Python, which is not on the PATH of who runs pytest by its path.
_PROGRAM = shutil.which("prometheus") or shutil.which("prometheus", path=str(Path(sys.executable).parent))
_PORT_LABEL, _POD_LABEL = "__meta_kubernetes_pod_container_port_name", "__meta_kubernetes_pod_label_"


@dataclass(frozen=True)
class Prometheus:
    """One that runs."""

    url: str

    def query(self, text: str) -> list[dict[str, Any]]:
        """Return the samples of an instant query, each with its labels and its value."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": text}, timeout=10)
        assert answer.status_code == 200, answer.text
        return [{**each["metric"], "value": float(each["value"][1])} for each in answer.json()["data"]["result"]]

    def rules(self) -> dict[str, str]:
        """Return the rules by name, each with its health."""
        groups = httpx.get(f"{self.url}/api/v1/rules", timeout=10).json()["data"]["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}


@contextmanager
def running_prometheus(
    cluster: TestCluster,
    namespace: str,
    documents: Sequence[dict[str, Any]],
    directory: Path,
    *,
    others: Sequence[dict[str, Any]] = (),
) -> Iterator[Prometheus]:
    """Have one scrape a namespace's pods by the PodMonitors, and evaluate the PrometheusRules, that are among these documents.

    `others` are scrape jobs of what is no pod of that namespace.
    """
    if _PROGRAM is None:
        assert os.environ.get("CI") != "true", "CI=true promises a Prometheus: ./install.sh test fetches it"
        pytest.skip("Prometheus is not installed: ./install.sh test fetches it")
    rules = [group for each in documents if each["kind"] == "PrometheusRule" for group in each["spec"]["groups"]]
    (directory / "rules.yaml").write_text(yaml.safe_dump({"groups": rules}))
    targets = directory / "targets.json"
    _write_targets(cluster, namespace, targets)
    jobs = [job for each in documents if each["kind"] == "PodMonitor" for job in _jobs(each, namespace, targets)]
    jobs += others
    config = {"global": {"evaluation_interval": "1s"}, "rule_files": ["rules.yaml"], "scrape_configs": jobs}
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    argv = (
        f"--config.file={directory}/prometheus.yaml", f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    )  # fmt: skip
    found, log = Prometheus(f"http://127.0.0.1:{port}"), directory / "log"
    with running(_PROGRAM, *argv, log=log) as process:
        until(lambda: process.poll() is not None or _is_ready(found.url), "Prometheus is ready")
        assert process.poll() is None, log.read_text()[-2000:]
        with _followed(cluster, namespace, targets):
            yield found


@contextmanager
def _followed(cluster: TestCluster, namespace: str, targets: Path) -> Iterator[None]:
    """Have pods that come and go in the file, as discovery has them."""
    is_over = threading.Event()

    def follow() -> None:
        while not is_over.wait(0.5):
            _write_targets(cluster, namespace, targets)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _write_targets(cluster: TestCluster, namespace: str, targets: Path) -> None:
    """Write them whole: Prometheus reads the file whenever it changes."""
    whole = targets.with_suffix(".new")
    whole.write_text(json.dumps(_targets(cluster, namespace)))
    whole.replace(targets)


def _targets(cluster: TestCluster, namespace: str) -> list[dict[str, Any]]:
    """Return each port of each pod as the discovery of Kubernetes' role `pod` does."""
    return [
        {
            "targets": [f"{pod.status.pod_ip}:{port.container_port}"],
            "labels": {
                "__meta_kubernetes_pod_name": pod.metadata.name,
                "__meta_kubernetes_pod_node_name": pod.spec.node_name,
                _PORT_LABEL: port.name or "",
                **{_label(key): value for key, value in (pod.metadata.labels or {}).items()},
            },
        }
        for pod in cluster.core.list_namespaced_pod(namespace).items
        if pod.status.pod_ip
        for container in pod.spec.containers
        for port in container.ports or ()
    ]


def _jobs(monitor: dict[str, Any], namespace: str, targets: Path) -> Iterator[dict[str, Any]]:
    """Yield what the operator makes of a PodMonitor, a job of each endpoint; scraped each second, so that a test need not wait."""
    spec, name = monitor["spec"], monitor["metadata"]["name"]
    selected = [
        {"action": "keep", "source_labels": [_label(key)], "regex": re.escape(value)}
        for key, value in spec["selector"]["matchLabels"].items()
    ]
    kept = [
        {"source_labels": [_label(key)], "target_label": re.sub(r"\W", "_", key), "regex": "(.+)"}
        for key in spec["podTargetLabels"]
    ]
    named = [
        {"source_labels": [f"__meta_kubernetes_pod_{key}"], "target_label": label}
        for key, label in (("name", "pod"), ("node_name", "node"))
    ]
    for number, endpoint in enumerate(spec["podMetricsEndpoints"]):
        yield {
            "job_name": f"podMonitor/{namespace}/{name}/{number}",
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "scheme": endpoint.get("scheme", "http"),
            "metrics_path": endpoint["path"],
            "honor_labels": endpoint["honorLabels"],
            "file_sd_configs": [{"files": [str(targets)]}],
            "relabel_configs": [
                *selected,
                {"action": "keep", "source_labels": [_PORT_LABEL], "regex": endpoint["port"]},
                *kept,
                *named,
            ],
        }


def _label(key: str) -> str:
    return _POD_LABEL + re.sub(r"\W", "_", key)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", timeout=2.0).status_code == 200
    except httpx.HTTPError:
        return False
