"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, free ports, own certificates."""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from tests.kube.api import Api
from tests.kube.certificates import make_certificates
from tests.kube.processes import start
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_LOOPBACK = "127.0.0.1"
_READY_S = 90.0
_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_SERVICE_ADDRESS = "10.0.0.1"


@dataclass
class ControlPlane:
    """The four components, from `start` until `end`."""

    assets: Path
    directory: Path
    node_address: str  # of the tests' kubelet, for the logs that the API server gets of it
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    commands: dict[str, tuple[str, ...]] = field(default_factory=dict)  # what each was started with
    api_server_options: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    port: int = 0

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    def api(self) -> Api:
        return Api.to(f"https://{_LOOPBACK}:{self.port}", self.token, self.directory / "ca.crt")

    async def start(self) -> None:
        """Have all four ready, and the default namespace with its service account."""
        self.port, client, peer, controllers, scheduler = (free_port() for _ in range(5))
        await self._start_api(client, peer)
        api = self.api()
        try:
            await self._start_controllers(controllers, scheduler)
            account = "/api/v1/namespaces/default/serviceaccounts/default"

            async def has_account() -> bool:
                return await api.get(account) is not None

            await self._until(has_account, "kube-controller-manager")
        finally:
            await api.session.close()

    async def start_api_alone(self) -> None:
        """Have the API server ready, and etcd: enough for what runs no pods."""
        self.port, client, peer = (free_port() for _ in range(3))
        await self._start_api(client, peer)

    async def _start_api(self, client: int, peer: int) -> None:
        make_certificates(
            self.directory, addresses=(_LOOPBACK, _SERVICE_ADDRESS, self.node_address), names=_NAMES
        )  # fmt: skip
        (self.directory / "tokens.csv").write_text(f'{self.token},admin,admin-uid,"system:masters"\n')
        self._write_kubeconfig()
        await self._start_etcd(client, peer)
        await self.start_api_server(f"http://{_LOOPBACK}:{client}")
        api = self.api()
        try:
            await self._until(api.answers, "kube-apiserver")
        finally:
            await api.session.close()

    async def end(self) -> None:
        """End them; nothing is kept, and the API server would take 10 s to end by SIGTERM."""
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*(process.wait() for process in self.processes.values()))

    async def _start_etcd(self, client: int, peer: int) -> None:
        to_clients, to_peers = f"http://{_LOOPBACK}:{client}", f"http://{_LOOPBACK}:{peer}"
        await self._start(
            "etcd", "--data-dir", str(self.directory / "etcd"), "--unsafe-no-fsync",
            "--listen-client-urls", to_clients, "--advertise-client-urls", to_clients,
            "--listen-peer-urls", to_peers, "--initial-advertise-peer-urls", to_peers,
            "--initial-cluster", f"default={to_peers}",
        )  # fmt: skip

    async def start_api_server(self, etcd: str) -> None:
        at = self.directory
        await self._start(
            "kube-apiserver", f"--etcd-servers={etcd}", f"--bind-address={_LOOPBACK}", f"--secure-port={self.port}",
            f"--advertise-address={_LOOPBACK}", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--tls-cert-file={at}/server.crt", f"--tls-private-key-file={at}/server.key",
            f"--client-ca-file={at}/ca.crt", f"--cert-dir={at}/apiserver", f"--token-auth-file={at}/tokens.csv",
            "--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={at}/sa.key", f"--service-account-key-file={at}/sa.pub",
            "--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP",
            f"--requestheader-client-ca-file={at}/front-proxy-ca.crt",
            "--requestheader-allowed-names=front-proxy-client", "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={at}/front-proxy-client.crt",
            f"--proxy-client-key-file={at}/front-proxy-client.key",
            *self.api_server_options,
        )  # fmt: skip

    async def _start_controllers(self, controllers: int, scheduler: int) -> None:
        at = self.directory
        common = (
            f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", f"--bind-address={_LOOPBACK}",
            "--kube-api-qps=200", "--kube-api-burst=400",
        )  # fmt: skip
        await self._start(
            "kube-controller-manager", *common, f"--secure-port={controllers}", f"--cert-dir={at}/controllers",
            f"--service-account-private-key-file={at}/sa.key", f"--root-ca-file={at}/ca.crt",
            "--use-service-account-credentials=true", "--controllers=*,-nodeipam,-route,-cloud-node-lifecycle",
            # By default they look every 15 s, and hold on for 5 min.
            "--horizontal-pod-autoscaler-sync-period=2s", "--horizontal-pod-autoscaler-downscale-stabilization=4s",
        )  # fmt: skip
        await self._start("kube-scheduler", *common, f"--secure-port={scheduler}", f"--cert-dir={at}/scheduler")

    async def start_again(self, name: str) -> None:
        """Start a component that has ended as it was started before."""
        await self.processes[name].wait()
        await self._start(name, *self.commands[name])

    async def _start(self, name: str, *arguments: str) -> None:
        self.commands[name] = arguments
        log = self.directory / f"{name}.log"
        self.processes[name] = await start(self.assets / name, *arguments, log=log, directory=self.directory)

    async def _until(self, is_so: Callable[[], Awaitable[bool]], what: str) -> None:
        end_s = SYSTEM_CLOCK.monotonic_s() + _READY_S
        while not await is_so():
            for name, process in self.processes.items():
                if process.returncode is not None:
                    tail = (self.directory / f"{name}.log").read_text(errors="replace")[-2000:]
                    raise AssertionError(f"{name} ended with {process.returncode}:\n{tail}")
            if SYSTEM_CLOCK.monotonic_s() > end_s:
                raise TimeoutError(f"{what} was not ready in {_READY_S:g} s")
            await SYSTEM_CLOCK.sleep(0.1)

    def _write_kubeconfig(self) -> None:
        server = {
            "server": f"https://{_LOOPBACK}:{self.port}",
            "certificate-authority": str(self.directory / "ca.crt"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
        }
        self.kubeconfig.write_text(json.dumps(config))
