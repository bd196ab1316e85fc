"""The OpenSSH client: one shared connection a machine, known hosts enforced, a deadline to every call."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.errors import (
    AmbiguousOutcomeError,
    CapacityError,
    CredentialsError,
    EngineMissingError,
    ProviderError,
)
from fleetctl_ssh.program import LOADER, with_call

if TYPE_CHECKING:
    from fleetctl_ssh.inventory import Machine

_CONNECT_S = 5
_SILENT_S, _SILENCES = 5, 3  # a connection that says nothing for 15 s is given up: the other end may be gone
_IDLE_S = 600  # how long a shared connection stays without a call
_SESSIONS = 6  # at once over one connection; sshd allows ten
_ANSWER_BYTES_MAX = 8 * 2**20
_SOCKET_BYTES_MAX = 104 - 1 - 17  # OpenSSH first binds it under its name and 17 characters
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class UnreachableError(ProviderError):
    """A machine did not answer; what runs there may run on."""


class SshConnection:
    """The way to one machine. Raises UnreachableError, CredentialsError, and what the machine's refusals mean."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._slots = asyncio.Semaphore(_SESSIONS)

    async def call(self, name: str, call: dict[str, Any], *, deadline_s: float) -> dict[str, Any]:
        """Return the machine's answer. A call cut off by its deadline may have had its effect: AmbiguousOutcomeError."""
        # The shell there is the user's own, whichever that is: single quotes mean the same to all of them.
        command = f"{self.machine.python} -c {shlex.quote(LOADER)}"
        async with self._slots:
            code, out, err = await self._run(
                [*self._options(), "--", self._target, command], with_call(name, call), deadline_s
            )
        if code:
            raise self._failed(code, err)
        try:
            answer = json.loads(out)
        except ValueError as exc:
            shown = _plain(out[:200].decode(errors="replace"))
            raise ProviderError(
                f"{self.machine.name} answered {shown!r}, which is no answer of ours",
                hint=f"does {self.machine.host} print something at each login? `ssh {self._target} true` must print nothing",
            ) from exc
        if "refused" in answer:
            raise self._refused(answer["refused"], answer["message"])
        return dict(answer)

    async def forward(self, port: int, *, deadline_s: float) -> None:
        """Have this port of our loopback lead to the same of the machine's; once more changes nothing."""
        arguments = ["-O", "forward", "-L", f"127.0.0.1:{port}:127.0.0.1:{port}"]
        code, _, err = await self._run([*arguments, *self._options(), "--", self._target], b"", deadline_s)
        if code:
            raise UnreachableError(
                f"no way through ssh to port {port} of {self.machine.name}: {err}",
                hint=f"does its sshd allow forwarding (AllowTcpForwarding)? is port {port} free here?",
            )

    async def unforward(self, port: int, *, deadline_s: float) -> None:
        """Give the port back; one that leads nowhere is no error."""
        arguments = ["-O", "cancel", "-L", f"127.0.0.1:{port}:127.0.0.1:{port}"]
        await self._run([*arguments, *self._options(), "--", self._target], b"", deadline_s)

    async def master(self, *, deadline_s: float) -> str:
        """Return what tells the shared connection of now from an earlier one; empty: there is none."""
        code, _, err = await self._run(["-O", "check", *self._options(), "--", self._target], b"", deadline_s)
        return "" if code else err

    @property
    def _target(self) -> str:
        return f"{self.machine.user}@{self.machine.host}" if self.machine.user else self.machine.host

    def _options(self) -> list[str]:
        machine = self.machine
        settings = {
            "BatchMode": "yes",  # nobody is there to type a password
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": str(_CONNECT_S),
            "ServerAliveInterval": str(_SILENT_S),
            "ServerAliveCountMax": str(_SILENCES),
            "ControlMaster": "auto",
            "ControlPath": str(self._socket()),
            "ControlPersist": str(_IDLE_S),
            "ExitOnForwardFailure": "no",
            "ClearAllForwardings": "no",
            "LogLevel": "ERROR",
            "RequestTTY": "no",
        }
        if machine.known_hosts:
            settings["UserKnownHostsFile"] = str(Path(machine.known_hosts).expanduser())
        if machine.identity_file:
            settings["IdentityFile"] = str(Path(machine.identity_file).expanduser())
            settings["IdentitiesOnly"] = "yes"
        # In quotes, as ssh takes the words of a path with blanks for several files.
        arguments = [word for name, value in settings.items() for word in ("-o", f'{name}="{value}"')]
        return [*arguments, "-p", str(machine.port)] if machine.port else arguments

    def _socket(self) -> Path:
        """Return where the shared connection is reached: by all of this user's processes that mean the same machine."""
        parts = (self._target, str(self.machine.port), self.machine.identity_file, self.machine.known_hosts)
        return private_directory() / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    async def _run(self, arguments: list[str], text: bytes, deadline_s: float) -> tuple[int, bytes, str]:
        """Run ssh. What it says goes to a file: a shared connection that it leaves behind would hold a pipe open."""
        program = shutil.which("ssh")
        if program is None:
            raise ProviderError(
                "there is no `ssh` here", hint="install the OpenSSH client (apt install openssh-client)"
            )
        with tempfile.TemporaryFile() as errors:
            process = await asyncio.create_subprocess_exec(
                program, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
                start_new_session=True, limit=_ANSWER_BYTES_MAX,
            )  # fmt: skip
            try:
                async with asyncio.timeout(deadline_s):
                    out = await _exchanged(process, text)
            except TimeoutError:
                await self._drop()
                raise AmbiguousOutcomeError(
                    f"{self.machine.name} has not answered for {deadline_s:g} s", hint="it is asked again"
                ) from None
            finally:
                if process.returncode is None:
                    process.send_signal(signal.SIGKILL)
            errors.seek(0)
            return process.returncode or 0, out, _plain(errors.read(4000).decode(errors="replace"))

    async def _drop(self) -> None:
        """Give the shared connection up: it may be half open, and every further call would wait for it too."""
        socket = self._socket()
        program = shutil.which("ssh")
        if program is None or not socket.exists():
            return
        ending = await asyncio.create_subprocess_exec(
            program, "-O", "exit", "-o", f"ControlPath={socket}", "--", self._target,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with asyncio.timeout(2.0):
                await ending.wait()
        except TimeoutError:
            ending.kill()
            socket.unlink(missing_ok=True)  # it does not even answer here: the next call opens another

    def _failed(self, code: int, err: str) -> ProviderError:
        """Return what an exit status of ssh, and what it printed, mean."""
        machine = self.machine
        trial = f"try it by hand: {self._login()}"
        if "REMOTE HOST IDENTIFICATION HAS CHANGED" in err or "Host key verification failed" in err:
            is_known = "REMOTE HOST IDENTIFICATION HAS CHANGED" in err
            found = "its host key is not the one that is known" if is_known else "its host key is not known"
            return CredentialsError(f"{machine.name}: {found}: {err}", hint=self._key_hint(is_known=is_known))
        if "Permission denied" in err or "Too many authentication failures" in err:
            key = Path(machine.identity_file).expanduser()
            # ssh goes on without it, and then says of the login alone that it was denied.
            missing = f"identity_file {key} is not there; " if machine.identity_file and not key.exists() else ""
            return CredentialsError(
                f"{machine.name} lets {self._target} not in: {err}",
                hint=f"{missing}load the key into ssh-agent, or set identity_file; {trial}",
            )
        if code == 255:
            return UnreachableError(f"{machine.name} cannot be reached: {err or 'the connection broke'}", hint=trial)
        if code == 127:
            return ProviderError(
                f"{machine.name} has no {machine.python}: {err}",
                hint="install Python 3.8 or newer there, or set `python`",
            )
        return ProviderError(f"{machine.name}: {err or f'exit {code}'}", hint=trial)

    def _login(self) -> str:
        """Return the command that logs in as calls do, as far as the inventory says how."""
        machine = self.machine
        options = [*(("-p", str(machine.port)) if machine.port else ())]
        options += ["-i", machine.identity_file] if machine.identity_file else []
        options += ["-o", f'UserKnownHostsFile="{machine.known_hosts}"'] if machine.known_hosts else []
        return " ".join(["ssh", *map(_quoted, options), _quoted(self._target)])

    def _key_hint(self, *, is_known: bool) -> str:
        """Return how the machine's host key gets to where calls look for it."""
        machine = self.machine
        port = f"-p {machine.port} " if machine.port else ""
        file = _quoted(machine.known_hosts) if machine.known_hosts else "~/.ssh/known_hosts"
        name = f"[{machine.host}]:{machine.port}" if machine.port not in (0, 22) else machine.host
        removal = f"ssh-keygen -R {shlex.quote(name)} -f {file} && " if is_known else ""
        return f"compare it with the machine's own, then: {removal}ssh-keyscan {port}{_quoted(machine.host)} >> {file}"

    def _refused(self, kind: str, message: str) -> ProviderError:
        name = self.machine.name
        if kind == "engine-missing":
            return EngineMissingError(f"{name}: {message}", hint="install it there, or set `path` in the inventory")
        if kind == "disk-full":
            return CapacityError(f"{name}: {message}", zone=name, again_s=60.0, hint="make room there")
        if kind in ("capacity", "port"):
            return CapacityError(f"{name}: {message}", zone=name, again_s=5.0, hint="the next machine is tried")
        return ProviderError(f"{name}: {message}")


def _quoted(word: str) -> str:
    """Return a word for a shell, which is to expand a `~` at its beginning."""
    return f"~/{shlex.quote(word[2:])}" if word.startswith("~/") else shlex.quote(word)


async def _exchanged(process: asyncio.subprocess.Process, text: bytes) -> bytes:
    """Return what a program answers to a text, once it has ended; at most 8 MiB of it."""
    if process.stdin is None or process.stdout is None:
        raise ValueError("a program without pipes")
    try:
        process.stdin.write(text)
        await process.stdin.drain()
        process.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has ended; its status says why
    out = b""
    while piece := await process.stdout.read(65536):
        out = (out + piece)[:_ANSWER_BYTES_MAX]
    await process.wait()
    return out


def private_directory() -> Path:
    """Return a directory of this user's alone, short enough for a socket's path. Raises ProviderError."""
    name = f"fleetctl-ssh-{os.geteuid()}"
    path = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / name
    if len(os.fsencode(path)) + 1 + 16 > _SOCKET_BYTES_MAX or not path.parent.is_dir():
        path = Path("/tmp") / name  # noqa: S108  # made for us alone, and looked at
    path.mkdir(mode=0o700, exist_ok=True)
    seen = path.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
        raise ProviderError(
            f"{path} is not this user's alone", hint="remove it: connections to machines are shared there"
        )
    return path


def _plain(text: str) -> str:
    """Return what a program printed on one line, without what a terminal would act on."""
    return _CONTROL.sub(" ", text).strip()
