"""A Kubernetes API server and its etcd on loopback, with nothing behind them: what a controller reads and writes is real."""

from __future__ import annotations

import json
import secrets
import shutil
import ssl
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import httpx
import yaml

from tests.bench.fleet_drill import _free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

_READY_S = 60.0
_POLL_S = 0.1
_ACCEPTED = (200, 201, 409)  # 409: it is there already


def wait_until(is_so: Callable[[], bool], what: str, *, seconds: float = _READY_S) -> None:
    """Return once something is so. Raises SystemExit when it is not in time."""
    deadline_s = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"{what}: not within {seconds:g} s")
        time.sleep(_POLL_S)  # real processes in real time


class ControlPlane:
    """etcd and kube-apiserver from a directory of binaries (as KUBEBUILDER_ASSETS names one), ended with the context."""

    def __init__(self, assets: Path, home: Path) -> None:
        self._assets, self._home = assets, home
        self._token = secrets.token_hex(16)
        self._port = _free_port()
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.kubeconfig = home / "kubeconfig"
        self._http = httpx.Client()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def spawn(self, name: str, *argv: object, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a process that ends with this control plane; its output goes to NAME.log."""
        with (self._home / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(word) for word in argv],
                cwd=self._home,
                env=None if env is None else dict(env),
                stdout=log,
                stderr=log,
            )
        self._processes.append((name, process))
        return process

    def stop(self) -> None:
        """End every process, the last one first; nothing of theirs is kept."""
        for _, process in reversed(self._processes):
            process.kill()
        for _, process in self._processes:
            process.wait()
        self._http.close()

    def check(self) -> None:
        """Raise SystemExit, with the end of its log, if a process has ended."""
        for name, process in self._processes:
            if process.poll() is not None:
                log = (self._home / f"{name}.log").read_text(errors="replace")
                raise SystemExit(f"{name} ended with {process.returncode}:\n{log[-2000:]}")

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        """Create an object under a collection's path. Raises SystemExit with the server's words."""
        answer = self._http.post(path, json=body)
        if answer.status_code not in _ACCEPTED:
            raise SystemExit(f"{path}: {answer.status_code} {answer.text}")

    def set_status(self, path: str, status: Mapping[str, Any]) -> None:
        """Write an object's status. Raises SystemExit with the server's words."""
        answer = self._http.patch(
            f"{path}/status", json={"status": status}, headers={"content-type": "application/merge-patch+json"}
        )
        if answer.status_code not in _ACCEPTED:
            raise SystemExit(f"{path}: {answer.status_code} {answer.text}")

    def define(self, file: Path) -> None:
        """Create the custom resource definitions of a file, and wait until they are served."""
        for definition in yaml.safe_load_all(file.read_text()):
            name = definition["metadata"]["name"]
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            self.create(path, definition)
            wait_until(partial(self._is_served, f"{path}/{name}"), name)

    def _is_served(self, path: str) -> bool:
        conditions = self._http.get(path).json().get("status", {}).get("conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    def _start(self) -> None:
        client, peer = _free_port(), _free_port()
        home = self._home
        self.spawn(
            "etcd", self._assets / "etcd", "--data-dir", home / "etcd", "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{client}", f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
        )  # fmt: skip
        subprocess.run(
            [shutil.which("openssl") or "openssl", "genrsa", "-out", str(home / "sa.key"), "2048"],
            check=True,
            capture_output=True,
        )
        (home / "tokens.csv").write_text(f'{self._token},admin,admin,"system:masters"\n')
        self.spawn(
            "kube-apiserver", self._assets / "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{client}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={self._port}",
            "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24", f"--cert-dir={home / 'certificates'}",
            f"--token-auth-file={home / 'tokens.csv'}", "--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={home / 'sa.key'}", f"--service-account-key-file={home / 'sa.key'}",
            "--disable-admission-plugins=ServiceAccount",
        )  # fmt: skip
        # It makes a certificate of its own, and is trusted by that alone.
        self._certificate = home / "certificates" / "apiserver.crt"
        wait_until(self._has_certificate, "kube-apiserver's certificate")
        self._http = httpx.Client(
            base_url=f"https://127.0.0.1:{self._port}", verify=ssl.create_default_context(cafile=str(self._certificate)),
            timeout=30.0, headers={"authorization": f"Bearer {self._token}"},
        )  # fmt: skip
        wait_until(self._is_ready, "kube-apiserver")
        self.kubeconfig.write_text(json.dumps(self._config()))

    def _has_certificate(self) -> bool:
        self.check()
        return self._certificate.exists()

    def _is_ready(self) -> bool:
        self.check()
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False  # it does not listen yet

    def _config(self) -> dict[str, Any]:
        server = {"server": f"https://127.0.0.1:{self._port}", "certificate-authority": str(self._certificate)}
        return {
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": server}], "users": [{"name": "bench", "user": {"token": self._token}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        }  # fmt: skip
