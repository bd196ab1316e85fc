"""The real KEDA scales a rendered lane by what its engines, and a picker before them, say of themselves to a real Prometheus."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from kubernetes import client, watch

from fleetctl.model.kubernetes_addition import KubernetesAddition
from tests.kube.answering import MODEL, RenderedFleet
from tests.kube.keda import GROUP, PLURAL, VERSION, running_keda
from tests.kube.picker import running_picker
from tests.kube.prometheus import running_prometheus
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kube.cluster import TestCluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(400),
    pytest.mark.allow_hosts(["127.0.0.1", "::1", "10.200.0.0/16"]),  # pods' addresses, on loopback
]

NAMESPACE = "scaled"
FLEET = "elastic"


@pytest.fixture(scope="module", autouse=True)
def _keda(cluster: TestCluster) -> Iterator[None]:
    with running_keda(cluster):
        yield


def scaled_object(fleet: RenderedFleet, url: str, *beside: KubernetesAddition) -> dict[str, Any]:
    """Return what is rendered for the lane, looked at each second: by default KEDA waits 30 s, and 300 s before the last goes."""
    kinds = fleet.objects(KubernetesAddition.KEDA, *beside, prometheus_url=url)
    (found,) = [each for each in kinds if each["kind"] == "ScaledObject"]
    found["spec"] |= {"pollingInterval": 1, "cooldownPeriod": 2}
    return found


def address(pod: Any) -> tuple[str, int]:
    (port,) = pod.spec.containers[0].ports
    return pod.status.pod_ip, port.container_port


def answers(cluster: TestCluster, fleet: RenderedFleet, namespace: str) -> int:
    """Return how many engines are ready, each of which has just answered."""
    pods = fleet.pods(cluster, namespace)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    for pod in pods.values():
        host, port = address(pod)
        assert httpx.post(f"http://{host}:{port}/v1/chat/completions", json=body, timeout=30).status_code == 200
    return len(pods)


@contextmanager
def requests_held(at: tuple[str, int], count: int) -> Iterator[None]:
    """Have so many long requests run or wait at an engine, until their clients go away."""
    wanted = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "go on"}],
        "max_tokens": 4000,
        "ignore_eos": True,
    }
    body = json.dumps(wanted).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {at[0]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(at, timeout=10))
            connection.sendall(head.encode() + b"\r\n\r\n" + body)
        yield


def apply_again(
    cluster: TestCluster, fleet: RenderedFleet, url: str, namespace: str, *beside: KubernetesAddition
) -> None:
    """Apply the rendered Deployment as a pipeline does."""
    for written in fleet.objects(KubernetesAddition.KEDA, *beside, prometheus_url=url, namespace=namespace):
        if written["kind"] == "Deployment" and written["metadata"]["name"] == fleet.deployment:
            client.AppsV1Api(cluster.api).patch_namespaced_deployment(
                fleet.deployment, namespace, written, field_manager="pipeline", force=True,
                _content_type="application/apply-patch+yaml",
            )  # fmt: skip


def test_a_lane_follows_the_requests_at_its_engines_from_one_to_four_and_back_without_any_gateway(
    cluster: TestCluster, tmp_path: Path
) -> None:
    fleet = RenderedFleet.of(FLEET, replicas=1, bounds=(0, 4))
    kinds = (KubernetesAddition.KEDA, KubernetesAddition.MONITORS)
    custom = client.CustomObjectsApi(cluster.api)
    monitors = fleet.objects(*kinds)
    cluster.namespace(NAMESPACE)
    try:
        fleet.apply(cluster, NAMESPACE, *kinds)
        until(lambda: answers(cluster, fleet, NAMESPACE) == 1, "the first engine answers", within_s=90)
        with running_prometheus(cluster, NAMESPACE, monitors, tmp_path) as prometheus:
            wanted = scaled_object(fleet, prometheus.url)
            (trigger,) = wanted["spec"]["triggers"]
            query, each = trigger["metadata"]["query"], float(trigger["metadata"]["threshold"])
            custom.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, wanted)
            (first,) = fleet.pods(cluster, NAMESPACE).values()
            until(lambda: [at["value"] for at in prometheus.query(query)] == [0.0], "the query sees an idle engine")
            held = round(3.5 * each)
            with requests_held(address(first), held):
                until(
                    lambda: len(fleet.pods(cluster, NAMESPACE)) == 4, "four engines are ready", within_s=60,
                    explain=lambda: (prometheus.query(query), scaled_status(custom, NAMESPACE)),
                )  # fmt: skip
                assert [at["value"] for at in prometheus.query(query)] == [held]
                apply_again(cluster, fleet, prometheus.url, NAMESPACE)
                assert scale(cluster, fleet, NAMESPACE) == 4
            # Nobody else is left: one engine stays, although the lane may have none, since none would see a request come.
            until(lambda: len(fleet.pods(cluster, NAMESPACE)) == 1, "one engine is left", within_s=60)
            assert answers(cluster, fleet, NAMESPACE) == 1
    finally:
        end(cluster, fleet, NAMESPACE)


def scale(cluster: TestCluster, fleet: RenderedFleet, namespace: str) -> int:
    """Return how many replicas are wanted."""
    deployment = client.AppsV1Api(cluster.api).read_namespaced_deployment(fleet.deployment, namespace)
    return int(deployment.spec.replicas)


@contextmanager
def scales_seen(cluster: TestCluster, fleet: RenderedFleet, namespace: str) -> Iterator[list[int]]:
    """Have each change of the replicas that are wanted noted, whoever makes it."""
    found: list[int] = []
    watched, is_over = watch.Watch(), threading.Event()

    def follow() -> None:
        api = client.AppsV1Api(cluster.api)
        chosen = f"metadata.name={fleet.deployment}"
        # Short watches, so that the last has ended soon after nobody wants to know any more; each goes on where one ended.
        while not is_over.is_set():
            for event in watched.stream(
                api.list_namespaced_deployment, namespace, field_selector=chosen, timeout_seconds=2
            ):
                wanted = event["object"].spec.replicas
                if found[-1:] != [wanted]:
                    found.append(wanted)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join(60)


def test_a_lane_goes_to_zero_and_the_request_that_waits_in_its_picker_brings_it_back(
    cluster: TestCluster, tmp_path: Path
) -> None:
    namespace = "woken"
    fleet = RenderedFleet.of("sleeper", replicas=1, bounds=(0, 4))
    beside = (KubernetesAddition.MONITORS, KubernetesAddition.INFERENCE)
    custom, rendered = client.CustomObjectsApi(cluster.api), fleet.objects(KubernetesAddition.KEDA, *beside)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    with ExitStack() as stack:
        cluster.namespace(namespace)
        stack.callback(end, cluster, fleet, namespace)
        fleet.apply(cluster, namespace, KubernetesAddition.KEDA, *beside)
        until(lambda: answers(cluster, fleet, namespace) == 1, "the first engine answers", within_s=90)
        picker = stack.enter_context(running_picker(cluster, namespace, rendered, tmp_path))
        jobs = [picker.scrape_job()]
        scraped = stack.enter_context(ExitStack())
        prometheus = scraped.enter_context(running_prometheus(cluster, namespace, rendered, tmp_path, others=jobs))
        assert picker.send(body).status_code == 200
        scales = stack.enter_context(scales_seen(cluster, fleet, namespace))
        wanted = scaled_object(fleet, prometheus.url, *beside)
        engines, held = (each["metadata"]["query"] for each in wanted["spec"]["triggers"])
        each = float(wanted["spec"]["triggers"][0]["metadata"]["threshold"])

        def explain() -> Any:
            return scales, [prometheus.query(query) for query in (engines, held)], scaled_status(custom, namespace)

        until(
            lambda: [at["value"] for query in (engines, held) for at in prometheus.query(query)] == [0.0, 0.0],
            "the queries see an idle lane", explain=explain,
        )  # fmt: skip
        (first,) = fleet.pods(cluster, namespace).values()
        with requests_held(address(first), 1):
            # Held before KEDA looks: the lane would be at zero in two seconds.
            # For some seconds, since KEDA asks for what was at the second before.
            seen = f"min_over_time(({engines})[3s:1s])"
            until(lambda: [at["value"] for at in prometheus.query(seen)] == [1.0], "the request is seen")
            custom.create_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, wanted)
            with requests_held(address(first), round(3.5 * each) - 1):
                until(lambda: len(fleet.pods(cluster, namespace)) == 4, "four are ready", within_s=60, explain=explain)
            until(lambda: scale(cluster, fleet, namespace) == 1, "one is wanted", within_s=60, explain=explain)
        until(lambda: scale(cluster, fleet, namespace) == 0, "none is wanted", within_s=60, explain=explain)
        until(lambda: not cluster.names(namespace), "none is left", within_s=90)
        apply_again(cluster, fleet, prometheus.url, namespace, *beside)
        # It stays there, by figures that are of a lane at zero: the picker's, seen since, and no engine's.
        until(
            lambda: [at["value"] for at in prometheus.query(f"({engines}) + ({held})")] == [0.0],
            "it is seen at zero",
            explain=explain,
        )
        assert scale(cluster, fleet, namespace) == 0
        # Who asks now waits for an engine, and is answered by it.
        assert picker.send(body).status_code == 200, explain()
        assert answers(cluster, fleet, namespace) == 1
        until(lambda: scale(cluster, fleet, namespace) == 0, "it goes to zero again", within_s=60, explain=explain)
        assert [*turns(scales)] == [1, 4, 0, 1, 0], scales  # nobody fought over them
        # Who cannot know whether requests wait has as many as were planned.
        scraped.close()
        until(
            lambda: scale(cluster, fleet, namespace) == 1, "the planned one is back", within_s=60,
            explain=lambda: scaled_status(custom, namespace),
        )  # fmt: skip


def turns(scales: list[int]) -> Iterator[int]:
    """Yield where a series turned: first, peaks, lows and last, so that how many steps a way took does not matter."""
    for number, each in enumerate(scales):
        before, after = scales[number - 1 : number], scales[number + 1 : number + 2]
        if not before or not after or (each - before[0]) * (after[0] - each) < 0:
            yield each


def end(cluster: TestCluster, fleet: RenderedFleet, namespace: str) -> None:
    """Have a rendered fleet gone, with what is no namespace's."""
    cluster.core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
    remove_scaled_object(cluster, namespace)
    cluster.core.delete_namespace(namespace)
    fleet.remove_classes(cluster, namespace)


def scaled_status(custom: Any, namespace: str) -> Any:
    return [
        each.get("status") for each in custom.list_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL)["items"]
    ]


def remove_scaled_object(cluster: TestCluster, namespace: str) -> None:
    """Have it gone while KEDA is there to let go of it."""
    custom = client.CustomObjectsApi(cluster.api)
    custom.delete_collection_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL)
    until(lambda: not custom.list_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL)["items"], "it has gone")
