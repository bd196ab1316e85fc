"""The way from here to a head: one OpenSSH connection, over which the fleet's sockets here lead to those there.

It outlives the command that opened it, for the gateway's port; whoever needs it and finds it broken opens it again. Only
the host key that the head itself left in the state is taken.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.errors import UnavailableError
from fleetctl.files import write_whole
from fleetctl.locks import FileLock
from fleetctl.model.head import SSH_PORT, HeadSign
from fleetctl.unix_server import make_socket_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.paths import FleetPaths

HEAD_HOME = "/var/lib/fleetctl"  # of the state directory there
_USER = "root"
_CONNECT_S, _COMMAND_S = 5, 15.0
_SILENT_S, _SILENCES = 5, 3  # a connection that says nothing for 15 s is given up: the head may be gone
_LOCK_S = 30.0
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_LOG_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TunnelEnd:
    """Where a tunnel leads, and with what it is opened."""

    sign: HeadSign
    address: str  # of its sshd from here, or its name for `proxy_command`
    proxy_command: str = ""  # what carries ssh there; empty: nothing has to
    port: int  # of the gateway, here and there


class Tunnel:
    """The connection of one fleet, shared by all of this user's commands."""

    def __init__(self, paths: FleetPaths) -> None:
        self._paths = paths

    @property
    def key(self) -> Path:
        """The file of the key that a head lets in."""
        return self._paths.home / "head-key"

    def is_open(self, end: TunnelEnd) -> bool:
        """Whether the shared connection to this end lives."""
        return self._control(end).exists() and self._ssh(end, "-O", "check")[0] == 0

    def open(self, end: TunnelEnd) -> None:
        """Have it open, to this end alone. Raises UnavailableError with what ssh says, LockHeldError."""
        self._paths.make()
        with FileLock(self._paths.home / "tunnel.lock").hold(wait_s=_LOCK_S):
            if self.is_open(end):
                return
            self._close_others(end)
            self._control(end).unlink(missing_ok=True)
            self._connect(end)
            self._forward_gateway(end)

    def close(self) -> None:
        """End every connection of the fleet, and forget what it was opened with."""
        self._close_others(None)
        for path in (self.key, self._known_hosts, self._paths.controller_socket, self._paths.gateway_socket):
            path.unlink(missing_ok=True)

    def run(self, end: TunnelEnd, command: str) -> bytes:
        """Return what the one command that a head allows prints. Raises UnavailableError."""
        code, out, err = self._ssh(end, command=command)
        if code:
            raise UnavailableError(f"the head at {end.address} does not say: {err or f'exit {code}'}")
        return out[:_LOG_BYTES_MAX]

    def arguments(self, end: TunnelEnd) -> list[str]:
        """Return ssh's options for this end."""
        settings = {
            "BatchMode": "yes",  # nobody is there to type
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(self._known_hosts),
            "GlobalKnownHostsFile": os.devnull,
            # By which the head's key is known, whichever address leads there.
            "HostKeyAlias": _alias(end.sign),
            "CheckHostIP": "no",
            "IdentityFile": str(self.key),
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "ConnectTimeout": str(_CONNECT_S),
            "ServerAliveInterval": str(_SILENT_S),
            "ServerAliveCountMax": str(_SILENCES),
            "ControlPath": str(self._control(end)),
            "StreamLocalBindUnlink": "yes",
            "StreamLocalBindMask": "0177",
            "ExitOnForwardFailure": "yes",
            "RequestTTY": "no",
            "LogLevel": "ERROR",
        }
        if end.proxy_command:
            settings["ProxyCommand"] = end.proxy_command
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        # No configuration of the user's: it is for other machines, and its ProxyJump or User would lead elsewhere.
        return ["-F", os.devnull, *options, "-p", str(SSH_PORT), "-l", _USER]

    def _connect(self, end: TunnelEnd) -> None:
        make_socket_dir(self._paths)
        known = f"[{_alias(end.sign)}]:{SSH_PORT} {end.sign.host_key}\n{_alias(end.sign)} {end.sign.host_key}\n"
        write_whole(self._known_hosts, known.encode(), mode=0o600)
        there = f"{HEAD_HOME}/fleets/{self._paths.fleet}"
        forwards = [
            word
            for path in (self._paths.controller_socket, self._paths.gateway_socket)
            for word in ("-L", f"{path}:{there}/{path.name}")
        ]
        code, _, err = self._ssh(end, "-f", "-N", "-M", *forwards)
        if code:
            raise UnavailableError(
                f"the head at {end.address} cannot be reached: {err or f'ssh ended with {code}'}",
                hint="is its address reached from here (a VPN)? docs/aws.md: A head that outlives your laptop",
            )

    def _forward_gateway(self, end: TunnelEnd) -> None:
        """Have the gateway's port here too; one that is another's here is left to it, as the fleet needs none of this."""
        self._ssh(end, "-O", "forward", "-L", f"127.0.0.1:{end.port}:127.0.0.1:{end.port}")

    def _close_others(self, end: TunnelEnd | None) -> None:
        keep = self._control(end) if end is not None else None
        for path in _control_directory().glob(f"{self._prefix}-*"):
            if path != keep:
                _run(["ssh", "-F", os.devnull, "-O", "exit", "-o", f"ControlPath={path}", "--", "head"])
                path.unlink(missing_ok=True)

    def _ssh(self, end: TunnelEnd, *before: str, command: str = "") -> tuple[int, bytes, str]:
        last = ["--", end.address, *([command] if command else [])]
        return _run(["ssh", *before, *self.arguments(end), *last])

    @property
    def _known_hosts(self) -> Path:
        return self._paths.home / "head-known-hosts"

    @property
    def _prefix(self) -> str:
        return hashlib.sha256(str(self._paths.home).encode()).hexdigest()[:10]

    def _control(self, end: TunnelEnd) -> Path:
        """Return where the connection is reached by ssh's own commands: by fleet and head."""
        text = f"{end.sign.machine_id} {end.address} {end.sign.host_key}"
        return _control_directory() / f"{self._prefix}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _alias(sign: HeadSign) -> str:
    return f"fleetctl-{sign.machine_id}"


def _control_directory() -> Path:
    """Return a directory of this user's alone, short enough for a socket's path. Raises UnavailableError."""
    path = Path("/tmp") / f"fleetctl-heads-{os.geteuid()}"  # noqa: S108  # made for us alone, and looked at
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if path.is_symlink() or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise UnavailableError(
            f"{path} is not this user's alone", hint="remove it: connections to heads are shared there"
        )
    return path


def _run(argv: Sequence[str]) -> tuple[int, bytes, str]:
    """Run ssh to its end. What it says goes to files: a connection that it leaves behind would hold pipes open."""
    program = shutil.which(argv[0])
    if program is None:
        raise UnavailableError("there is no `ssh` here", hint="install the OpenSSH client (apt install openssh-client)")
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            done = subprocess.run(  # noqa: S603  # an argument list, no shell
                [program, *argv[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=errors, timeout=_COMMAND_S,
                check=False, start_new_session=True,
            )  # fmt: skip
            code = done.returncode
        except subprocess.TimeoutExpired:
            return 255, b"", f"no answer for {_COMMAND_S:g} s"
        out.seek(0)
        errors.seek(0)
        complaint = errors.read(4000).decode(errors="replace")
        return code, out.read(_LOG_BYTES_MAX), _CONTROL.sub(" ", complaint).strip()
