"""Every test has its own user: nothing outside its directory is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.controller.xdg import use_xdg_directories

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_xdg_directories(tmp_path, monkeypatch)
    return tmp_path
