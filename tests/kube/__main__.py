"""`python -m tests.kube ASSETS DIRECTORY [API-SERVER-OPTION ...]`: one cluster, until its standard input ends, however its starter did.

Prints one line of JSON once everything answers, and one for each line that it reads: `kill NAME`, `start NAME`, `stop NAME`
(SIGSTOP) or `continue NAME` of a component. The components and the pods' processes are killed by the kernel when this
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

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "continue": signal.SIGCONT}


async def main(assets: Path, directory: Path, api_server_options: tuple[str, ...]) -> None:
    """Keep a cluster until nobody holds our standard input any more."""
    addresses = Addresses.reserve()
    plane = ControlPlane(assets, directory, addresses.node, api_server_options=api_server_options)
    kubelet = None
    try:
        await plane.start()
        api = plane.api()
        kubelet = Kubelet(api, addresses, directory / "pods")
        await kubelet.start()
        print(json.dumps({"kubeconfig": str(plane.kubeconfig), "node": addresses.node}), flush=True)  # noqa: T201  # its answer
        await _obey(plane)
        await kubelet.end()
        await api.session.close()
    finally:
        await plane.end()
        addresses.release()
        shutil.rmtree(directory, ignore_errors=True)


async def _obey(plane: ControlPlane) -> None:
    """Do to components what is asked for, until nobody holds our standard input any more, or SIGTERM."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    loop.add_signal_handler(signal.SIGTERM, reader.feed_eof)
    while line := (await reader.readline()).decode().split():
        action, name = line
        if action == "start":
            await plane.start_again(name)
        else:
            plane.processes[name].send_signal(_SIGNALS[action])
        print(json.dumps({"done": line}), flush=True)  # noqa: T201  # its answer


signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the test run, whose end ends us
asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), tuple(sys.argv[3:])))
