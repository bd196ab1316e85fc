"""The tests' kubelet: it keeps every node's lease and every pod bound to a node, and serves their logs and ports."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl.clock import SYSTEM_CLOCK
from tests.kube.api import gathered
from tests.kube.pods import PodWorker
from tests.kube.port_forwards import forwarded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kube.addresses import Addresses
    from tests.kube.api import Api, Object

_LEASE_EVERY_S = 8.0


class Kubelet:
    """One for all nodes of the cluster; a node that is labelled `tests.fleetctl.dev/silent` is left to itself."""

    def __init__(self, api: Api, addresses: Addresses, directory: Path) -> None:
        self._api = api
        self._addresses = addresses
        self._directory = directory
        self._workers: dict[str, PodWorker] = {}  # by uid
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._nodes: dict[str, Object] = {}
        self._main: list[asyncio.Task[None]] = []
        self._site: web.AppRunner | None = None
        self._port = 0

    async def start(self) -> None:
        await self._serve_logs()
        self._main = [asyncio.create_task(each) for each in (self._keep_nodes(), self._renew(), self._keep_pods())]

    async def end(self) -> None:
        await gathered(*self._main, *self._tasks.values())
        await asyncio.gather(*(worker.abandon() for worker in self._workers.values()))
        if self._site is not None:
            await self._site.cleanup()

    async def _keep_nodes(self) -> None:
        async for kind, node in self._api.watched("/api/v1/nodes"):
            name = node["metadata"]["name"]
            if kind == "DELETED":
                self._nodes.pop(name, None)
                continue
            is_new = name not in self._nodes
            self._nodes[name] = node
            if is_new:
                await self._make_ready(name, node)

    async def _make_ready(self, name: str, node: Object) -> None:
        status = {
            "conditions": [
                {
                    "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "tests",
                    "lastHeartbeatTime": _instant(), "lastTransitionTime": _instant(),
                }
            ],
            "addresses": [{"type": "InternalIP", "address": self._addresses.node}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "nodeInfo": {
                "machineID": name, "systemUUID": name, "bootID": name, "kernelVersion": "tests", "osImage": "tests",
                "containerRuntimeVersion": "tests://1", "kubeletVersion": "v1.36.2", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
            "allocatable": node["status"].get("allocatable") or node["status"].get("capacity", {}),
        }  # fmt: skip
        await self._api.merge(f"/api/v1/nodes/{name}/status", {"status": status})

    async def _renew(self) -> None:
        """Renew each node's lease, as a sign of life."""
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        while True:
            for name, node in list(self._nodes.items()):
                if "tests.fleetctl.dev/silent" in node["metadata"].get("labels", {}):
                    continue
                spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _instant(micro=True)}
                if await self._api.merge(f"{path}/{name}", {"spec": spec}) is None:
                    await self._api.post(path, {"metadata": {"name": name}, "spec": spec})
            await SYSTEM_CLOCK.sleep(1.0 if len(self._nodes) < 1 else _LEASE_EVERY_S)

    async def _keep_pods(self) -> None:
        async for kind, pod in self._api.watched("/api/v1/pods", "fieldSelector=spec.nodeName!="):
            uid = pod["metadata"]["uid"]
            worker = self._workers.get(uid)
            if kind == "DELETED":
                if worker is not None:
                    await self._forget(uid, worker)
            elif worker is not None:
                worker.update(pod)
            else:
                self._begin(uid, pod)

    def _begin(self, uid: str, pod: Object) -> None:
        worker = PodWorker(self._api, self._addresses, pod, self._directory / _short(uid))
        self._workers[uid] = worker
        self._tasks[uid] = asyncio.create_task(worker.run())

    async def _forget(self, uid: str, worker: PodWorker) -> None:
        task = self._tasks.pop(uid)
        self._workers.pop(uid)
        if not task.done():
            task.cancel()
        await asyncio.gather(task, worker.abandon(), return_exceptions=True)

    async def _serve_logs(self) -> None:
        """Serve what the API server asks a kubelet for when somebody reads a pod's log, or wants one of its ports."""
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._log)
        app.router.add_get("/portForward/{namespace}/{pod}", self._forward)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        home = self._directory.parent
        tls.load_cert_chain(home / "server.crt", home / "server.key")
        self._site = web.AppRunner(app)
        await self._site.setup()
        site = web.TCPSite(self._site, self._addresses.node, 0, ssl_context=tls)
        await site.start()
        self._port = self._site.addresses[0][1]

    async def _log(self, request: web.Request) -> web.Response:
        worker = self._asked_of(request)
        if worker is None:
            return web.Response(status=404, text="no such pod")
        path = worker.log(request.match_info["container"])
        text = path.read_bytes() if path.exists() else b""
        if "tailLines" in request.query:
            text = b"".join(text.splitlines(keepends=True)[-int(request.query["tailLines"]) :])
        if "limitBytes" in request.query:
            text = text[: int(request.query["limitBytes"])]
        return web.Response(body=text, content_type="text/plain")

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        worker = self._asked_of(request)
        if worker is None or not worker.address:
            return web.Response(status=404, text="no such pod")
        return await forwarded(request, worker.address)

    def _asked_of(self, request: web.Request) -> PodWorker | None:
        wanted = request.match_info["namespace"], request.match_info["pod"]
        for worker in self._workers.values():
            metadata = worker.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == wanted:
                return worker
        return None


def _short(uid: str) -> str:
    return hashlib.sha256(uid.encode()).hexdigest()[:12]


def _instant(*, micro: bool = False) -> str:
    return SYSTEM_CLOCK.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
