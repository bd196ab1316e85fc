"""A fleet's gateways as pods that a Deployment keeps: found by their labels, numbered, and called over TCP."""

from __future__ import annotations

import asyncio
import http.client
import logging
import math
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.codec import decode
from fleetctl.errors import FleetctlError, UnavailableError
from fleetctl.model.gateway_process import EPOCH_HEADER, TOKEN_HEADER, GatewayIdentity
from fleetctl.ports.runtime import GatewayAddress
from fleetctl_kubernetes.connection import NotThereError
from fleetctl_kubernetes.pod_states import pod_trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from fleetctl.model.desired import Desired
    from fleetctl.ports.runtime import Stall
    from fleetctl_kubernetes.connection import ClusterConnection, Object

_log = logging.getLogger("fleetctl_kubernetes")
_DEADLINE_S = 2.0
_LOOK_S = 1.0
_FIRST_S = 5.0
_OVERDUE = timedelta(minutes=1)
_AGAIN_S = 10.0
_STARTS_WITHIN = timedelta(seconds=5)  # before that a pod that waits says nothing
_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPod:
    """One pod, as the API server knows it."""

    name: str
    uid: str
    address: str
    restarts: int  # of its container: after one another process answers there
    is_leaving: bool  # somebody deletes it; it finishes what it has
    is_ready: bool
    is_overdue: bool = False  # it should have ended long ago: its machine is gone, or cut off from the API server
    node: str = ""

    @property
    def process(self) -> tuple[str, int]:
        """What tells its process from every other."""
        return self.uid, self.restarts


class GatewayPods:
    """Lists the pods of one fleet's gateways, and calls each."""

    def __init__(self, connection: ClusterConnection, *, namespace: str, selector: str, port: int, token: Path) -> None:
        self._connection = connection
        self._namespace = namespace
        self._selector = selector
        self._port = port  # that they are called at
        self._token = token
        self.unstarted: tuple[str, ...] = ()  # of the last listing, why each pod does not run that should by now

    def listed(self) -> tuple[GatewayPod, ...]:
        """Return those that run as far as is known, those too that are being deleted, oldest first. Raises ProviderError."""
        found = self._connection.call(
            "CoreV1Api", "list_namespaced_pod", self._namespace, label_selector=self._selector
        )
        by_age = sorted(
            found["items"], key=lambda each: (str(each["metadata"]["creationTimestamp"]), str(each["metadata"]["name"]))
        )
        now = SYSTEM_CLOCK.now()
        self.unstarted = tuple(_unstarted(by_age, now))
        return tuple(pod for each in by_age if (pod := _pod(each, now)) is not None)

    def address_of(self, pod: GatewayPod) -> GatewayAddress:
        """Return where one is called. Raises UnavailableError where the token cannot be read."""
        try:
            token = self._token.read_text().strip()
        except OSError as exc:
            raise UnavailableError(f"the gateways' token cannot be read: {exc.strerror}") from exc
        return GatewayAddress(host=pod.address, port=self._port, token=token)

    def call(
        self, pod: GatewayPod, method: str, path: str, query: Mapping[str, str] | None = None, *, epoch: int = 0
    ) -> bytes:
        """Return the body of one answer. Raises UnavailableError."""
        at = self.address_of(pod)
        connection = http.client.HTTPConnection(at.host, at.port, timeout=_DEADLINE_S)
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {TOKEN_HEADER: at.token, EPOCH_HEADER: str(epoch), "connection": "close"}
        try:
            connection.request(method, target, headers=headers)
            response = connection.getresponse()
            body = response.read(_BYTES_MAX)
        except (OSError, http.client.HTTPException) as exc:
            raise UnavailableError(f"gateway pod {pod.name} does not answer: {exc}") from exc
        finally:
            connection.close()
        if response.status >= 300:
            raise UnavailableError(
                f"gateway pod {pod.name} answered {response.status}: {body[:200].decode(errors='replace')}"
            )
        return body

    def log(self, pod: GatewayPod, *, bytes_max: int) -> bytes:
        """Return what a pod's container has written since it started, from its beginning. Raises ProviderError."""
        return self._connection.text(
            "CoreV1Api", "read_namespaced_pod_log", pod.name, self._namespace, limit_bytes=bytes_max
        )

    def delete(self, pod: GatewayPod, *, grace_s: float) -> None:
        """Have a pod ended, within so long, which its Deployment replaces. Raises ProviderError."""
        body = {"preconditions": {"uid": pod.uid}, "gracePeriodSeconds": math.ceil(grace_s)}
        try:
            self._connection.call(
                "CoreV1Api", "delete_namespaced_pod", pod.name, self._namespace, body=body, changes=True
            )
        except NotThereError:
            return


