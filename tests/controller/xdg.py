"""A user of its own for every test."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def use_xdg_directories(root: Path, patched: pytest.MonkeyPatch) -> None:
    """Make `root` the place of everything fleetctl keeps."""
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        directory = root / variable.lower()
        directory.mkdir(mode=0o700, exist_ok=True)
        patched.setenv(variable, str(directory))
    for variable in ("FLEETCTL_LISTEN_FDS", "FLEETCTL_CONTROLLER_ARGV"):
        patched.delenv(variable, raising=False)
