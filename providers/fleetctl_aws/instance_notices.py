"""What instances tell of themselves: notices, by their own metadata, how far their engines' starts are, which they start no more. It needs no right of AWS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fleetctl.model.boot import WEIGHTS, BootStep
from fleetctl.model.node import BootProgress, NodeState, Notice, NoticeKind
from fleetctl.printable import printable
from fleetctl_aws.given_up import given_up_in, with_crash_loop
from fleetctl_aws.network import NOTICE_PORT
from fleetctl_aws.slots import parse_node_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleetctl.clock import Clock
    from fleetctl.model.node import Node
    from fleetctl_aws.given_up import GivenUp

_CONNECT_S, _ANSWER_S = 5.0, 30.0  # it answers within 20 s
_AGAIN_S, _AGAIN_S_MAX = 1.0, 30.0
# An instance that starts answers nobody for a while, and is through some phases of its engine's start within seconds.
_STARTS_S, _AGAIN_S_MAX_STARTING = 900.0, 4.0
_LOOK_S = 1.0
_ANSWER_BYTES_MAX = 256 * 1024  # sixteen engines that were given up, each with 3,000 characters of its log as JSON
_FOLLOWED_MAX = 1_000
_FAULT_CHARS_MAX = 600
# An instance's id, and its notice; None: it has none.
OnNews = Callable[[str, Notice | None], object]
_FETCHING = frozenset({"image", WEIGHTS})


class InstanceNotices:
    """Follows the instances that listings show running; one that does not answer is asked again, and no error."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown: dict[tuple[str, str], dict[str, tuple[Node, ...]]] = {}
        self._boots: dict[str, dict[int, BootProgress]] = {}  # instance -> slot -> as it was last told
        self._faults: dict[tuple[str, str], dict[str, dict[int, str]]] = {}  # fleet -> the same, of a start that failed
        self._given_up: dict[tuple[str, str], dict[str, dict[int, GivenUp]]] = {}  # fleet -> the same

    def note(self, owner: str, fleet: str, nodes: Iterable[Node]) -> None:
        """Take in a listing: where the fleet's running instances are reached, and who is on them."""
        shown: dict[str, tuple[Node, ...]] = {}
        nodes = tuple(nodes)
        for node in nodes:
            if node.state is NodeState.RUNNING and node.host:
                shown[node.machine_id] = (*shown.get(node.machine_id, ()), node)
        self._shown[owner, fleet] = shown
        # Of one that has ended, too, for as long as it is listed: then it is asked why.
        listed = {node.machine_id for node in nodes}
        key = owner, fleet
        self._faults[key] = {each: known for each, known in self._faults.get(key, {}).items() if each in listed}
        self._given_up[key] = {each: known for each, known in self._given_up.get(key, {}).items() if each in listed}
        living = {instance_id for each in self._shown.values() for instance_id in each}
        self._boots = {instance_id: boots for instance_id, boots in self._boots.items() if instance_id in living}

    def with_boot(self, node: Node) -> Node:
        """Return a running node with what its instance has told of its engine's start, an ended one with why that failed."""
        instance_id, number = parse_node_id(node.id)
        if node.state is NodeState.GONE:
            faults = self._faults.get((node.owner, node.fleet), {})
            node = replace(node, log_tail=faults.get(instance_id, {}).get(number, ""))
        node = with_crash_loop(node, self.given_up(node.owner, node.fleet, instance_id).get(number))
        progress = self._boots.get(instance_id, {}).get(number)
        if progress is None or node.state is not NodeState.RUNNING:
            return node
        return replace(node, boot=progress, pending_reason=progress.fault)

    def given_up(self, owner: str, fleet: str, instance_id: str) -> dict[int, GivenUp]:
        """Return by slot the engines that an instance starts no more, as it was last told."""
        return self._given_up.get((owner, fleet), {}).get(instance_id, {})

    def nodes(self, owner: str, fleet: str, instance_id: str) -> tuple[Node, ...]:
        """Return who is on an instance, as it was last listed."""
        return self._shown.get((owner, fleet), {}).get(instance_id, ())

    def has_any(self, owner: str, fleet: str) -> bool:
        """Whether the latest listing showed running instances of a fleet."""
        return bool(self._shown.get((owner, fleet)))

    async def follow(self, owner: str, fleet: str, on_news: OnNews) -> None:
        """Call `on_news` with an instance's id and each notice that is new of it, or what it has when an engine comes to another phase; for ever."""
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
                            self._poll((owner, fleet), instance_id, host, on_news), name=f"notices/{instance_id}"
                        )
                        polling[instance_id] = (host, task)
                await self._clock.sleep(_LOOK_S)
        finally:
            for _, task in polling.values():
                task.cancel()
            await asyncio.gather(*(task for _, task in polling.values()), return_exceptions=True)

    async def _poll(self, owner_and_fleet: tuple[str, str], instance_id: str, host: str, on_news: OnNews) -> None:
        digest, earlier, again_s = "", frozenset[Notice](), _AGAIN_S
        began_s = self._clock.monotonic_s()
        while True:
            try:
                digest, page = await _answer(host, digest)
            except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
                await self._clock.sleep(again_s)
                again_s = asked_again_s(again_s, followed_s=self._clock.monotonic_s() - began_s)
                continue
            again_s = _AGAIN_S
            # Addresses are given anew: what another instance says is not of this one.
            is_own = page.get("instance_id") == instance_id
            found = frozenset(notices_in(page)) if is_own else frozenset()
            has_moved = self._take_boots(instance_id, boots_in(page) if is_own else {})
            self._note_faults(owner_and_fleet, instance_id)
            has_moved |= self._take_given_up(owner_and_fleet, instance_id, given_up_in(page) if is_own else {})
            gravest = sorted(found, key=lambda each: each.is_certain, reverse=True)
            for notice in (each for each in gravest if each not in earlier):
                on_news(instance_id, notice)
            if has_moved and found <= earlier:
                on_news(instance_id, gravest[0] if gravest else None)
            earlier = found

    def _take_boots(self, instance_id: str, boots: dict[int, BootProgress]) -> bool:
        """Remember how far an instance's engines are; return whether one has come to another phase."""
        before = self._boots.get(instance_id, {})
        self._boots[instance_id] = boots
        return _heads(boots) != _heads(before)

    def _take_given_up(self, owner_and_fleet: tuple[str, str], instance_id: str, given_up: dict[int, GivenUp]) -> bool:
        """Remember which engines an instance starts no more; return whether they are others than before."""
        known = self._given_up.setdefault(owner_and_fleet, {})
        has_moved = known.get(instance_id, {}) != given_up
        known[instance_id] = given_up
        return has_moved

    def _note_faults(self, owner_and_fleet: tuple[str, str], instance_id: str) -> None:
        """Remember why starts failed until they have come further."""
        known = self._faults.setdefault(owner_and_fleet, {}).setdefault(instance_id, {})
        for number, boot in self._boots.get(instance_id, {}).items():
            if boot.fault or boot.phase != WEIGHTS:
                known[number] = boot.fault