class NumberedPods:
    """Gives each gateway's process a number among them, which it keeps itself, so that the next controller finds it there.

    A number is free once the process that had it has ended: those of `gateway.processes: N` are 1 to N, and more while pods are
    replaced. `look` is called by one thread; everybody else reads `by_number`.
    """

    def __init__(self, pods: GatewayPods, *, epoch: Callable[[], int], again_s: float = _AGAIN_S) -> None:
        self._pods = pods
        self._epoch = epoch
        self._again_s = again_s  # between two calls to one that is overdue
        self._numbers: dict[tuple[str, int], int] = {}
        self._overdue: dict[tuple[str, int], tuple[float, bool]] = {}  # when each was asked, and whether it answered
        self.by_number: Mapping[int, GatewayPod] = {}

    def look(self) -> bool:
        """List the pods, and number those that are new and answer; return whether others live than before. Raises ProviderError."""
        there = self._pods.listed()
        overdue = {pod.process for pod in there if pod.is_overdue}
        self._overdue = {process: last for process, last in self._overdue.items() if process in overdue}
        listed = [pod for pod in there if not pod.is_overdue or self._answers_after_all(pod)]
        known, before = {pod.process: pod for pod in listed}, set(self._numbers)
        self._numbers = {process: n for process, n in self._numbers.items() if process in known}
        self.by_number = {n: known[process] for process, n in self._numbers.items()}
        new = [(pod, has) for pod in listed if pod.process not in self._numbers and (has := self._identity_of(pod))]
        # Whoever has a number keeps it: what it has counted is on record under that one.
        for pod, has in sorted(new, key=lambda each: each[1].number == 0):
            number = has.number if has.number and has.number not in self.by_number else self._given(pod, has)
            if number:
                self._numbers[pod.process] = number
                self.by_number = {**self.by_number, number: pod}
                _log.info("gateway %d is pod %s", number, pod.name)
        return set(self._numbers) != before

    def _answers_after_all(self, pod: GatewayPod) -> bool:
        """Whether one that was taken for gone is heard again, asked now and then: until it ends, what it has is its own."""
        now_s = SYSTEM_CLOCK.monotonic_s()
        asked_s, answered = self._overdue.get(pod.process, (-math.inf, False))
        if now_s - asked_s >= self._again_s:
            answered = self._identity_of(pod) is not None
            self._overdue[pod.process] = now_s, answered
        return answered

    def _identity_of(self, pod: GatewayPod) -> GatewayIdentity | None:
        return self._answered(pod, "GET", "/v1/identity", {})

    def _given(self, pod: GatewayPod, has: GatewayIdentity) -> int:
        """Return the number that a process has taken as its own; 0: it does not answer."""
        number = next(n for n in range(1, len(self.by_number) + 2) if n not in self.by_number)
        found = self._answered(pod, "PUT", "/v1/number", {"number": str(number), "instance": has.instance})
        return found.number if found is not None else 0

    def _answered(self, pod: GatewayPod, method: str, path: str, query: Mapping[str, str]) -> GatewayIdentity | None:
        """Return what a process says of itself; None: it starts, or ends, or a newer controller has spoken to it."""
        try:
            return decode(GatewayIdentity, self._pods.call(pod, method, path, query, epoch=self._epoch()))
        except (UnavailableError, msgspec.MsgspecError) as exc:
            _log.debug("%s", exc)
            return None


class _KeptElsewhere:
    """What a GatewayHost says whose gateways are other machines' processes, which a Deployment keeps."""

    def stall(self) -> Stall | None:
        """Return nothing: what a pod's process is at is not seen from another."""
        return None

    def is_beating(self) -> bool:
        """Whether signs of life come: there are none but answers."""
        return True

    def lost_s(self) -> float:
        """Return 0.0: not known."""
        return 0.0

    def start(self, desired: Desired) -> int:
        """Raise UnavailableError: the Deployment starts them."""
        raise UnavailableError(f"the gateways of {desired.fleet} are started by their Deployment")

    def release_port(self) -> bool:
        """Hold no port."""
        return False


