"""A directory of each node's own for what its engine would leave in the system's: sockets, locks, half-written files.

A killed engine removes nothing: vLLM leaves four sockets in /tmp of each that was.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.paths import cache_dir

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX = "fleetctl-node-"
# sun_path holds 108 bytes with its NUL on Linux and 104 on macOS; vLLM binds sockets that are named by a uuid.
_PATH_BYTES_MAX = 104 - 1 - len("/") - 36
# Compiled kernels are worth keeping, and every replica of a model needs the same.
_TORCH_CACHE = "TORCHINDUCTOR_CACHE_DIR"


def make(owner: str, token: str) -> str:
    """Create a node's directory and return it; empty where it cannot be, which leaves its engine the system's.

    Its name comes of the owner, which nobody can guess, so that none is there before.
    """
    path = Path(tempfile.gettempdir()) / f"{_PREFIX}{hashlib.sha256(f'{owner}/{token}'.encode()).hexdigest()[:12]}"
    if len(os.fsencode(path)) > _PATH_BYTES_MAX:
        path = Path("/tmp") / path.name  # noqa: S108  # made for us alone, below
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        seen = path.lstat()
    except OSError:
        return ""
    is_ours = stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid()
    return str(path) if is_ours else ""


def environment(directory: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which an engine finds its directory, and keeps elsewhere what outlives it."""
    if not directory:
        return {}
    kept = {} if _TORCH_CACHE in inherited else {_TORCH_CACHE: str(cache_dir() / "torchinductor")}
    return {"TMPDIR": directory, "TEMP": directory, "TMP": directory, **kept}


def remove(directory: str) -> None:
    """Remove a node's directory, and whatever its engine left there; nothing but what `make` made."""
    if Path(directory).name.startswith(_PREFIX):
        shutil.rmtree(directory, ignore_errors=True)
