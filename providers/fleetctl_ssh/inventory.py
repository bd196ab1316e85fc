"""The inventory: a YAML file of the machines there are, and how each is reached."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fleetctl.errors import ConfigError
from fleetctl.spelling import suggest
from fleetctl.yaml_text import load_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
# As ssh takes it for a destination, and so that no value of a file is read as an option of ssh.
_DESTINATION = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9._:%\[\]-]{0,252}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_HOSTS_MAX = 1_000
_BYTES_MAX = 2**20
_EXAMPLE = "hosts: [{name: gpu-a, host: 10.0.0.5, user: ubuntu, price_usd_per_hour: 2.5}]"
_KEYS = {
    "name": "how fleetctl calls it; the host, if left out",
    "host": "what ssh takes: a name, an address, or a Host of ~/.ssh/config",
    "user": "who logs in; as ssh chooses, if left out",
    "port": "of sshd; as ssh chooses, if left out",
    "identity_file": "the private key; as ssh chooses, if left out",
    "known_hosts": "the file of its host key; the user's own, if left out",
    "address": "where engines are reached from here; through ssh, if left out",
    "price_usd_per_hour": "of the whole machine; 0, if left out",
    "labels": "a mapping of texts, shown by `doctor`",
    "path": "directories before its PATH, where engines are, separated by colons",
    "python": "its Python, 3.8 or newer; python3, if left out",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine of the inventory."""

    name: str
    host: str
    user: str = ""
    port: int = 0  # 0: as ssh chooses
    identity_file: str = ""
    known_hosts: str = ""
    address: str = ""  # empty: engines listen on its loopback, and are reached through ssh
    price_usd_per_hour: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)
    path: str = ""
    python: str = "python3"

    @property
    def listens_at(self) -> str:
        """Return the address that its engines listen on."""
        return self.address or "127.0.0.1"


def read_inventory(path: str) -> tuple[Machine, ...]:
    """Return the machines of a file. Raises ConfigError that says what is wrong with which, and what to write."""
    file = Path(path).expanduser()
    try:
        with file.open("rb") as opened:
            raw = opened.read(_BYTES_MAX + 1)
    except OSError as exc:
        raise ConfigError(
            f"the inventory {file} cannot be read: {exc.strerror or exc}", hint=f"write one: {_EXAMPLE}"
        ) from exc
    if len(raw) > _BYTES_MAX:
        raise ConfigError(f"the inventory {file} is larger than 1 MiB", hint=f"it is YAML like this: {_EXAMPLE}")
    try:
        found = load_yaml(raw)
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise ConfigError(f"the inventory {file} is no YAML: {exc}", hint=f"it looks like this: {_EXAMPLE}") from exc
    rows = found.get("hosts") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not rows or len(rows) > _HOSTS_MAX or set(found) != {"hosts"}:
        raise ConfigError(
            f"the inventory {file} has to be a list of 1 to {_HOSTS_MAX} machines under `hosts`",
            hint=f"it looks like this: {_EXAMPLE}",
        )
    machines = tuple(_machine(f"{file}: hosts[{number}]", row) for number, row in enumerate(rows))
    _refuse_twins(file, machines)
    return machines


def _machine(where: str, row: object) -> Machine:
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is no mapping", hint=f"it looks like this: {_EXAMPLE}")
    for key in row:
        if key not in _KEYS:
            raise ConfigError(
                f"{where}: there is no key {key!r}{suggest(str(key), _KEYS)}",
                hint="; ".join(f"{known}: {meaning}" for known, meaning in _KEYS.items()),
            )
    host = _text(where, row, "host", _DESTINATION)
    if not host:
        raise ConfigError(f"{where}: `host` is missing", hint=f"`host`: {_KEYS['host']}")
    name = _text(where, row, "name", _NAME) or re.sub(r"[^A-Za-z0-9.-]+", "-", host).strip("-.")
    return Machine(
        name=name,
        host=host,
        user=_text(where, row, "user", _USER),
        port=_port(where, row),
        identity_file=_text(where, row, "identity_file"),
        known_hosts=_text(where, row, "known_hosts"),
        address=_text(where, row, "address", _DESTINATION),
        price_usd_per_hour=_price(where, row),
        labels=_labels(where, row),
        path=_text(where, row, "path"),
        python=_text(where, row, "python", re.compile(r"[A-Za-z0-9_./~-]{1,255}")) or "python3",
    )


def _text(where: str, row: Mapping[str, Any], key: str, form: re.Pattern[str] | None = None) -> str:
    value = row.get(key, "")
    if not isinstance(value, str) or "\n" in value or (value and form is not None and not form.fullmatch(value)):
        raise ConfigError(f"{where}.{key}: {value!r} cannot be that", hint=f"`{key}`: {_KEYS[key]}")
    return value


def _port(where: str, row: Mapping[str, Any]) -> int:
    value = row.get("port", 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 65535:
        raise ConfigError(f"{where}.port: {value!r} is no port", hint=f"`port`: {_KEYS['port']}")
    return value


def _price(where: str, row: Mapping[str, Any]) -> float:
    value = row.get("price_usd_per_hour", 0.0)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e6:
        raise ConfigError(
            f"{where}.price_usd_per_hour: {value!r} is no price", hint="a number of dollars an hour, 0 or more"
        )
    return float(value)


def _labels(where: str, row: Mapping[str, Any]) -> dict[str, str]:
    value = row.get("labels", {})
    if not isinstance(value, dict) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise ConfigError(f"{where}.labels: must be a mapping of texts", hint="labels: {rack: r1}")
    return value


def _refuse_twins(file: Path, machines: tuple[Machine, ...]) -> None:
    names = [machine.name for machine in machines]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{file}: two machines are called {', '.join(twice)}", hint="give each a `name` of its own")
    there: dict[tuple[str, int], str] = {}
    for machine in machines:
        first = there.setdefault((machine.host, machine.port), machine.name)
        if first != machine.name:
            raise ConfigError(
                f"{file}: {first} and {machine.name} are one machine, {machine.host}", hint="take one of them out"
            )
