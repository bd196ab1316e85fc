"""`python -m tests.kube ASSETS DIRECTORY`: one cluster, until its standard input ends, however its starter did.

Prints one line of JSON once everything answers. The components and the pods' processes are killed by the kernel when this
process ends; the addresses it leaves behind when it is killed itself are removed by the next cluster.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from pathlib import Path

from tests.kube.addresses import Addresses
from tests.kube.control_plane import ControlPlane
from tests.kube.kubelet import Kubelet


async def main(assets: Path, directory: Path) -> None:
    """Keep a cluster until nobody holds our standard input any more."""
    addresses = Addresses.reserve()
    plane = ControlPlane(assets, directory, addresses.node)
    kubelet = None
    try:
        await plane.start()
        api = plane.api()
        kubelet = Kubelet(api, addresses, directory / "pods")
        await kubelet.start()
        print(json.dumps({"kubeconfig": str(plane.kubeconfig), "node": addresses.node}), flush=True)  # noqa: T201  # its answer
        await _until_abandoned()
        await kubelet.end()
        await api.session.close()
    finally:
        await plane.end()
        addresses.release()
        shutil.rmtree(directory, ignore_errors=True)


async def _until_abandoned() -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    waits = [asyncio.create_task(reader.read()), asyncio.create_task(ended.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each in waits:
        each.cancel()


signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the test run, whose end ends us
asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