class PodGatewayHost(_KeptElsewhere):
    """Implements GatewayHost and RemoteGateways: a thread of its own looks for pods once a second, for one controller's life."""

    def __init__(self, pods: GatewayPods, *, look_s: float = _LOOK_S) -> None:
        self._pods = pods
        self._look_s = look_s
        self._epoch = 0
        self._numbered = NumberedPods(pods, epoch=lambda: self._epoch)
        self._ended = threading.Event()
        self._on_change: Callable[[], None] = lambda: None

    def lead(self, epoch: int) -> None:
        """Begin to look, for the controller under a lease of this epoch; return once all were looked for, or that failed."""
        self._epoch = epoch
        first = threading.Event()
        threading.Thread(target=self._run, args=(first,), name="gateway-pods", daemon=True).start()
        first.wait(_FIRST_S)

    def close(self) -> None:
        """Look no more."""
        self._ended.set()

    # Of all of them.

    def living(self) -> tuple[int, ...]:
        """Return the numbers of all that live."""
        return tuple(sorted(self._numbered.by_number))

    def is_alive(self) -> bool:
        """Whether any lives."""
        return bool(self._numbered.by_number)

    def numbered(self, number: int) -> _NumberedGateway:
        """Return the keeper of one of them."""
        return _NumberedGateway(self, number)

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Have `on_exit` called in this loop once one has gone, or another has come."""
        loop = asyncio.get_running_loop()

        def on_change() -> None:
            loop.call_soon_threadsafe(on_exit)

        self._on_change = on_change

    async def stop(self, *, within_s: float) -> None:
        """Leave all as they are: they are the Deployment's."""

    # Of RemoteGateways.

    def address_of(self, number: int) -> GatewayAddress:
        """Return where one is called. Raises UnavailableError where none of this number lives."""
        return self._pods.address_of(self.pod(number))

    def is_leaving(self, number: int) -> bool:
        """Whether its pod is being deleted."""
        found = self._numbered.by_number.get(number)
        return found is None or found.is_leaving

    def place_of(self, number: int) -> str:
        """Return the name of its pod, and of that one's node; empty where none of this number lives."""
        found = self._numbered.by_number.get(number)
        return f"pod {found.name} on {found.node}" if found is not None else ""

    def pod(self, number: int) -> GatewayPod:
        """Return the pod of one. Raises UnavailableError."""
        found = self._numbered.by_number.get(number)
        if found is None:
            raise UnavailableError(f"no pod is gateway {number} any more")
        return found

    async def end(self, number: int, *, within_s: float) -> None:
        """Have a pod deleted, which its Deployment replaces. Raises ProviderError."""
        found = self._numbered.by_number.get(number)
        if found is not None and not found.is_leaving:
            await asyncio.to_thread(self._pods.delete, found, grace_s=within_s)

    def _run(self, first: threading.Event) -> None:
        failed = ""
        while not self._ended.is_set():
            try:
                if self._numbered.look():
                    self._on_change()
                failed = ""
            except FleetctlError as exc:
                # Those known are called on: the API server takes no part in requests.
                if exc.message != failed:
                    _log.warning("the gateways' pods cannot be listed: %s", exc.message)
                failed = exc.message
            first.set()
            self._ended.wait(self._look_s)


class _NumberedGateway(_KeptElsewhere):
    """Implements GatewayHost for one of them."""

    def __init__(self, all_of_them: PodGatewayHost, number: int) -> None:
        self._all = all_of_them
        self._number = number

    def is_alive(self) -> bool:
        """Whether its pod runs."""
        return self._number in self._all.living()

    async def stop(self, *, within_s: float) -> None:
        """Have its pod deleted. Raises ProviderError."""
        await self._all.end(self._number, within_s=within_s)

    def living(self) -> tuple[int, ...]:
        """Return the numbers of all that live."""
        return self._all.living()

    def numbered(self, number: int) -> _NumberedGateway:
        """Return the keeper of another."""
        return self._all.numbered(number)

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Watch all of them."""
        self._all.watch(on_exit)


def _unstarted(pods: Iterable[Object], now: datetime) -> Iterator[str]:
    """Yield what keeps each pod from running, and what to do, but of those that were made a moment ago, or are deleted."""
    for each in pods:
        made = datetime.fromisoformat(str(each["metadata"]["creationTimestamp"]))
        if "deletionTimestamp" in each["metadata"] or now - made < _STARTS_WITHIN:
            continue
        trouble = pod_trouble(each)
        if trouble.is_certain:
            yield f"gateway {trouble.text}; {trouble.hint}"


def _pod(found: Object, now: datetime) -> GatewayPod | None:
    """Return a pod whose container runs; None: there is nobody to call.

    One that is there long after the end of its grace is overdue: were its machine there, kubelet would have ended it.
    """
    status, metadata = found.get("status", {}), found["metadata"]
    ends = metadata.get("deletionTimestamp")  # its grace included
    containers = status.get("containerStatuses") or ()
    if not status.get("podIP") or not any("running" in (each.get("state") or {}) for each in containers):
        return None
    conditions = status.get("conditions") or ()
    return GatewayPod(
        name=metadata["name"],
        uid=metadata["uid"],
        address=status["podIP"],
        restarts=sum(int(each.get("restartCount") or 0) for each in containers),
        is_leaving=ends is not None,
        is_ready=any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions),
        is_overdue=ends is not None and now - datetime.fromisoformat(ends) > _OVERDUE,
        node=found["spec"].get("nodeName", ""),
    )
