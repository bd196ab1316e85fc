"""Gateways as pods of their own (`host: kubernetes`): their death, their replacement and the controller's, under requests."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import httpx
import psutil
import pytest
from kubernetes import client

from fleetctl.catalogue.kubernetes_parts import IN_NAMESPACE
from fleetctl.catalogue.kubernetes_rights import (
    AUTOSCALER_NODE_RIGHTS,
    CLAIM_NODE_RIGHTS,
    NODE_RIGHTS,
    PRIORITY_NAMED_RIGHTS,
    PRIORITY_RIGHTS,
    STATE_RIGHTS,
    UPKEEP_RIGHTS,
)
from fleetctl.clock import SYSTEM_CLOCK
from tests.kube.assets import control_plane_assets
from tests.kube.live_fleet import Senders
from tests.kube.placed_fleet import KEY, MODEL, PlacedFleet, placed
from tests.sender import SENDER
from tests.waiting import until

if TYPE_CHECKING:
    from tests.kube.cluster import TestCluster

__all__ = ["placed"]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.allow_hosts(["127.0.0.1", "::1", "10.200.0.0/16"]),  # pods' addresses, on loopback
]

_TOKENS = 24


class Traffic(Senders):
    """Requests from several clients where the Service leads: each on a connection of its own, to an endpoint that is ready.

    The endpoints are those of a moment ago, as kube-proxy's are. Every other answer is a stream, read to its end.
    """

    def __init__(self, placed: PlacedFleet) -> None:
        self.ended: Counter[str] = Counter()
        self.failures: list[str] = []
        self.endpoints, self._port = placed.endpoints, placed.port
        self._ready: tuple[str, ...] = ()
        senders = [threading.Thread(target=self._send, args=(n,)) for n in range(4)]
        super().__init__(*senders, threading.Thread(target=self._follow))

    def __enter__(self) -> Self:
        self._ready = self.endpoints()
        return super().__enter__()

    @property
    def whole(self) -> int:
        return self.ended["whole"]

    def _follow(self) -> None:
        while not self._over.wait(0.3):
            self._ready = self.endpoints()

    def _send(self, number: int) -> None:
        rng = random.Random(number)
        while not self._over.wait(0.1):
            self._post(rng.choice(self._ready or ("10.200.255.254",)), is_stream=rng.random() < 0.5)

    def _post(self, host: str, *, is_stream: bool) -> None:
        body = {
            "model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": _TOKENS, "ignore_eos": True,
            "stream": is_stream,
        }  # fmt: skip
        try:
            found = SENDER.post(
                f"http://{host}:{self._port}/v1/chat/completions", json=body, timeout=60,
                headers={"Authorization": f"Bearer {KEY}"},
            )  # fmt: skip
        except httpx.HTTPError as exc:
            self._count(f"{type(exc).__name__}: {exc}")
            return
        is_whole = found.status_code == 200 and (not is_stream or found.text.rstrip().endswith("data: [DONE]"))
        self._count("whole" if is_whole else f"{found.status_code} {found.text[-200:]}")

    def _count(self, how: str) -> None:
        self.ended[how] += 1
        if how != "whole":
            self.failures.append(how)


def test_gateways_are_killed_and_replaced_and_the_controller_too_while_requests_go_on(placed: PlacedFleet) -> None:
    laptop, two = placed.laptop, ("api_keys", "processes: 2, api_keys")
    placed.write_profile(two)
    before = placed.everything()
    laptop.fleetctl("up", str(placed.profile), "--yes", timeout_s=240)
    with Traffic(placed) as traffic:
        until(lambda: len(placed.endpoints()) == 2, "both gateways are ready")
        until(lambda: traffic.whole > 20, "requests are answered")
        assert [(each.number, each.answers) for each in laptop.status("chat").gateways] == [(1, True), (2, True)]
        _assert_rights_are_minimal(placed)
        _assert_a_gateway_has_little(placed)
        _replace_controllers(placed, traffic)
        placed.write_profile(two, ("tests/fleetctl:1", "tests/fleetctl:2"))
        _roll(placed, traffic)
        _kill_one(placed, traffic)
        _stop_one(placed, traffic)
    laptop.fleetctl("down", "chat", "--yes", timeout_s=120)
    until(lambda: placed.everything() == before, f"nothing is left: {placed.everything()} {before}", within_s=30)


def _replace_controllers(placed: PlacedFleet, traffic: Traffic) -> None:
    """The controller's pod goes: gateways serve on by the table they have, and the next controller finds them."""
    gateways, seen = _gateways(placed), traffic.whole
    placed.cluster.core.delete_namespaced_pod(placed.controller_pod().metadata.name, placed.namespace)
    until(lambda: is_led(placed), "the next controller is at work", within_s=90)
    assert traffic.whole > seen
    assert traffic.failures == []

    # One that stands still is replaced too, though no gateway is there to do it.
    stopped = placed.laptop.status("chat").controller_pid
    psutil.Process(stopped).send_signal(signal.SIGSTOP)
    until(
        lambda: is_led(placed) and placed.laptop.status("chat").controller_pid != stopped, "it is replaced", within_s=90
    )
    assert traffic.failures == []
    assert _gateways(placed) == gateways


def _roll(placed: PlacedFleet, traffic: Traffic) -> None:
    """Another image: one gateway more at a time, and each of the old ones serves until clients know of another."""
    gateways = _gateways(placed)
    placed.laptop.fleetctl("up", str(placed.profile), "--yes", timeout_s=240)
    until(lambda: not _gateways(placed) & gateways and len(placed.endpoints()) == 2, "rolled", within_s=90)
    seen = traffic.whole
    until(lambda: traffic.whole > seen + 20 and is_led(placed), "requests go on")
    assert traffic.failures == []


