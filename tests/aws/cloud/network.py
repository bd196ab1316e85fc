"""Addresses of instances: a bridge and a network namespace each, or addresses on loopback where neither is allowed."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_LAST = 80
_COMMAND_S = 20
_PROBE = """set -e
d=$(mktemp -d); mount -t tmpfs tmpfs "$d"; mkdir "$d/u" "$d/w" "$d/r"
mount -t overlay overlay -o "lowerdir=/,upperdir=$d/u,workdir=$d/w" "$d/r"; umount "$d/r" "$d"; rmdir "$d"
"""


@dataclass
class InstanceNetwork:
    """One cloud's addresses, held by the name of a socket, which ends with its process."""

    number: int
    lock: socket.socket
    is_namespaced: bool

    @classmethod
    def reserve(cls, *, is_namespaced: bool) -> InstanceNetwork:
        """Take a number that no living cloud has; what a killed one left under it is removed."""
        for number in range(1, _LAST):
            lock = _locked(number)
            if lock is not None:
                found = cls(number, lock, is_namespaced)
                if is_namespaced:
                    remove_networks(number)
                    found._add_bridge()
                return found
        raise AssertionError(f"{_LAST - 1} clouds of tests run here already")

    @property
    def cidr(self) -> str:
        return f"{10 if self.is_namespaced else 127}.{160 + self.number}.0.0/16"

    @property
    def host(self) -> str:
        """The address of this machine that instances reach, and that reaches them."""
        return f"{10 if self.is_namespaced else 127}.{160 + self.number}.255.254"

    def add(self, index: int, address: str) -> str:
        """Make an instance's namespace with its address, and return the namespace's name."""
        name, outer, inner = f"fcn{self.number}-{index}", f"fcv{self.number}-{index}", f"fci{self.number}-{index}"
        _ip(f"netns add {name}")
        _ip(f"link add {outer} type veth peer name {inner} netns {name}", f"link set {outer} master {self.bridge} up")
        _ip(
            f"link set {inner} name eth0", "link set lo up", "addr add 169.254.169.254/32 dev lo",
            f"addr add {address}/16 dev eth0", "link set eth0 up", f"route add default via {self.host}",
            namespace=name,
        )  # fmt: skip
        return name

    @property
    def bridge(self) -> str:
        return f"fcb{self.number}"

    def _add_bridge(self) -> None:
        _ip(
            f"link add {self.bridge} type bridge",
            f"addr add {self.host}/16 dev {self.bridge}",
            f"link set {self.bridge} up",
        )


def why_not_namespaced() -> str:
    """Return what keeps instances from namespaces of their own here; empty: nothing."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    missing = [name for name in ("ip", "unshare", "mount") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    name = f"fcprobe-{os.getpid()}"
    probes = (
        ["ip", "netns", "add", name],
        ["ip", "link", "add", f"fcp{os.getpid()}", "type", "bridge"],
        ["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-c", _PROBE],
    )
    try:
        for probe in probes:
            tried = subprocess.run(probe, capture_output=True, text=True, check=False, timeout=_COMMAND_S)
            if tried.returncode:
                return f"{' '.join(probe[:3])}: {tried.stderr.strip()}"
    finally:
        for undo in (["ip", "netns", "del", name], ["ip", "link", "del", f"fcp{os.getpid()}"]):
            subprocess.run(undo, capture_output=True, check=False, timeout=_COMMAND_S)
    return ""


def remove_namespace(name: str) -> None:
    """Remove an instance's namespace, and its link and address with it."""
    # The link first: the namespace itself lives on for as long as a socket of it is open.
    with contextlib.suppress(subprocess.CalledProcessError):
        _ip(f"link del {name.replace('fcn', 'fcv', 1)}")
    with contextlib.suppress(subprocess.CalledProcessError):
        _ip(f"netns del {name}")


def remove_networks(number: int) -> None:
    """Remove every namespace of a cloud, and its bridge."""
    for path in Path("/run/netns").glob(f"fcn{number}-*"):
        remove_namespace(path.name)
    with contextlib.suppress(subprocess.CalledProcessError):
        _ip(f"link del fcb{number}")


def own_directory() -> Path:
    """Return a new directory for what a cloud keeps of its instances."""
    return Path(tempfile.mkdtemp(prefix="fcc-"))


def _locked(number: int) -> socket.socket | None:
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0fleetctl-tests-cloud-{number}")
    except OSError:
        lock.close()
        return None
    return lock


def _ip(*commands: str, namespace: str = "") -> None:
    argv = ["ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    subprocess.run(argv, input="\n".join(commands), capture_output=True, text=True, check=True, timeout=_COMMAND_S)
