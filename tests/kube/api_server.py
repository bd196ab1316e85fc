"""An API server with its etcd and nothing else, for what runs no pods: `python -m tests.kube.api_server ASSETS DIRECTORY`.

It runs until its standard input ends, however its starter did; ready in some three seconds, 400 MB.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubernetes import client, config

from tests.kube.control_plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class ApiServer:
    """A running one."""

    kubeconfig: Path
    api: Any  # kubernetes.client.ApiClient

    @property
    def core(self) -> Any:
        return client.CoreV1Api(self.api)

    @property
    def url(self) -> str:
        return str(self.api.configuration.host)

    def kubeconfig_to(self, url: str, path: Path) -> Path:
        """Write a kubeconfig for what stands before it at another address."""
        found = json.loads(self.kubeconfig.read_text())
        found["clusters"][0]["cluster"] = {"server": url}
        path.write_text(json.dumps(found))
        return path


@contextmanager
def running_api_server(assets: Path) -> Iterator[ApiServer]:
    """Start one and end it; it ends too when this process is killed."""
    directory = Path(tempfile.mkdtemp(prefix="api-"))
    with (directory / "plane.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.kube.api_server", str(assets), str(directory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=_ROOT,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the API server did not start: {(directory / 'plane.log').read_text()[-3000:]}"
        kubeconfig = Path(line.strip())
        with config.new_client_from_config(str(kubeconfig)) as api:
            yield ApiServer(kubeconfig, api)
    finally:
        process.communicate(timeout=60)


async def _main(assets: Path, directory: Path) -> None:
    plane = ControlPlane(assets, directory, "127.0.0.1")
    try:
        await plane.start_api_alone()
        print(plane.kubeconfig, flush=True)  # noqa: T201  # its answer
        await asyncio.to_thread(sys.stdin.read)
    finally:
        await plane.end()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the test run, whose end ends us
    asyncio.run(_main(Path(sys.argv[1]), Path(sys.argv[2])))
