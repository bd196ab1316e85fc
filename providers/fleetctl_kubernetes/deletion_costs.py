"""Which pods of a fleet's Deployments go first when something else scales them down: idle ones, and the busiest last.

`python -m fleetctl_kubernetes.deletion_costs FLEET` is a process of its own, for fleets whose engines are run by `render --target
kubernetes`: there a ReplicaSet decides which pods go, and asks nobody but the pods' annotation. Pods of `provider: kubernetes`
have no ReplicaSet: their controller decides, and they are left alone here.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import FleetctlError, NotFoundError
from fleetctl.model.slo import Validity
from fleetctl_kubernetes.connection import ClusterConnection, ConflictError, FieldConflictError
from fleetctl_kubernetes.settings import FLEET, MANAGED_BY, MANAGER, ClusterSettings, label_value

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp

    from fleetctl.clock import Clock
    from fleetctl.ports.engine import Engine

Object = dict[str, Any]
COST = "controller.kubernetes.io/pod-deletion-cost"
COMPONENT, NAME = "app.kubernetes.io/component", "app.kubernetes.io/name"
FIELD_MANAGER = f"{MANAGER}-deletion-costs"
_log = logging.getLogger("fleetctl_kubernetes.deletion_costs")
_APPLY = "application/apply-patch+yaml"
# An autoscaler decides every 15 s (HPA, by default), and the annotation has to be there before it does.
_LOOK_EVERY_S = 3.0
# A cost that falls is written once it has been lower for this long: an engine between two requests is not idle, and the API
# server is not to be asked for a write at every request's end.
_LOWER_AFTER_S = 10.0
_ASKED_AT_ONCE = 16
_ANSWER_S = 2.0
_PAGE_BYTES_MAX = 4 * 2**20
_COST_STEP = 100


def deletion_cost(requests: int) -> int:
    """Return the cost of a pod with so many requests, running or waiting: 0 for none, then a step for each power of two.

    Coarse, so that a pod's annotation is written when its load changes, and not when a request comes or goes.
    """
    return _COST_STEP * requests.bit_length()


@dataclass(slots=True)
class _Falling:
    """A pod whose cost is lower than its annotation says."""

    since_s: float
    cost: int  # the most since then


class CostChanges:
    """When a pod's cost is written: a higher one at once, a lower one when it has been lower for ten seconds."""

    def __init__(self) -> None:
        self._falling: dict[str, _Falling] = {}  # by the pod's uid

    def due(self, uid: str, *, there: int, cost: int, now_s: float) -> int | None:
        """Return what is to be written now in place of `there`; None: that stays for the time being."""
        if cost >= there:
            self._falling.pop(uid, None)
            return cost if cost > there else None
        falling = self._falling.setdefault(uid, _Falling(now_s, cost))
        falling.cost = max(falling.cost, cost)
        if now_s - falling.since_s < _LOWER_AFTER_S:
            return None
        del self._falling[uid]
        return falling.cost

    def keep(self, uids: set[str]) -> None:
        """Forget all other pods."""
        self._falling = {uid: each for uid, each in self._falling.items() if uid in uids}


