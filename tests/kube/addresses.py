"""Addresses of pods on the loopback device: 10.200.x.y, one x for each cluster that runs here."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass, field

_LAST = 254


@dataclass
class Addresses:
    """One x, held by the name of a socket, which ends with this process; what a killed holder left is removed first."""

    third: int
    lock: socket.socket
    _next: int = 2
    given: set[str] = field(default_factory=set)

    @classmethod
    def reserve(cls) -> Addresses:
        _sweep()
        for third in range(1, _LAST):
            lock = _locked(third)
            if lock is not None:
                found = cls(third, lock)
                # An address that no pod has any more is nobody's: it must lead to no router, which may answer for all.
                _ip_route("replace", third)
                _ip("add", found.node)
                return found
        raise AssertionError("253 clusters of tests run here already")

    @property
    def node(self) -> str:
        """The address of the tests' kubelet."""
        return f"10.200.{self.third}.1"

    def give(self) -> str:
        """Return an address that no pod has."""
        for _ in range(_LAST):
            address = f"10.200.{self.third}.{self._next}"
            self._next = 2 + (self._next - 1) % (_LAST - 2)
            if address not in self.given:
                self.given.add(address)
                _ip("add", address)
                return address
        raise AssertionError(f"all of 10.200.{self.third}.0/24 is in use")

    def take_back(self, address: str) -> None:
        if address in self.given:
            _ip("del", address)
            self.given.discard(address)

    def release(self) -> None:
        _ip_route("del", self.third)
        self.lock.close()
        _sweep()


def _locked(third: int) -> socket.socket | None:
    """Return a hold of one x that ends with this process; None: another cluster has it."""
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0fleetctl-tests-pods-{third}")
    except OSError:
        lock.close()
        return None
    return lock


def _sweep() -> None:
    """Remove the addresses of clusters that have ended, killed ones included."""
    shown = subprocess.run(["ip", "-o", "-4", "addr", "show", "dev", "lo"], capture_output=True, text=True, check=True)  # noqa: S607  # whichever is first
    left = [word.partition("/")[0] for word in shown.stdout.split() if word.startswith("10.200.")]
    for third in {int(address.split(".")[2]) for address in left}:
        lock = _locked(third)
        if lock is not None:
            for address in left:
                if int(address.split(".")[2]) == third:
                    _ip("del", address)
            _ip_route("del", third)
            lock.close()


def _ip_route(verb: str, third: int) -> None:
    command = ["ip", "route", verb, "unreachable", f"10.200.{third}.0/24"]
    subprocess.run(command, capture_output=True, check=False, timeout=20)


def _ip(verb: str, address: str) -> None:
    subprocess.run(["ip", "addr", verb, f"{address}/32", "dev", "lo"], capture_output=True, check=False, timeout=20)  # noqa: S607  # whichever is first
