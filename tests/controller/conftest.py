"""Every test has its own user: nothing outside its directory is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        directory = tmp_path / variable.lower()
        directory.mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(directory))
    for variable in ("FLEETCTL_LISTEN_FDS", "FLEETCTL_CONTROLLER_ARGV"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path