class DeletionCosts:
    """Keeps the annotation on the pods of one fleet's Deployments; `look` is one round, `run` never ends."""

    def __init__(
        self, connection: ClusterConnection, clock: Clock, *, fleet: str, engine_of: Callable[[str], Engine]
    ) -> None:
        self._connection = connection
        self._clock = clock
        # Who has a controller of ours is marked so, and is none of a Deployment's.
        self._selector = f"{FLEET}={label_value(fleet)},{COMPONENT}=engine,{MANAGED_BY}!={MANAGER}"
        self._engine_of = engine_of
        self._changes = CostChanges()
        self._complaints: dict[str, str] = {}  # by what it is about: a complaint is made once

    async def run(self) -> None:
        """Look every few seconds; what fails is said once and tried again."""
        while True:
            try:
                await self.look()
                self._complaints.pop("fleet", None)
            except FleetctlError as exc:
                self._complain("fleet", exc.message)
            await self._clock.sleep(_LOOK_EVERY_S)

    async def look(self) -> None:
        """Ask each ready pod for its requests and write the costs that have changed. Raises ProviderError."""
        import aiohttp

        namespace = await asyncio.to_thread(lambda: self._connection.namespace)
        listing = await self._connection.read(
            "CoreV1Api", "list_namespaced_pod", namespace, label_selector=self._selector, resource_version="0"
        )  # fmt: skip
        pods = [each for each in listing["items"] if _is_ready(each)]
        self._changes.keep({_uid(pod) for pod in pods})
        limit = asyncio.Semaphore(_ASKED_AT_ONCE)
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            await asyncio.gather(*(self._keep(session, limit, pod) for pod in pods))

    async def _keep(self, session: aiohttp.ClientSession, limit: asyncio.Semaphore, pod: Object) -> None:
        async with limit:
            requests = await self._requests(session, pod)
        if requests is None:
            return  # what it was known to have is the best guess
        now_s, there = self._clock.monotonic_s(), _cost_in(pod)
        cost = self._changes.due(_uid(pod), there=there, cost=deletion_cost(requests), now_s=now_s)
        if cost is not None:
            await self._write(pod, cost)

    async def _requests(self, session: aiohttp.ClientSession, pod: Object) -> int | None:
        """Return how many requests run and wait on a pod's engine; None: it does not say."""
        import aiohttp

        name = pod["metadata"]["name"]
        try:
            engine = self._engine_of(pod["metadata"]["labels"][NAME])
            url = f"http://{_host(pod)}:{_port(pod)}{engine.metrics_path}"
            async with session.get(url) as response:
                response.raise_for_status()
                page = await _page(response)
            signals = engine.signals(page)
        except (aiohttp.ClientError, TimeoutError, OSError, NotFoundError, KeyError) as exc:
            self._complain(name, f"is not known to be busy or idle: {type(exc).__name__} {exc}")
            return None
        if signals.validity is not Validity.OK:
            self._complain(name, f"is not known to be busy or idle: its page says {signals.validity.value}")
            return None
        self._complaints.pop(name, None)
        return signals.running + signals.waiting

    async def _write(self, pod: Object, cost: int) -> None:
        """Apply the annotation, if nobody else has set it: what people say of a pod goes before what we see of it."""
        metadata = pod["metadata"]
        body = {
            "apiVersion": "v1", "kind": "Pod",
            # With its uid an apply makes no pod of one that has gone meanwhile.
            "metadata": {"name": metadata["name"], "uid": metadata["uid"], "annotations": {COST: str(cost)}},
        }  # fmt: skip
        try:
            await self._connection.change(
                "CoreV1Api", "patch_namespaced_pod", metadata["name"], metadata["namespace"], body,
                field_manager=FIELD_MANAGER, force=False, _content_type=_APPLY,
            )  # fmt: skip
        except FieldConflictError as exc:
            self._complain(metadata["name"], f"keeps a cost of somebody else's: {exc.message}")
        except ConflictError:
            return  # the pod has gone meanwhile

    def _complain(self, about: str, message: str) -> None:
        """Write what is wrong, once until it is another thing."""
        if self._complaints.get(about) != message:
            self._complaints[about] = message
            _log.warning("%s %s", about, message)


async def _page(response: aiohttp.ClientResponse) -> str:
    """Return the whole of an answer's body. Raises OSError for one without an end."""
    page = bytearray()
    async for piece in response.content.iter_any():
        page += piece
        if len(page) > _PAGE_BYTES_MAX:
            raise OSError(f"its page has more than {_PAGE_BYTES_MAX} bytes")
    return page.decode(errors="replace")


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _is_ready(pod: Object) -> bool:
    if "deletionTimestamp" in pod["metadata"] or not pod.get("status", {}).get("podIP"):
        return False  # who is not ready goes first anyway
    conditions = pod["status"].get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def _cost_in(pod: Object) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(COST, "0")
    return int(text) if text.removeprefix("-").isdecimal() else 0


def _host(pod: Object) -> str:
    address = str(pod["status"]["podIP"])
    return f"[{address}]" if ":" in address else address


def _port(pod: Object) -> int:
    """Return the port named `http`. Raises KeyError where there is none."""
    ports = (each for container in pod["spec"]["containers"] for each in container.get("ports") or ())
    return {each["name"]: int(each["containerPort"]) for each in ports if "name" in each}["http"]


@lru_cache
def engine_named(name: str) -> Engine:
    """Return an installed engine's adapter. Raises NotFoundError."""
    for entry in entry_points(group="fleetctl.engine", name=name):
        found: Engine = entry.load()()
        return found
    raise NotFoundError(f"no engine {name!r} is installed", hint="its pods are left as they are")


def main(arguments: list[str]) -> None:
    """Keep the costs of a fleet's pods until SIGTERM."""
    if len(arguments) != 1:
        sys.exit("usage: python -m fleetctl_kubernetes.deletion_costs FLEET")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    connection = ClusterConnection(ClusterSettings.of_environment())
    costs = DeletionCosts(connection, SYSTEM_CLOCK, fleet=arguments[0], engine_of=engine_named)
    asyncio.run(costs.run())


if __name__ == "__main__":
    main(sys.argv[1:])
