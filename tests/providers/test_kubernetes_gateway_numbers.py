"""Which pods count as a fleet's gateways: those that answer, and of those that should have ended long ago none that is silent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.codec import encode
from fleetctl.errors import UnavailableError
from fleetctl.model.gateway_process import GatewayIdentity
from fleetctl_kubernetes.gateway_pods import GatewayPod, GatewayPods, NumberedPods

if TYPE_CHECKING:
    from collections.abc import Mapping


class Pods(GatewayPods):
    """Pods of which some answer, each with a number that it keeps itself."""

    def __init__(self, *pods: GatewayPod) -> None:
        self.pods = list(pods)
        self.silent: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.calls: list[str] = []

    def listed(self) -> tuple[GatewayPod, ...]:
        return tuple(self.pods)

    def call(
        self, pod: GatewayPod, method: str, path: str, query: Mapping[str, str] | None = None, *, epoch: int = 0
    ) -> bytes:
        del epoch
        self.calls.append(pod.name)
        if pod.name in self.silent:
            raise UnavailableError(f"{pod.name} does not answer")
        if method == "PUT":
            assert query is not None
            assert path == "/v1/number"
            self.numbers[pod.name] = int(query["number"])
        return encode(GatewayIdentity(instance=pod.name, number=self.numbers.get(pod.name, 0)))


def pod(name: str) -> GatewayPod:
    return GatewayPod(name=name, uid=name, address="10.0.0.1", restarts=0, is_leaving=False, is_ready=True, node="n1")


def names(numbered: NumberedPods) -> dict[int, str]:
    return {number: each.name for number, each in numbered.by_number.items()}


def test_one_that_is_overdue_and_silent_is_no_gateway_any_more_and_one_that_is_heard_again_is_one() -> None:
    pods = Pods(pod("a"), pod("b"))
    numbered = NumberedPods(pods, epoch=lambda: 1, again_s=0.0)
    assert numbered.look()
    assert names(numbered) == {1: "a", 2: "b"}
    pods.silent = {"b"}
    assert not numbered.look(), "one that hangs keeps its number: what it has of the limits is its own"
    pods.pods[1] = replace(pods.pods[1], is_leaving=True)
    assert not numbered.look()
    pods.pods[1] = replace(pods.pods[1], is_overdue=True)
    assert numbered.look()
    assert names(numbered) == {1: "a"}
    pods.silent = set()  # its machine was cut off, and is back
    assert numbered.look()
    assert names(numbered) == {1: "a", 2: "b"}


def test_one_that_is_overdue_is_asked_now_and_then_and_its_number_may_be_anothers_by_then() -> None:
    pods = Pods(pod("a"), replace(pod("b"), is_leaving=True, is_overdue=True))
    pods.numbers, pods.silent = {"b": 2}, {"b"}
    numbered = NumberedPods(pods, epoch=lambda: 1)
    for _ in range(5):
        numbered.look()
    assert pods.calls.count("b") == 1
    pods.pods.append(pod("c"))
    numbered.look()
    assert names(numbered) == {1: "a", 2: "c"}
    pods.silent = set()
    back = NumberedPods(pods, epoch=lambda: 1)
    back.look()
    assert names(back) == {1: "a", 2: "b", 3: "c"}
