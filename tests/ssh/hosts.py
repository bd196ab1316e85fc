"""Machines to log in to: Debian's sshd, each in a network namespace of its own, with GPUs that nvidia-smi claims.

Where namespaces are not allowed they are addresses of the loopback device, and engines are reached by address.
"""

from __future__ import annotations

import contextlib
import getpass
import itertools
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from fleetctl.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
IP = shutil.which("ip") or "/usr/sbin/ip"
KEYGEN = shutil.which("ssh-keygen") or "/usr/bin/ssh-keygen"
_GPU = "{index}, GPU-{name}-{index}, NVIDIA L40S, 46068, 45500, [N/A]"
_START_S = 60.0


@dataclass
class Host:
    """One machine; it can vanish and come back."""

    name: str
    directory: Path
    address: str
    port: int
    namespace: str = ""
    gpus: int = 2
    _sshd: subprocess.Popen[bytes] | None = None
    extra: dict[str, object] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.directory / "state"

    def entry(self) -> dict[str, object]:
        found: dict[str, object] = {
            "name": self.name, "host": self.address, "port": self.port, "user": getpass.getuser(),
            "identity_file": str(self.directory.parent / "key"), "known_hosts": str(self.directory.parent / "known_hosts"),
            "price_usd_per_hour": 1.5,
        }  # fmt: skip
        if not self.namespace:
            found["address"] = self.address
        return {**found, **self.extra}

    def prepare(self) -> None:
        for part in ("state", "bin"):
            (self.directory / part).mkdir(parents=True)
        keygen(self.directory / "host_key")
        self.write_gpus(self.gpus)
        public = (self.directory / "host_key.pub").read_text().split()
        with (self.directory.parent / "known_hosts").open("a") as known:
            known.write(f"[{self.address}]:{self.port} {public[0]} {public[1]}\n")
        settings = {
            "ListenAddress": f"{self.address}:{self.port}", "HostKey": self.directory / "host_key",
            "AuthorizedKeysFile": self.directory.parent / "key.pub", "PidFile": self.directory / "pid",
            "StrictModes": "no", "UsePAM": "no", "PasswordAuthentication": "no", "PermitRootLogin": "yes",
            "SetEnv": f"XDG_STATE_HOME={self.state} PATH={self.directory / 'bin'}:{os.environ['PATH']}",
        }  # fmt: skip
        (self.directory / "config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))

    def write_gpus(self, count: int) -> None:
        rows = "\n".join(_GPU.format(index=index, name=self.name) for index in range(count))
        program = self.directory / "bin" / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{rows}\nEND\n")
        program.chmod(0o755)

    def start(self) -> None:
        within = [IP, "netns", "exec", self.namespace] if self.namespace else []
        with (self.directory / "sshd.log").open("ab") as log:
            self._sshd = subprocess.Popen(
                [*within, SSHD, "-D", "-e", "-f", str(self.directory / "config")],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        until = SYSTEM_CLOCK.monotonic_s() + _START_S
        while not (self.directory / "pid").exists():
            assert self._sshd.poll() is None, (self.directory / "sshd.log").read_text()
            assert SYSTEM_CLOCK.monotonic_s() < until, "sshd has not started"
            SYSTEM_CLOCK.sleep_blocking(0.05)

    def vanish(self) -> None:
        """Answer nobody any more, as a machine whose cable is cut: connections stay half open."""
        if self.namespace:
            ip("netns", "exec", self.namespace, "ip", "link", "set", "eth0", "down")
        else:
            self.stop()

    def come_back(self) -> None:
        if self.namespace:
            ip("netns", "exec", self.namespace, "ip", "link", "set", "eth0", "up")
        else:
            self.start()

    def stop(self) -> None:
        """End it with every connection to it, which would outlive it."""
        if self._sshd is not None:
            for pid in descendants(self._sshd.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._sshd.terminate()
            self._sshd.wait(10)
            self._sshd = None
        (self.directory / "pid").unlink(missing_ok=True)

    def end(self) -> None:
        """End it, and whatever runs there."""
        self.stop()
        for pid in self.engines():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill(self, pid: int) -> None:
        """End a process of an engine or a supervisor, but no login."""
        if self.is_engine(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @staticmethod
    def is_engine(pid: int) -> bool:
        """Whether it is an emulated engine."""
        try:
            return b"emulator" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def engines(self) -> list[int]:
        """Return the processes that live on it, by the state directory that its logins have."""
        return pids_with(f"XDG_STATE_HOME={self.state}")


def ip(*words: str, check: bool = True) -> str:
    return subprocess.run([IP, *words], check=check, capture_output=True, text=True).stdout


def keygen(path: Path) -> None:
    subprocess.run([KEYGEN, "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def descendants(pid: int) -> list[int]:
    """Return what a process has started, and what that has, as far as its parent still is there."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = children.get(pid, [])
    for each in found:
        found.extend(children.get(each, []))
    return found


def pids_with(variable: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def has_namespaces() -> bool:
    if os.geteuid() or not Path(IP).exists():
        return False
    name = f"fleetctl-{os.getpid()}-try"
    made = subprocess.run([IP, "netns", "add", name], capture_output=True, check=False).returncode == 0
    if made:
        ip("netns", "delete", name)
    return made


class Cable:
    """A namespace, and the two ends of what connects it to here."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        number = next(self._numbers)
        self.namespace, self._here = f"fleetctl-{os.getpid()}-{number}", f"f{os.getpid()}-{number}"[:15]
        network = self._free_network(number)
        self.address = f"{network}.2"
        ip("netns", "add", self.namespace)
        ip("link", "add", self._here, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        ip("address", "add", f"{network}.1/30", "dev", self._here)
        ip("link", "set", self._here, "up")
        within = ("netns", "exec", self.namespace, IP)
        ip(*within, "address", "add", f"{network}.2/30", "dev", "eth0")
        ip(*within, "link", "set", "eth0", "up")
        ip(*within, "link", "set", "lo", "up")

    @staticmethod
    def _free_network(number: int) -> str:
        # Two test runs that look at the same moment start far apart.
        for step in range(10_000):
            guess = (os.getpid() * 16 + number + step) % 10_000
            network = f"10.{201 + guess // 250}.{guess % 250}"
            if not ip("-o", "address", "show", "to", f"{network}.0/24"):
                return network
        raise AssertionError("every network is taken")

    def remove(self) -> None:
        ip("link", "delete", self._here, check=False)
        ip("netns", "delete", self.namespace, check=False)


@contextlib.contextmanager
def some_hosts(directory: Path, names: tuple[str, ...] = ("a", "b")) -> Iterator[dict[str, Host]]:
    """Have machines, and an inventory of them at `inventory.yaml`; whatever was started on them ends with them."""
    directory.mkdir(parents=True, exist_ok=True)
    keygen(directory / "key")
    Path("/run/sshd").mkdir(exist_ok=True) if not os.geteuid() else None
    isolated = has_namespaces()
    if not isolated:
        print("network namespaces are not allowed here: machines are loopback addresses", file=sys.stderr)  # noqa: T201
    hosts: dict[str, Host] = {}
    with contextlib.ExitStack() as ending:
        for number, name in enumerate(names):
            cable = Cable() if isolated else None
            if cable is not None:
                ending.callback(cable.remove)
            address = cable.address if cable else f"127.0.{os.getpid() % 250}.{number + 2}"
            host = Host(f"gpu-{name}", directory / name, address, 2222, cable.namespace if cable else "")
            hosts[host.name] = host
            host.prepare()
            ending.callback(host.end)
            host.start()
        write_inventory(directory, hosts)
        yield hosts


def write_inventory(directory: Path, hosts: dict[str, Host]) -> Path:
    file = directory / "inventory.yaml"
    file.write_text(yaml.safe_dump({"hosts": [host.entry() for host in hosts.values()]}))
    return file
