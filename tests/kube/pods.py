"""One pod of the tests' kubelet: an address of its own, its containers as processes there, its status as kubelet writes it."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp

from fleetctl.clock import SYSTEM_CLOCK
from tests.kube.api import Object
from tests.kube.containers import base_environment, environment_of, expanded, passes, port_of, words_of
from tests.kube.image_root import contained, image_environment, image_root
from tests.kube.processes import start
from tests.kube.volumes import mounted, turned, variables_of, with_root

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from tests.kube.addresses import Addresses
    from tests.kube.api import Api

FAULT = "tests.fleetctl.dev/fault"  # an annotation: ImagePullBackOff, CrashLoopBackOff or OOMKilled, on request
_BACKOFF_S = (1.0, 2.0, 4.0)  # kubelet's is 10 s to 5 min
_GRACE_S_MAX = 3600
_LOOK_S = 0.2


@dataclass
class ContainerState:
    """What kubelet reports of one container."""

    spec: Object
    state: Object = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last: Object = field(default_factory=dict)
    restarts: int = 0
    is_ready: bool = False
    process: asyncio.subprocess.Process | None = None
    killed_for: str = ""

    def shown(self) -> Object:
        return {
            "name": self.spec["name"],
            "image": self.spec["image"],
            "imageID": f"tests/{self.spec['image']}",
            "ready": self.is_ready,
            "started": self.is_ready,
            "restartCount": self.restarts,
            "state": {"waiting": None, "running": None, "terminated": None, **self.state},
            "lastState": self.last,
        }


class PodWorker:
    """Runs one pod until it is deleted."""

    def __init__(self, api: Api, addresses: Addresses, pod: Object, directory: Path) -> None:
        self._api = api
        self._addresses = addresses
        self.pod = pod
        self.directory = directory
        self._cluster = directory.parents[1]  # where the cluster's authority and its volumes lie
        self.address = ""
        self._containers = [ContainerState(spec) for spec in pod["spec"]["containers"]]
        self._tasks: list[asyncio.Task[None]] = []
        self._phase = "Pending"
        self._ending = False
        self._shown: Object = {}
        self._changed = asyncio.Event()
        self._limits: list[asyncio.Timeout] = []  # of the containers that are told to end

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    def log(self, container: str) -> Path:
        return self.directory / f"{container}.log"

    def update(self, pod: Object) -> None:
        """Take in what somebody wrote: an annotation, a deletion."""
        before, self.pod = self.pod, pod
        self._hasten(before)
        fault = self._fault()
        if fault == "OOMKilled":
            for each in self._containers:
                if each.process is not None and each.process.returncode is None and not each.killed_for:
                    each.killed_for = fault
                    self._signal(each, signal.SIGKILL)
        self._changed.set()

    def _hasten(self, before: Object) -> None:
        """Follow a grace that is made shorter, as kubelet does."""
        was, now = (each["metadata"].get("deletionGracePeriodSeconds") for each in (before, self.pod))
        if was is not None and now is not None and now < was:
            for limit in self._limits:
                if not limit.expired():
                    limit.reschedule(asyncio.get_running_loop().time() + now)

    async def run(self) -> None:
        """Start its containers, report them, and end them once the pod is deleted."""
        self.directory.mkdir(parents=True, exist_ok=True)
        phase = self.pod.get("status", {}).get("phase")
        if not self._is_deleted() and phase not in ("Succeeded", "Failed"):
            self.address = self._addresses.give()
            await self._report()
            self._tasks = [asyncio.create_task(self._keep(each)) for each in self._containers]
        while not self._is_deleted():
            await self._changed.wait()
            self._changed.clear()
        await self._end()

    async def abandon(self) -> None:
        """Kill what runs, for a pod that has gone or at the end of the cluster; nothing is reported."""
        self._ending = True
        for each in self._containers:
            self._signal(each, signal.SIGKILL)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._addresses.take_back(self.address)

    async def _keep(self, container: ContainerState) -> None:
        """Have a container run, again and again as its pod's policy says."""
        policy = self.pod["spec"].get("restartPolicy", "Always")
        while not self._ending:
            await self._pulled(container)
            code = await self._once(container)
            if self._is_over(policy, code):
                break
            container.last, container.restarts = dict(container.state), container.restarts + 1
            container.state = {
                "waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}
            }
            await self._report()
            await SYSTEM_CLOCK.sleep(_BACKOFF_S[min(container.restarts, len(_BACKOFF_S)) - 1])
        if not self._ending and all("terminated" in each.state for each in self._containers):
            codes = [each.state["terminated"]["exitCode"] for each in self._containers]
            self._phase = "Failed" if any(codes) else "Succeeded"
            await self._report()
            self._addresses.take_back(self.address)

    def _is_over(self, policy: str, code: int) -> bool:
        return self._ending or policy == "Never" or (policy == "OnFailure" and code == 0)

    async def _pulled(self, container: ContainerState) -> None:
        """Stand still while its image cannot be pulled."""
        while (self._fault() == "ImagePullBackOff" or "missing" in container.spec["image"]) and not self._ending:
            message = f'Back-off pulling image "{container.spec["image"]}"'
            container.state = {"waiting": {"reason": "ImagePullBackOff", "message": message}}
            await self._report()
            # Not by the event, which is `run`'s: a change that came during the report would never be seen here.
            await SYSTEM_CLOCK.sleep(_LOOK_S)

    async def _once(self, container: ContainerState) -> int:
        began_at = _now()
        try:
            variables = await environment_of(self._api, self.pod, container.spec, self.address)
            mounts = await mounted(self._api, self.pod, container.spec, self.directory, self._cluster)
        except LookupError as exc:
            container.state = {"waiting": {"reason": "CreateContainerConfigError", "message": str(exc)}}
            await self._report()
            await SYSTEM_CLOCK.sleep(0.3)
            return await self._once(container) if not self._ending else 1
        words, variables = self._command(container.spec, variables, mounts)
        if self._fault() == "CrashLoopBackOff":
            words = ["false"]
        try:
            container.process = await start(
                *words,
                log=self.log(container.spec["name"]),
                directory=self.directory,
                env=variables,
            )
        except OSError as exc:
            container.state = _ended(127, "StartError", began_at, message=f"{words[0]}: {exc.strerror}")
            await self._report()
            return 127
        container.state = {"running": {"startedAt": began_at}}
        self._phase = "Running"
        container.is_ready = "readinessProbe" not in container.spec and "startupProbe" not in container.spec
        await self._report()
        probing = asyncio.create_task(self._probe(container))
        code = await container.process.wait()
        probing.cancel()
        await asyncio.gather(probing, return_exceptions=True)
        shown_code = code if code >= 0 else 128 - code
        reason = container.killed_for or ("Completed" if code == 0 else "Error")
        last_words = self._last_words(container) if code else ""
        container.state, container.is_ready = _ended(shown_code, reason, began_at, message=last_words), False
        container.killed_for = ""
        await self._report()
        return shown_code

    def _command(
        self, spec: Object, variables: dict[str, str], mounts: dict[str, Path]
    ) -> tuple[list[str], dict[str, str]]:
        """Return a container's words and all its variables: of its image where that is here, else of this environment."""
        if image_root(spec):
            variables = {**image_environment(), **variables, **variables_of(self._api, {})}
            words = words_of(spec, variables)
            return contained(self.pod, spec, words, mounts, self.directory / "container"), variables
        variables = {name: turned(value, mounts) for name, value in variables.items()} | variables_of(self._api, mounts)
        words = [turned(word, mounts) for word in words_of(spec, variables)]
        return with_root(spec, words, mounts), {**base_environment(str(self.directory)), **variables}

    def _last_words(self, container: ContainerState) -> str:
        """Return the end of a container's log, where its specification has kubelet keep that of a failure."""
        if container.spec.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            return ""
        return self.log(container.spec["name"]).read_text(errors="replace")[-2048:]

    async def _probe(self, container: ContainerState) -> None:
        """Look at a running container by its probes: the start-up probe first, then the other two."""
        if "startupProbe" in container.spec and not await self._started(container, container.spec["startupProbe"]):
            return
        loops: list[Coroutine[object, object, None]] = []
        if "readinessProbe" in container.spec:
            loops.append(self._readiness(container, container.spec["readinessProbe"]))
        else:
            await self._set_ready(container, is_ready=True)
        if "livenessProbe" in container.spec:
            loops.append(self._liveness(container, container.spec["livenessProbe"]))
        await asyncio.gather(*loops)

    async def _started(self, container: ContainerState, probe: Object) -> bool:
        await SYSTEM_CLOCK.sleep(probe.get("initialDelaySeconds", 0))
        for _ in range(probe.get("failureThreshold", 3)):
            if await passes(probe, container.spec, self.address):
                return True
            await SYSTEM_CLOCK.sleep(probe.get("periodSeconds", 10))
        container.killed_for = "Error"
        self._signal(container, signal.SIGKILL)
        return False

    async def _readiness(self, container: ContainerState, probe: Object) -> None:
        await SYSTEM_CLOCK.sleep(probe.get("initialDelaySeconds", 0))
        failures = 0
        while True:
            is_passed = await passes(probe, container.spec, self.address)
            failures = 0 if is_passed else failures + 1
            if is_passed or failures >= probe.get("failureThreshold", 3):
                await self._set_ready(container, is_ready=is_passed)
            await SYSTEM_CLOCK.sleep(probe.get("periodSeconds", 10))

    async def _liveness(self, container: ContainerState, probe: Object) -> None:
        await SYSTEM_CLOCK.sleep(probe.get("initialDelaySeconds", 0))
        failures = 0
        while failures < probe.get("failureThreshold", 3):
            failures = 0 if await passes(probe, container.spec, self.address) else failures + 1
            await SYSTEM_CLOCK.sleep(probe.get("periodSeconds", 10))
        container.killed_for = "Error"
        self._signal(container, signal.SIGTERM)

    async def _set_ready(self, container: ContainerState, *, is_ready: bool) -> None:
        if container.is_ready is not is_ready:
            container.is_ready = is_ready
            await self._report()

    async def _end(self) -> None:
        """Run preStop, then SIGTERM, then SIGKILL when the grace is over; then the pod goes."""
        self._ending = True
        grace_s = min(self.pod["metadata"].get("deletionGracePeriodSeconds", 30), _GRACE_S_MAX)
        end_s = SYSTEM_CLOCK.monotonic_s() + grace_s
        running = [each for each in self._containers if each.process is not None and each.process.returncode is None]
        await asyncio.gather(*(self._end_container(each, end_s) for each in running))
        self._changed.set()
        if self._tasks:  # they report how their containers ended
            _, late = await asyncio.wait(self._tasks, timeout=5.0)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.address:
            for each in self._containers:
                if "terminated" not in each.state:
                    each.state = _ended(137, "ContainerStatusUnknown", _now())
            self._phase = "Failed"
            await self._report()
        self._addresses.take_back(self.address)
        metadata = self.pod["metadata"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        await self._api.delete(f"/api/v1/namespaces/{metadata['namespace']}/pods/{self.name}", options)

    async def _end_container(self, container: ContainerState, end_s: float) -> None:
        process = container.process
        assert process is not None
        try:
            async with asyncio.timeout(max(0.0, end_s - SYSTEM_CLOCK.monotonic_s())) as limit:
                self._limits.append(limit)  # until it has ended: one that is over cannot be moved
                await self._pre_stop(container)
                self._signal(container, signal.SIGTERM)
                await process.wait()
                self._limits.remove(limit)
        except TimeoutError:
            self._signal(container, signal.SIGKILL)
            await process.wait()

    async def _pre_stop(self, container: ContainerState) -> None:
        hook = container.spec.get("lifecycle", {}).get("preStop", {})
        if "sleep" in hook:
            await SYSTEM_CLOCK.sleep(hook["sleep"]["seconds"])
        elif "exec" in hook:
            variables = await environment_of(self._api, self.pod, container.spec, self.address)
            words = [expanded(word, variables) for word in hook["exec"]["command"]]
            log = self.log(container.spec["name"])
            surroundings = {**base_environment(str(self.directory)), **variables}
            await (await start(*words, log=log, directory=self.directory, env=surroundings)).wait()
        elif "httpGet" in hook:
            check = hook["httpGet"]
            url = f"http://{self.address}:{port_of(check['port'], container.spec)}{check.get('path', '/')}"
            try:
                async with aiohttp.ClientSession() as session, session.get(url):
                    pass
            except (aiohttp.ClientError, OSError):
                pass  # as kubelet: an event, and the container is ended all the same

    def _signal(self, container: ContainerState, number: signal.Signals) -> None:
        process = container.process
        if process is not None and process.returncode is None:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                return

    async def _report(self) -> None:
        is_ready = all(each.is_ready for each in self._containers)
        conditions = [
            ("PodScheduled", True),
            ("Initialized", True),
            ("ContainersReady", is_ready),
            ("Ready", is_ready and not self._ending),
        ]
        # What others say of it stays: the scheduler, whoever evicts it.
        own = {kind for kind, _ in conditions}
        others = [each for each in self.pod.get("status", {}).get("conditions") or () if each["type"] not in own]
        status: Object = {
            "phase": self._phase,
            "hostIP": self._addresses.node,
            "podIP": self.address or None,
            "podIPs": [{"ip": self.address}] if self.address else None,
            "startTime": self.pod["metadata"]["creationTimestamp"],
            "conditions": [
                {"type": kind, "status": str(is_so), "lastTransitionTime": _now()} for kind, is_so in conditions
            ]
            + others,
            "containerStatuses": [each.shown() for each in self._containers],
        }
        if status != self._shown:
            self._shown = status
            path = f"/api/v1/namespaces/{self.pod['metadata']['namespace']}/pods/{self.name}/status"
            await self._api.merge(path, {"metadata": {"uid": self.pod["metadata"]["uid"]}, "status": status})

    def _fault(self) -> str:
        return str(self.pod["metadata"].get("annotations", {}).get(FAULT, ""))

    def _is_deleted(self) -> bool:
        return "deletionTimestamp" in self.pod["metadata"]


def _ended(code: int, reason: str, began_at: str, *, message: str = "") -> Object:
    more = {"message": message} if message else {}
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": began_at, "finishedAt": _now(), **more}}


def _now() -> str:
    return SYSTEM_CLOCK.now().strftime("%Y-%m-%dT%H:%M:%SZ")