def asked_again_s(before_s: float, *, followed_s: float) -> float:
    """Return how long to wait after an instance has not answered, which was waited for `before_s` the time before."""
    return min(_AGAIN_S_MAX_STARTING if followed_s < _STARTS_S else _AGAIN_S_MAX, 2.0 * before_s)


def _heads(boots: dict[int, BootProgress]) -> dict[int, tuple[str, str]]:
    return {number: (boot.phase, boot.fault) for number, boot in boots.items()}


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


def boots_in(page: dict[str, Any]) -> dict[int, BootProgress]:
    """Return by slot how far an instance's engines have come; what is in another form says nothing."""
    found: dict[int, BootProgress] = {}
    slots = page.get("boot")
    for number, slot in slots.items() if isinstance(slots, dict) else ():
        try:
            steps = tuple(BootStep(phase=str(word), began_at=_instant_of(at)) for word, at in slot["steps"])
            is_fetching = steps[-1].phase in _FETCHING
            found[int(number)] = BootProgress(
                phase=steps[-1].phase,
                done_bytes=max(0, int(slot["bytes"])) if is_fetching else 0,
                bytes_per_s=max(0.0, float(slot["rate"])) if is_fetching else 0.0,
                **_fetch_figures(slot),
                steps=steps,
            )
        except (ValueError, TypeError, KeyError, IndexError, OverflowError):
            continue
    return found


def _fetch_figures(slot: dict[str, Any]) -> dict[str, Any]:
    """Return what an instance that fetches its weights itself knows: how much they are, and why it has failed."""
    total, fault = max(0, int(slot.get("total", 0))), str(slot.get("fault", ""))[:_FAULT_CHARS_MAX]
    fraction = min(1.0, max(0, int(slot["bytes"])) / total) if total else None
    return {"total_bytes": total, "fraction": fraction, "fault": printable(fault)}


async def _answer(host: str, digest: str) -> tuple[str, dict[str, Any]]:
    """Return what an instance says that it did not say with this digest. Raises OSError, ValueError, TimeoutError."""
    async with asyncio.timeout(_CONNECT_S):
        reader, writer = await asyncio.open_connection(host, NOTICE_PORT, limit=_ANSWER_BYTES_MAX)
    try:
        async with asyncio.timeout(_ANSWER_S):
            writer.write(f"GET /{digest} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            named = dict(line.partition(": ")[::2] for line in head.lower().split("\r\n"))
            # The whole of it, in however many segments it comes.
            body = await reader.readexactly(min(_ANSWER_BYTES_MAX, int(named.get("content-length", ""))))
    except asyncio.LimitOverrunError as exc:
        raise ValueError(str(exc)) from exc
    finally:
        writer.close()
    page = json.loads(body)
    if not isinstance(page, dict):
        raise ValueError("no object")  # noqa: TRY004  # one of the forms that an answer may not have
    return named.get("etag", ""), page


def _parsed(text: object) -> Any:  # noqa: ANN401  # JSON of any form
    try:
        return json.loads(text) if isinstance(text, str) and text else None
    except ValueError:
        return None


def _instant_of(at_s: object) -> datetime:
    """Return seconds since the epoch as an instant to the millisecond, as a page may be read twice."""
    return datetime.fromtimestamp(round(float(str(at_s)), 3), UTC)


def _instant(text: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
