"""What is remembered on this machine of each order: one directory an owner, one file a fact, each written by one process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl_ssh.on_host import clocks

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCK_WAIT_S, _LOCK_POLL_S = 8.0, 0.02
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class RefusedError(Exception):
    """A call that had no effect; its kind says what follows from that."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def base() -> Path:
    """Return where the directories of all owners are."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "fleetctl-host"


def checked(name: object) -> str:
    """Return a name that can be a file's. Raises RefusedError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RefusedError("invalid", f"not a name: {name!r}")
    return name


class OwnerRecords:
    """One owner's directory."""

    def __init__(self, owner: object) -> None:
        self.directory = base() / checked(owner)

    @property
    def is_there(self) -> bool:
        """Whether there ever was an order."""
        return self.directory.is_dir()

    def order(self, token: object) -> Path:
        """Return the file of what was ordered, and of the processes it became: written at its creation and by its supervisor."""
        return self.directory / f"{checked(token)}.order"

    def end(self, token: object) -> Path:
        """Return the file of how it ended, by its supervisor or by whoever finds that this one died."""
        return self.directory / f"{checked(token)}.end"

    def stop(self, token: object) -> Path:
        """Return the file of until when it is to end."""
        return self.directory / f"{checked(token)}.stop"

    def renewal(self, fleet: object) -> Path:
        """Return the file of when a fleet's controller last asked for it."""
        return self.directory / f"{checked(fleet)}.renewal"

    def log(self, fleet: object, replica: object) -> Path:
        """Return the file an engine writes to."""
        return self.directory / f"{checked(fleet)}.{checked(replica)}.log"

    def orders(self) -> list[dict[str, Any]]:
        """Return every order there is a record of, those that ended lately included."""
        found = (read(path) for path in sorted(self.directory.glob("*.order")))
        return [order for order in found if order is not None]


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Have the records of all owners for oneself, as they share the machine's GPUs. Raises RefusedError."""
    directory = base()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (directory / "lock").open("a")
    except OSError as exc:
        raise refused_for(exc, directory) from exc
    with lock:
        until_s = clocks.boot_s() + _LOCK_WAIT_S
        while not _is_taken(lock.fileno()):
            if clocks.boot_s() > until_s:
                raise RefusedError("failed", f"another call has held {directory} for {_LOCK_WAIT_S:g} s")
            clocks.wait(_LOCK_POLL_S)
        yield


def read(path: Path) -> dict[str, Any] | None:
    """Return a record; None: there is none, or none that can be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write(path: Path, record: dict[str, Any]) -> None:
    """Replace a record in one step, on the disk when this returns. Raises RefusedError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with draft.open("w") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as exc:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise refused_for(exc, path) from exc


def refused_for(fault: OSError, path: Path) -> RefusedError:
    """Return the error for what could not be written."""
    if fault.errno in (errno.ENOSPC, errno.EDQUOT):
        return RefusedError("disk-full", f"no space left on its disk for {path}")
    return RefusedError("failed", f"{path}: {fault.strerror or fault}")


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
