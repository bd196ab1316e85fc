"""What the API server tells of objects is kept complete, whatever becomes of its watches; over sockets, by a server that misbehaves."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from fleetctl.errors import CredentialsError, ProviderError
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.samples import EPOCH
from fleetctl_kubernetes.connection import ApiTarget
from fleetctl_kubernetes.events import SeenObjects
from fleetctl_kubernetes.informer import Changed, ForbiddenError, Informer, Listed

Object = dict[str, Any]
PATH = "/api/v1/nodes"


def item(name: str, version: int, **spec: object) -> Object:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}, "spec": spec}


def event(kind: str, what: Object) -> bytes:
    return json.dumps({"type": kind, "object": what}).encode() + b"\n"


@dataclass
class ShakyServer:
    """Lists what it has, and ends each watch after the events that are written down for it."""

    items: list[Object]
    watches: list[list[bytes]] = field(default_factory=list)
    status: int = 200  # of listings
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def target(self) -> ApiTarget:
        return ApiTarget(url=self.url, headers={}, tls=None, server_name=None, proxy=None)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            self.requests.append("list")
            return web.json_response({"items": self.items, "metadata": {"resourceVersion": "10"}}, status=self.status)
        self.requests.append(f"watch from {request.query['resourceVersion']}")
        response = web.StreamResponse()
        await response.prepare(request)
        for line in self.watches.pop(0) if self.watches else ():
            await response.write(line)
        return response


async def first_of(server: ShakyServer, clock: ManualClock, count: int) -> list[Listed | Changed]:
    """Return the first so many things an informer tells, while time passes."""
    app = web.Application()
    app.router.add_get(PATH, server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    server.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
    informer = Informer(server, PATH, {}, clock)  # type: ignore[arg-type]  # all it needs of a connection is its target
    changes = informer.changes()
    try:
        found: list[Listed | Changed] = []
        async with asyncio.timeout(60):
            while len(found) < count:
                found.append(await passing(anext(changes), clock))
        return found
    finally:
        await changes.aclose()  # type: ignore[attr-defined]  # a generator
        await runner.cleanup()


async def passing(awaited: Any, clock: ManualClock) -> Any:
    """Wait for something while the clock goes on."""
    task = asyncio.ensure_future(awaited)
    while not (await asyncio.wait({task}, timeout=0.02))[0]:
        await clock.advance(1.0)
    return task.result()


def test_a_watch_that_ended_goes_on_where_it_was_and_lists_nothing_again() -> None:
    server = ShakyServer(
        [item("n1", 3)],
        [
            [event("MODIFIED", item("n1", 11)), event("BOOKMARK", item("", 20))],
            [event("ADDED", item("n2", 21))],
            [],
            [event("DELETED", item("n1", 22))],
        ],
    )
    found = asyncio.run(first_of(server, ManualClock(EPOCH), 4))
    assert found == [
        Listed((item("n1", 3),)),
        Changed("MODIFIED", item("n1", 11)),
        Changed("ADDED", item("n2", 21)),
        Changed("DELETED", item("n1", 22)),
    ]
    assert server.requests == ["list", "watch from 10", "watch from 20", "watch from 21", "watch from 21"]


def test_watches_that_end_at_once_come_ever_more_seldom() -> None:
    server, clock = ShakyServer([], [*[[]] * 9, [event("ADDED", item("n1", 11))]]), ManualClock(EPOCH)
    asyncio.run(first_of(server, clock, 2))
    assert len(server.requests) == 1 + 10
    assert clock.monotonic_s() >= 0.5 + 1 + 2 + 4 + 8 + 16 + 30 + 30 + 30


def test_what_is_forgotten_is_listed_anew() -> None:
    expired = {"kind": "Status", "code": 410, "message": "too old resource version"}
    server = ShakyServer([item("n1", 3)], [[event("ERROR", expired)]])
    found = asyncio.run(first_of(server, ManualClock(EPOCH), 2))
    assert found == [Listed((item("n1", 3),)), Listed((item("n1", 3),))]
    assert server.requests[:3] == ["list", "watch from 10", "list"]


def test_another_error_in_a_watch_breaks_it() -> None:
    server = ShakyServer([], [[event("ERROR", {"code": 500, "message": "etcd is slow"})]])
    with pytest.raises(ProviderError, match="etcd is slow"):
        asyncio.run(first_of(server, ManualClock(EPOCH), 2))


@pytest.mark.parametrize(("status", "is_forbidden"), [(401, False), (403, True)])
def test_a_token_that_expired_and_a_right_that_lacks_are_told_apart(status: int, is_forbidden: bool) -> None:
    with pytest.raises(CredentialsError) as raised:
        asyncio.run(first_of(ShakyServer([], status=status), ManualClock(EPOCH), 1))
    assert isinstance(raised.value, ForbiddenError) is is_forbidden


def test_pods_that_went_between_two_listings_are_said_to_have_gone() -> None:
    seen = SeenObjects()
    assert [kind for kind, _ in seen.pods(Listed((item("a", 1), item("b", 2), item("c", 3))))] == ["ADDED"] * 3
    again = item("c", 9)
    again["metadata"]["uid"] = "another"  # deleted and created under its name
    events = [(kind, pod["metadata"]["name"]) for kind, pod in seen.pods(Listed((item("a", 1), again)))]
    assert events == [("DELETED", "b"), ("DELETED", "c"), ("ADDED", "c")]


def test_five_thousand_machines_are_taken_in_and_one_that_has_gone_takes_its_notice_along() -> None:
    seen = SeenObjects()
    noticed = item("n7", 4, taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}])
    machines = [item(f"n{number}", 1) for number in range(5000) if number != 7]
    assert seen.pods(Listed((item("pod", 1, nodeName="n7"),))) != []
    assert [pod["metadata"]["name"] for _, pod in seen.machines(Listed((noticed, *machines)))] == ["pod"]
    assert list(seen.notices) == ["n7"]
    assert len(seen.machines(Listed(tuple(machines)))) == 1
    assert not seen.notices
