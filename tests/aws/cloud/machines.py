"""Instances that boot: a process tree each, with an address, metadata and the user data that was rendered for it."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.clock import SYSTEM_CLOCK
from tests.aws.cloud.access import role_key
from tests.aws.cloud.account import LaunchRecord
from tests.aws.cloud.imds import LOOPBACK_PORT, Metadata, MetadataService, instant
from tests.aws.cloud.network import own_directory, remove_namespace
from tests.aws.cloud.reaper import MARK, kill_all

if TYPE_CHECKING:
    from tests.aws.cloud.account import CloudAccount
    from tests.aws.cloud.network import InstanceNetwork

_ROOT = Path(__file__).resolve().parents[3]
_BOOTS_AT_ONCE = 4
# How long EC2 lets an operating system shut down before it takes the machine away.
_SHUTDOWN_S = 150.0
_SPOT_SHUTDOWN_S = 5.0


@dataclass
class Machine:
    """One booted instance."""

    record: LaunchRecord
    metadata: Metadata
    directory: Path
    namespace: str
    process: subprocess.Popen[bytes] | None = None  # None: not yet, or never
    is_over: bool = False


class Machines:
    """Boots what the account launches and ends what it ends."""

    def __init__(self, account: CloudAccount, network: InstanceNetwork, *, port: int, region: str) -> None:
        self._account = account
        self._network = network
        self._service = MetadataService()
        self.directory = own_directory()
        self._cloud = {"url": f"http://{network.host}:{port}", "region": region}
        self._machines: dict[str, Machine] = {}
        self._numbers = itertools.count(1)
        self._boots = ThreadPoolExecutor(_BOOTS_AT_ONCE, thread_name_prefix="boot")
        # Its standard input ends with this process, whatever ends that.
        self._reaper = subprocess.Popen(
            [sys.executable, "-m", "tests.aws.cloud.reaper", str(self.directory), str(network.number)],
            cwd=_ROOT, stdin=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        account.on_launch.append(self._boot)
        account.machine_ends = self._power_off

    def notice(self, record: LaunchRecord, kind: str, end_s: float) -> None:
        """Show a notice in an instance's metadata."""
        machine = self._machines.get(record.instance.id)
        if machine is None:
            return
        now = SYSTEM_CLOCK.now()
        if kind == "interruption":
            machine.metadata.action = {"action": "terminate", "time": instant(now + timedelta(seconds=end_s))}
        else:
            machine.metadata.rebalance = {"noticeTime": instant(now)}

    def crash(self, instance_id: str) -> None:
        """Have an instance's processes die at once, with its address; EC2 shows it as before."""
        machine = self._machines[instance_id]
        self._remove(machine)

    def console(self, instance_id: str) -> str:
        """Return what an instance has written to its console."""
        directory = self._machines[instance_id].directory
        paths = [directory / "console.log", *sorted((directory / "journal").glob("*"))]
        return "".join(path.read_text(errors="replace") for path in paths if path.exists())

    def send(self, instance_id: str, command: str, script: str) -> bool:
        """Have an instance run a script; False: it does not run."""
        machine = self._machines.get(instance_id)
        process = machine.process if machine is not None and not machine.is_over else None
        if process is None or process.stdin is None:
            return False
        try:
            process.stdin.write(f"run {command} {base64.b64encode(script.encode()).decode()}\n".encode())
            process.stdin.flush()
        except OSError:
            return False
        return True

    def access_key(self, instance_id: str) -> str:
        """Return the access key of an instance's role, as its metadata give it out."""
        return role_key(self._machines[instance_id].metadata.profile())

    def result(self, instance_id: str, command: str) -> str | None:
        """Return what a script came to; None: it has not ended."""
        path = self._machines[instance_id].directory / "commands" / command
        return path.read_text() if path.exists() else None

    def _boot(self, record: LaunchRecord) -> None:
        data = record.instance.user_data
        user_data = base64.b64decode(str(data)) if data is not None else b""
        address = str(record.instance.private_ip)
        number = next(self._numbers)
        directory = self.directory / str(number)
        machine = Machine(record, Metadata(record, address, user_data), directory, "")
        self._machines[record.instance.id] = machine
        self._boots.submit(self._run, machine, number)

    def _run(self, machine: Machine, number: int) -> None:
        """Boot a machine and stay with it until it is over."""
        try:
            self._start(machine, number)
        except (OSError, subprocess.SubprocessError) as error:
            sys.stderr.write(f"{machine.record.instance.id} does not boot: {error!r}\n")
            self._gone(machine, code="Server.InternalError", message="Internal error on launch")
            return
        self._account.started(machine.record)
        threading.Thread(target=self._watch, args=(machine,), daemon=True, name="machine").start()

    def _start(self, machine: Machine, number: int) -> None:
        machine.directory.mkdir()
        address = machine.metadata.address
        if self._network.is_namespaced:
            machine.namespace = self._network.add(number, address)
        self._service.add(machine.metadata, namespace=machine.namespace)
        settings = {
            **self._cloud,
            "role": role_key(machine.metadata.profile()),
            "namespaced": self._network.is_namespaced,
            "address": address,
            "metadata": f"http://{address}:{LOOPBACK_PORT}",
            "user_data": machine.metadata.user_data.decode(),
        }
        (machine.directory / "settings.json").write_text(json.dumps(settings))
        command = [sys.executable, "-m", "tests.aws.cloud.instance", str(machine.directory)]
        if machine.namespace:
            own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
            command = ["ip", "netns", "exec", machine.namespace, *own, *command]
        with self._account.lock:
            if machine.is_over:
                raise OSError("ended before it began")
            with (machine.directory / "console.log").open("ab") as out:
                machine.process = subprocess.Popen(
                    command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True,
                    env={**os.environ, MARK: str(machine.directory), "TMPDIR": "/tmp"},  # noqa: S108  # its own
                )  # fmt: skip

    def _watch(self, machine: Machine) -> None:
        assert machine.process is not None
        machine.process.wait()
        if machine.is_over:
            return
        behaviour = machine.record.instance.instance_initiated_shutdown_behavior
        self._gone(
            machine, code="Client.InstanceInitiatedShutdown", message=f"Instance initiated shutdown ({behaviour})"
        )

    def _gone(self, machine: Machine, *, code: str, message: str) -> None:
        self._remove(machine)
        self._account.end(machine.record, code=code, message=message, transition="")
        self._account.ended(machine.record)

    def _power_off(self, record: LaunchRecord) -> bool:
        """Have a machine shut down; False: there is none to wait for."""
        machine = self._machines.get(record.instance.id)
        if machine is None or machine.is_over:
            return False
        process = machine.process
        if process is None:
            machine.is_over = True
            return False
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.write(b"poweroff\n")
            process.stdin.flush()
        is_spot_end = record.instance.state_reason.code == "Server.SpotInstanceTermination"
        self._account.after(_SPOT_SHUTDOWN_S if is_spot_end else _SHUTDOWN_S, lambda: self._take_away(machine))
        return True

    def _take_away(self, machine: Machine) -> None:
        if not machine.is_over:
            self._remove(machine)
            self._account.ended(machine.record)

    def _remove(self, machine: Machine) -> None:
        machine.is_over = True
        if machine.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(machine.process.pid, 9)
        kill_all(str(machine.directory))
        self._service.remove(machine.record.instance.id)
        if machine.namespace:
            remove_namespace(machine.namespace)
        shutil.rmtree(machine.directory / "root", ignore_errors=True)
