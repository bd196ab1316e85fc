"""An instance's own file system: the machine's, overlaid by memory, with a process list and an uptime of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[4]


def enter_own_root(directory: Path) -> None:
    """Change the root of this process; mounts go with its mount namespace. Raises CalledProcessError."""
    memory = directory / "memory"
    memory.mkdir()
    _mount("-t", "tmpfs", "tmpfs", memory)
    upper, work, root = (memory / name for name in ("upper", "work", "root"))
    for each in (upper, work, root):
        each.mkdir()
    _mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", root)
    for name in ("dev", "sys"):
        _mount("--rbind", f"/{name}", root / name)
    _mount("-t", "proc", "proc", root / "proc")
    # What lies on file systems of its own is not below the overlay.
    for place in (_CHECKOUT, Path(sys.prefix), Path(sys.base_prefix), directory):
        if place.stat().st_dev != Path("/").stat().st_dev or place == directory:
            (root / place.relative_to("/")).mkdir(parents=True, exist_ok=True)
            _mount("--rbind", place, root / place.relative_to("/"))
    uptime = directory / "uptime"
    uptime.write_text(f"{0:014.2f} 0.00\n")
    _mount("--bind", uptime, root / "proc/uptime")
    os.chroot(root)
    os.chdir(_CHECKOUT)


def _mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True, timeout=20)  # noqa: S607  # whichever is first
