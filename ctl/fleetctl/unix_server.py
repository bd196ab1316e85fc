"""Serves a fleet's process on a Unix socket that only its user can open, and anew wherever the socket has vanished."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from fleetctl.files import write_whole
from fleetctl.locks import FileLock
from fleetctl.paths import has_room_for_sockets, state_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.clock import Clock
    from fleetctl.paths import FleetPaths

_log = logging.getLogger("fleetctl.unix_server")
_LOOK_AGAIN_S = 1.0
# Controller and gateway share one directory: whoever misses it first makes it, which takes milliseconds.
_MAKING_S = 5.0


class UnixServer:
    """Serves one application at a path that may change: looked up before each start."""

    def __init__(self, application: web.Application, paths: FleetPaths, path_of: Callable[[FleetPaths], Path]) -> None:
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        self._paths = paths
        self._path_of = path_of
        self._site: web.UnixSite | None = None
        self._path = Path()
        self._identity = (0, 0)

    async def start(self) -> None:
        """Begin to serve, in the place of whatever a dead process left there."""
        await self._runner.setup()
        await self._bind()

    async def keep(self, clock: Clock, *, is_ours: Callable[[], bool]) -> None:
        """Look for the socket for ever, and make it anew where it is gone; not while another process may have it."""
        while True:
            await clock.sleep(_LOOK_AGAIN_S)
            # A state directory that was deleted or moved is not made anew in its place: it may come back.
            if not is_ours() or self._is_in_place() or not state_dir().is_dir():
                continue
            try:
                await self._bind()
            except OSError as exc:
                _log.error("%s has vanished and cannot be made again: %s", self._path, exc)
            else:
                _log.warning("the socket had vanished; serving at %s", self._path)

    async def close(self) -> None:
        """Serve no more, and remove the socket unless another process's stands there by now."""
        is_in_place = self._is_in_place()
        await self._runner.cleanup()
        if is_in_place:
            self._path.unlink(missing_ok=True)

    async def _bind(self) -> None:
        make_socket_dir(self._paths)
        path = self._path_of(self._paths)
        if self._site is not None:
            await self._site.stop()
        path.unlink(missing_ok=True)
        self._site = web.UnixSite(self._runner, str(path))
        await self._site.start()
        path.chmod(0o600)  # whatever the umask: its directory is private too
        self._path, self._identity = path, _identity(path)

    def _is_in_place(self) -> bool:
        return self._path == self._path_of(self._paths) and _identity(self._path) == self._identity


def make_socket_dir(paths: FleetPaths) -> Path:
    """Return the directory of a fleet's sockets, made and put on record if it is not there. Raises OSError.

    One that is recorded and not the user's alone is not used: somebody else may have put it there.
    """
    if has_room_for_sockets(paths.home):
        paths.make()
        return paths.home
    with FileLock(paths.home / "socket-directory.lock").hold(wait_s=_MAKING_S):
        recorded = paths.socket_dir
        if recorded is not None and _is_private(recorded):
            return recorded
        made = Path(tempfile.mkdtemp(prefix="fleetctl-", dir=_short_base()))
        write_whole(paths.socket_dir_record, str(made).encode(), mode=0o600)
        return made


def _short_base() -> Path:
    """Return where temporary directories of the user's own can be made, with room left for a socket's name."""
    base = Path(tempfile.gettempdir())
    return base if has_room_for_sockets(base / "fleetctl-12345678") else Path("/tmp")  # noqa: S108  # mkdtemp makes a private one


def _is_private(directory: Path) -> bool:
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _identity(path: Path) -> tuple[int, int]:
    """Return what tells this file from another of its name; (0, 0): there is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_dev, found.st_ino)
