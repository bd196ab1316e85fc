"""The process that starts one engine, ends it in time, and writes down how it ended; it outlives every call and login."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl_ssh.on_host import clocks, machine, processes, records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl_ssh.on_host.records import OwnerRecords

_POLL_S = 0.2
_EXPIRY_GRACE_S, _ENDED_GRACE_S = 30.0, 10.0
_LOG_BYTES_MAX = 64 * 2**20
_TAIL_BYTES = 4000


def start(kept: OwnerRecords, order: dict[str, Any], argv: list[str], env: Mapping[str, str], path: str) -> None:
    """Start an order's supervisor, and return once its record names it and the engine, or it has given up."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader, "rb") as noted:
            noted.read()
        return
    try:
        os.setsid()
        if not os.fork():
            _detach(keep=writer)
            Supervisor(kept, order, path).run(argv, env, writer)
    finally:
        os._exit(0)


def ending(kept: OwnerRecords, order: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return the record of an end."""
    tail = _tail(kept.log(order["fleet"], order["replica"]))
    return {"reason": reason, "at_s": clocks.wall_s(), "tail": tail}


class Supervisor:
    """One engine's parent."""

    def __init__(self, kept: OwnerRecords, order: dict[str, Any], path: str) -> None:
        self._kept, self._order, self._path = kept, order, path
        self._log = kept.log(order["fleet"], order["replica"])
        self._reason = ""  # why it is being ended; empty: it is not
        self._kill_at_s = 0.0

    def run(self, argv: list[str], env: Mapping[str, str], noted: int) -> None:
        """Live as long as the engine."""
        self._order["supervisor"] = processes.identity(os.getpid())
        records.write(self._kept.order(self._order["token"]), self._order)
        try:
            engine = self._start(argv, env)
        except OSError as exc:
            self._note_end(f"cannot start {argv[0]}: {exc.strerror or exc}")
            return
        signal.signal(signal.SIGTERM, lambda *_: self._end(engine, "its supervisor was ended", _ENDED_GRACE_S))
        self._order["engine"] = processes.identity(engine.pid)
        records.write(self._kept.order(self._order["token"]), self._order)
        os.close(noted)
        while engine.poll() is None:
            self._look(engine)
            clocks.wait(_POLL_S)
        processes.signal_session(engine.pid, signal.SIGKILL)  # what it leaves of its own
        code = engine.returncode
        self._note_end(self._reason or (f"signal {-code}" if code < 0 else f"exit {code}"))

    def _start(self, argv: list[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        variables = {**os.environ, "PATH": machine.search_path(self._path), **env}
        if self._order["gpus"]:
            variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, self._order["gpus"]))
        if self._log.exists():
            self._log.replace(_earlier(self._log))
        with self._log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603  # the plan's own command
                argv, cwd=Path.home(), env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def _look(self, engine: subprocess.Popen[bytes]) -> None:
        now_s = clocks.boot_s()
        if self._reason:
            if now_s > self._kill_at_s:
                processes.signal_session(engine.pid, signal.SIGKILL)
            return
        stop = records.read(self._kept.stop(self._order["token"]))
        renewed = records.read(self._kept.renewal(self._order["fleet"]))
        expires_s = self._order["expires_s"]
        if stop is not None:
            self._end(engine, "stopped", stop["until_s"] - now_s)
        elif renewed is not None and now_s - renewed["at_s"] > expires_s:
            self._end(engine, f"expired: no controller has asked for it for {expires_s:g} s", _EXPIRY_GRACE_S)
        with contextlib.suppress(OSError):  # a full disk; the next look tries again
            if self._log.stat().st_size > _LOG_BYTES_MAX:
                shutil.copyfile(str(self._log), str(_earlier(self._log)))
                os.truncate(self._log, 0)

    def _end(self, engine: subprocess.Popen[bytes], reason: str, grace_s: float) -> None:
        if not self._reason:
            self._reason, self._kill_at_s = reason, clocks.boot_s() + max(0.0, grace_s)
            with contextlib.suppress(ProcessLookupError):
                os.kill(engine.pid, signal.SIGTERM)

    def _note_end(self, reason: str) -> None:
        end = ending(self._kept, self._order, reason)
        while True:
            try:
                records.write(self._kept.end(self._order["token"]), end)
            except records.RefusedError:  # until its disk has room again, this process holds what it has to say
                clocks.wait(1.0)
            else:
                return


def _detach(*, keep: int) -> None:
    """Let go of everything of the caller's: the directory's lock is held for as long as anybody has its descriptor."""
    os.chdir("/")
    os.umask(0o077)
    for descriptor in list(processes.descriptors()):
        if descriptor != keep:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _earlier(log: Path) -> Path:
    return log.with_name(f"{log.name}.1")


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
