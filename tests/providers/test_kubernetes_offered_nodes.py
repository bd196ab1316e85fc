"""Which changes of a cluster's machines are changes of what is offered, and what there is more of then."""

from __future__ import annotations

import asyncio
from typing import Any

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl_kubernetes.informer import Changed, Listed
from fleetctl_kubernetes.offered_nodes import OfferedNodes

PRODUCT = "NVIDIA-L40S"


def node(name: str, *, zone: str = "a", gpus: int = 2, **spec: Any) -> dict[str, Any]:
    labels = {"topology.kubernetes.io/zone": zone, "nvidia.com/gpu.product": PRODUCT}
    allocatable = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": allocatable}}


def shares(zone: str, *counts: int) -> frozenset[str]:
    return frozenset(f"{count}x{PRODUCT}/{zone}/on-demand" for count in counts)


def seen_of(*steps: Listed | Changed) -> list[frozenset[str] | None]:
    """Return what each step tells who listens; None: nothing has changed."""

    async def scenario() -> list[frozenset[str] | None]:
        offered, found = OfferedNodes(), []
        heard: asyncio.Queue[frozenset[str]] = asyncio.Queue()

        async def listen() -> None:
            async for grown in offered.watch_offerings():
                heard.put_nowait(grown)

        listening = asyncio.create_task(listen())
        await SYSTEM_CLOCK.sleep(0)
        for step in steps:
            offered.take_in(step)
            for _ in range(5):
                await SYSTEM_CLOCK.sleep(0)
            found.append(None if heard.empty() else heard.get_nowait())
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        return found

    return asyncio.run(scenario())


def test_cordons_change_what_is_offered_and_their_end_makes_it_more() -> None:
    assert seen_of(
        Listed((node("m"),)),
        Changed("MODIFIED", node("m", unschedulable=True)),
        Changed("MODIFIED", node("m", unschedulable=True)),
        Changed("MODIFIED", node("m")),
        Changed("MODIFIED", node("m", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])),
    ) == [shares("a", 1, 2), frozenset(), None, shares("a", 1, 2), frozenset()]


def test_machines_that_come_grow_and_go() -> None:
    assert seen_of(
        Listed(()),
        Changed("ADDED", node("m", zone="b", gpus=0)),  # its device plugin is not there yet
        Changed("MODIFIED", node("m", zone="b", gpus=1)),
        Changed("DELETED", node("m", zone="b", gpus=1)),
    ) == [None, frozenset(), shares("b", 1), frozenset()]


def test_what_a_listing_lacks_has_gone_and_what_was_there_before_is_no_news() -> None:
    assert seen_of(
        Listed((node("m"), node("n", zone="b"))),
        Listed((node("m"), node("n", zone="b"))),
        Listed((node("n", zone="b"),)),
        Listed((node("m", gpus=1), node("n", zone="b"))),
    ) == [shares("a", 1, 2) | shares("b", 1, 2), None, frozenset(), shares("a", 1)]