def _kill_one(placed: PlacedFleet, traffic: Traffic) -> None:
    """What it had is lost, and nothing else once the Service knows."""
    victim = min(placed.endpoints())
    gateway_at(victim, placed.port).send_signal(signal.SIGKILL)
    until(lambda: victim not in placed.endpoints(), "the Service leads there no more", within_s=30)
    SYSTEM_CLOCK.sleep_blocking(1.0)
    lost = len(traffic.failures)
    assert lost <= 40, traffic.failures
    until(lambda: len(placed.endpoints()) == 2 and is_led(placed), "it is back, and has its part")
    seen = traffic.whole
    until(lambda: traffic.whole > seen + 20, "requests go on")
    assert len(traffic.failures) == lost, traffic.failures


def _stop_one(placed: PlacedFleet, traffic: Traffic) -> None:
    """One hangs: the Service leads there no more, its part goes to the other, `status` names its pod, and it is taken in again."""
    victim = min(placed.endpoints())
    (pod,) = [each for each in placed.gateway_pods() if each.status.pod_ip == victim]
    process = gateway_at(victim, placed.port)
    process.send_signal(signal.SIGSTOP)
    try:
        until(lambda: victim not in placed.endpoints(), "the Service leads there no more", within_s=20)

        def silent() -> list[str]:
            return [each.place for each in placed.laptop.status("chat").gateways if not each.answers]

        until(lambda: silent() == [f"pod {pod.metadata.name} on {pod.spec.node_name}"], "status names it", within_s=20)
        with Traffic(placed) as others:  # those before wait for what it stands on
            until(lambda: others.whole > 20, "requests are answered by the other alone", within_s=20)
            assert others.failures == []
    finally:
        process.send_signal(signal.SIGCONT)
    until(lambda: len(placed.endpoints()) == 2 and is_led(placed), "it has its part again")
    seen = traffic.whole
    until(lambda: traffic.whole > seen + 20, "requests go on")


def _gateways(placed: PlacedFleet) -> set[str]:
    """Return the uids of the gateways' pods, those too that are ending."""
    return {each.metadata.uid for each in placed.gateway_pods()}


def is_led(placed: PlacedFleet) -> bool:
    """Whether a controller is at work, and hears from both gateways."""
    found = placed.laptop.status("chat")
    return found.controller_alive and len(found.gateways) == 2 and all(each.answers for each in found.gateways)


def gateway_at(address: str, port: int) -> psutil.Process:
    """Return the process that is the gateway at this address."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "fleetctl.gateway" in words and address in words and str(port) in words:
            return process
    raise AssertionError(f"no gateway at {address}")


def _assert_rights_are_minimal(placed: PlacedFleet) -> None:
    """The controller's account may do what the lists say, and nothing else, by `kubectl auth can-i --list`; a gateway's nothing."""
    cluster, namespace = placed.cluster, placed.namespace
    account = f"system:serviceaccount:{namespace}:chat-fleetctl"
    everybody = _may(cluster, f"system:serviceaccount:{namespace}:default", namespace)
    of_cluster = {
        *NODE_RIGHTS, *AUTOSCALER_NODE_RIGHTS, *CLAIM_NODE_RIGHTS, *PRIORITY_RIGHTS, *PRIORITY_NAMED_RIGHTS,
    }  # fmt: skip
    assert _may(cluster, account, namespace) - everybody == {*IN_NAMESPACE, *UPKEEP_RIGHTS, *of_cluster}
    assert _may(cluster, account, placed.records) - everybody == {*STATE_RIGHTS, *of_cluster}
    assert _may(cluster, account, "default") - everybody == of_cluster
    assert not [what for _, what in everybody if not what.startswith("self")]


def _may(cluster: TestCluster, account: str, namespace: str) -> set[tuple[str, str]]:
    """Return what an account may do in a namespace, as (verb, resource)."""
    found = subprocess.run(
        [
            str(control_plane_assets() / "kubectl"), "--kubeconfig", str(cluster.kubeconfig), "auth", "can-i", "--list",
            "--no-headers", "-n", namespace, "--as", account, "--as-group", "system:authenticated",
        ],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    lines = [line for line in found.stdout.splitlines() if not line.startswith(" ")]
    return {(verb, line.split()[0]) for line in lines for verb in line[line.rindex("[") + 1 : line.rindex("]")].split()}


def _assert_a_gateway_has_little(placed: PlacedFleet) -> None:
    """Its pod passes `restricted`, has no account's token, and of the fleet's Secret the one key that it needs."""
    (pod, _) = placed.gateway_pods()
    assert pod.spec.automount_service_account_token is False
    assert pod.spec.security_context.run_as_user == 65532
    assert pod.spec.containers[0].security_context.read_only_root_filesystem
    mounted: list[Any] = [each.secret for each in pod.spec.volumes if each.secret is not None]
    assert [[item.key for item in each.items] for each in mounted] == [["gateway-token"]]
    policy = client.NetworkingV1Api(placed.cluster.api).read_namespaced_network_policy(
        "chat-fleetctl-gateway", placed.namespace
    )
    public, control = policy.spec.ingress
    assert public._from is None
    assert control._from[0].pod_selector.match_labels["app.kubernetes.io/name"] == "fleetctl"
