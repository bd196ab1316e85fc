"""Notices as instances tell them of themselves, by their own metadata: the second source, which needs no right of AWS."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fleetctl.model.node import NodeState, Notice, NoticeKind
from fleetctl_aws.network import NOTICE_PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleetctl.clock import Clock
    from fleetctl.model.node import Node

_CONNECT_S, _ANSWER_S = 5.0, 30.0  # it answers within 20 s
_AGAIN_S, _AGAIN_S_MAX = 1.0, 30.0
_LOOK_S = 1.0
_ANSWER_BYTES_MAX = 64 * 1024
_FOLLOWED_MAX = 1_000


class InstanceNotices:
    """Follows the instances that listings show running; one that does not answer is asked again, and no error."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown: dict[tuple[str, str], dict[str, tuple[Node, ...]]] = {}

    def note(self, owner: str, fleet: str, nodes: Iterable[Node]) -> None:
        """Take in a listing: where the fleet's running instances are reached, and who is on them."""
        shown: dict[str, tuple[Node, ...]] = {}
        for node in nodes:
            if node.state is NodeState.RUNNING and node.host:
                shown[node.machine_id] = (*shown.get(node.machine_id, ()), node)
        self._shown[owner, fleet] = shown

    def nodes(self, owner: str, fleet: str, instance_id: str) -> tuple[Node, ...]:
        """Return who is on an instance, as it was last listed."""
        return self._shown.get((owner, fleet), {}).get(instance_id, ())

    async def follow(self, owner: str, fleet: str, on_notice: Callable[[str, Notice], object]) -> None:
        """Call `on_notice` with an instance's id and each notice that is new of it, for ever."""
        polling: dict[str, tuple[str, asyncio.Task[None]]] = {}
        try:
            while True:
                listed = self._shown.get((owner, fleet), {})
                shown = {instance_id: nodes[0].host for instance_id, nodes in listed.items()}
                for instance_id, (host, task) in list(polling.items()):
                    if shown.get(instance_id) != host:
                        task.cancel()
                        del polling[instance_id]
                for instance_id, host in shown.items():
                    if instance_id not in polling and len(polling) < _FOLLOWED_MAX:
                        task = asyncio.create_task(
                            self._poll(instance_id, host, on_notice), name=f"notices/{instance_id}"
                        )
                        polling[instance_id] = (host, task)
                await self._clock.sleep(_LOOK_S)
        finally:
            for _, task in polling.values():
                task.cancel()
            await asyncio.gather(*(task for _, task in polling.values()), return_exceptions=True)

    async def _poll(self, instance_id: str, host: str, on_notice: Callable[[str, Notice], object]) -> None:
        digest, earlier, again_s = "", frozenset[Notice](), _AGAIN_S
        while True:
            try:
                digest, page = await _answer(host, digest)
            except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
                await self._clock.sleep(again_s)
                again_s = min(_AGAIN_S_MAX, 2.0 * again_s)
                continue
            again_s = _AGAIN_S
            # Addresses are given anew: what another instance says is not of this one.
            found = frozenset(notices_in(page)) if page.get("instance_id") == instance_id else frozenset()
            for notice in sorted(found - earlier, key=lambda each: each.is_certain, reverse=True):
                on_notice(instance_id, notice)
            earlier = found


def notices_in(page: dict[str, Any]) -> Iterable[Notice]:
    """Yield what an instance says of its end; what is in another form than AWS documents says nothing."""
    if action := _parsed(page.get("interruption")):
        deadline = _instant(action.get("time")) if isinstance(action, dict) else None
        if deadline is not None:
            yield Notice(kind=NoticeKind.INTERRUPTION, deadline=deadline, is_certain=True)
    if _parsed(page.get("rebalance")):
        yield Notice(kind=NoticeKind.REBALANCE, deadline=None, is_certain=False)
    events = _parsed(page.get("maintenance"))
    if isinstance(events, list) and any(isinstance(e, dict) and e.get("State") == "active" for e in events):
        yield Notice(kind=NoticeKind.MAINTENANCE, deadline=None, is_certain=False)


async def _answer(host: str, digest: str) -> tuple[str, dict[str, Any]]:
    """Return what an instance says that it did not say with this digest. Raises OSError, ValueError, TimeoutError."""
    async with asyncio.timeout(_CONNECT_S):
        reader, writer = await asyncio.open_connection(host, NOTICE_PORT, limit=_ANSWER_BYTES_MAX)
    try:
        async with asyncio.timeout(_ANSWER_S):
            writer.write(f"GET /{digest} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            body = await reader.read(_ANSWER_BYTES_MAX)
    except asyncio.LimitOverrunError as exc:
        raise ValueError(str(exc)) from exc
    finally:
        writer.close()
    named = dict(line.partition(": ")[::2] for line in head.lower().split("\r\n"))
    page = json.loads(body)
    if not isinstance(page, dict):
        raise ValueError("no object")  # noqa: TRY004  # one of the forms that an answer may not have
    return named.get("etag", ""), page


def _parsed(text: object) -> Any:  # noqa: ANN401  # JSON of any form
    try:
        return json.loads(text) if isinstance(text, str) and text else None
    except ValueError:
        return None


def _instant(text: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
