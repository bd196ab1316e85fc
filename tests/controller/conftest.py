"""Every test has its own user: nothing outside its directory is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import Rig
from tests.controller.xdg import use_xdg_directories

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_xdg_directories(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def on_rig(tmp_path: Path) -> Callable[[Callable[[Rig], Coroutine[object, object, None]]], None]:
    """Run a scenario on a new rig, on virtual time."""

    def run(scenario: Callable[[Rig], Coroutine[object, object, None]]) -> None:
        async def whole() -> None:
            rig = Rig(tmp_path)
            try:
                await scenario(rig)
            finally:
                rig.store.close()

        run_virtual(whole())

    return run
