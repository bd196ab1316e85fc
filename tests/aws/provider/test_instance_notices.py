"""Notices that instances tell of themselves: on a booted instance, with a queue and without any right to one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.node import NodeState, NoticeKind
from fleetctl_aws.instance_notices import asked_again_s, notices_in
from tests.aws.cloud.client import Cloud, running_cloud
from tests.aws.cloud.network import why_not_namespaced
from tests.aws.provider.conftest import Rented
from tests.providers.contract.cases import FLEET, Account

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.model.node import Node, Notice

ORDER = {"offering": "g6.xlarge/us-east-1b/spot", "port": 8000}
WHOLE = {
    "interruption": '{"action": "terminate", "time": "2026-11-28T08:22:00Z"}',
    "rebalance": '{"noticeTime": "2026-11-28T08:20:00Z"}',
    "maintenance": '[{"Code": "system-reboot", "State": "active", "NotBefore": "21 Jan 2027 09:00:43 GMT"}]',
}


@pytest.mark.parametrize(
    ("page", "kinds"),
    [
        (WHOLE, ["interruption", "rebalance", "maintenance"]),
        (dict.fromkeys(WHOLE, ""), []),
        ({"interruption": "no JSON", "rebalance": "", "maintenance": "{}"}, []),
        ({"interruption": '{"action": "terminate", "time": "soon"}', "maintenance": "[1]"}, []),
        ({"maintenance": '[{"State": "completed"}]'}, []),
    ],
)
def test_what_metadata_say_is_read_as_aws_documents_it(page: dict[str, str], kinds: list[str]) -> None:
    found = list(notices_in(page))
    assert [each.kind.value for each in found] == kinds
    assert all(each.takes_node is (each.kind is NoticeKind.INTERRUPTION) for each in found)


def test_an_instance_that_starts_is_asked_every_few_seconds_and_one_that_is_silent_for_long_seldom() -> None:
    waits, followed_s = [1.0], 0.0
    while followed_s < 3600.0:
        followed_s += waits[-1]
        waits.append(asked_again_s(waits[-1], followed_s=followed_s))
    assert max(waits[:200]) == 4.0, "some phases of a start are over within seconds"
    assert waits[-1] == 30.0


@pytest.fixture(scope="module")
def booting() -> Iterator[Cloud]:
    with running_cloud("--boot") as running:
        yield running


@pytest.mark.e2e
@pytest.mark.enable_socket
@pytest.mark.timeout(180)
@pytest.mark.skipif(bool(why_not_namespaced()), reason="an instance needs a network namespace to be reached in")
async def test_an_instance_tells_of_its_end_where_no_queue_is_allowed(
    booting: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in booting.environment.items():
        monkeypatch.setenv(name, value)
    booting.fault("error", service="sqs", action="*", code="AccessDenied", status=403, times=None)
    rented = Rented(booting)
    provider = rented.provider(instance_profile="", gateway_source=f"{booting.facts['host']}/32")
    account = Account(provider, SYSTEM_CLOCK, "owner-without-queue", defaults=ORDER)
    made = await account.node("t-1")
    events = provider.capabilities.events
    assert events is not None
    heard: asyncio.Queue[tuple[float, Node]] = asyncio.Queue()

    async def listen() -> None:
        async for node in events.watch(owner=account.owner, fleet=FLEET):
            await heard.put((SYSTEM_CLOCK.monotonic_s(), node))

    listening = asyncio.create_task(listen())
    try:
        async with asyncio.timeout(60):
            while (await account.listing()).nodes[0].state is not NodeState.RUNNING:
                await SYSTEM_CLOCK.sleep(0.2)
        booting.rebalance(made.id)
        assert (await notice(heard)).kind is NoticeKind.REBALANCE
        begun_s = SYSTEM_CLOCK.monotonic_s()
        booting.interrupt(made.id, notice_s=60.0, event=False)
        taken = await notice(heard)
        assert (taken.kind, taken.takes_node) == (NoticeKind.INTERRUPTION, True)
        assert SYSTEM_CLOCK.monotonic_s() - begun_s < 50.0  # before its notice ends
        async with asyncio.timeout(20):  # and a controller that starts later finds it in the tags
            while (kept := (await account.listing()).nodes[0].notice) is None or not kept.is_certain:
                await SYSTEM_CLOCK.sleep(0.2)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await provider.stop(made.id, grace_s=1.0)


async def notice(heard: asyncio.Queue[tuple[float, Node]]) -> Notice:
    async with asyncio.timeout(45):
        while True:
            _, node = await heard.get()
            if node.notice is not None:
                return node.notice
