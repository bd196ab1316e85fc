"""Every test has its own user: nothing outside its directory is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.controller.homes import use_home

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(tmp_path, monkeypatch)
    return tmp_path
