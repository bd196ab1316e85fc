"""A real Prometheus scrapes a fleet's gateways and engines by the selectors of its rendered monitors, and evaluates its rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
import yaml

from tests.kube.placed_fleet import KEY, MODEL, PlacedFleet, placed
from tests.kube.prometheus import running_prometheus
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["placed"]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(400),
    pytest.mark.allow_hosts(["127.0.0.1", "::1", "10.200.0.0/16"]),  # pods' addresses, on loopback
]


def test_every_gateway_and_engine_is_scraped_by_the_rendered_selectors_and_the_rules_hold(
    placed: PlacedFleet, tmp_path: Path
) -> None:
    laptop, cluster, namespace = placed.laptop, placed.cluster, placed.namespace
    placed.write_profile(
        ("api_keys", "processes: 2, api_keys"),
        ("min: 1", "min: 2"),
        ("{kind: kubernetes, namespace", "{kind: kubernetes, prometheus: true, namespace"),
    )
    laptop.fleetctl("up", str(placed.profile), "--yes", timeout_s=240)
    out = tmp_path / "out"
    laptop.fleetctl("render", str(placed.profile), "--target", "kubernetes", "--with", "monitors", "-o", str(out))
    documents = [*yaml.safe_load_all((out / "kubernetes/with.monitors.yaml").read_text())]
    until(lambda: len(placed.endpoints()) == 2, "both gateways are ready")
    with running_prometheus(cluster, namespace, documents, tmp_path) as prometheus:
        wanted = {*placed.engine_pods(), *(pod.metadata.name for pod in placed.gateway_pods())}

        def scraped() -> set[str]:
            return {each["pod"] for each in prometheus.query("up == 1")}

        until(lambda: scraped() == wanted, "each pod is scraped, and no other", explain=lambda: prometheus.query("up"))
        for _ in range(5):
            post_chat(placed)
        answered = 'sum(fleetctl_gateway_requests_total{fleet="chat",lane="short"})'
        until(lambda: [each["value"] for each in prometheus.query(answered)] == [5.0], "both gateways' figures add up")
        engines = prometheus.query("vllm:num_requests_running")
        assert {(each["fleetctl_dev_fleet"], each["fleetctl_dev_lane"]) for each in engines} == {("chat", "short")}
        assert {each["pod"] for each in engines} == placed.engine_pods()
        until(lambda: set(prometheus.rules().values()) == {"ok"}, f"each rule is evaluated: {prometheus.rules()}")
    laptop.fleetctl("down", "chat", "--yes", timeout_s=120)


def post_chat(placed: PlacedFleet) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    url = f"http://{placed.endpoints()[0]}:{placed.port}/v1/chat/completions"
    answer = httpx.post(url, json=body, headers={"Authorization": f"Bearer {KEY}"}, timeout=30)
    assert answer.status_code == 200, answer.text
