from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.testing import samples
from tests.sites import FakeSite

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.operations.site import Site
    from fleetctl.state.sqlite import SqliteStore
    from fleetctl.testing.clocks import ManualClock
    from fleetctl.testing.host import FakeHost


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's directories of their own."""
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        directory = tmp_path / variable[4:8].lower()
        directory.mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(directory))
    monkeypatch.delenv("FLEETCTL_FLEET", raising=False)
    return tmp_path


@pytest.fixture
def fakes() -> FakeSite:
    return FakeSite()


@pytest.fixture
def site(fakes: FakeSite) -> Site:
    return fakes.site


@pytest.fixture
def store(fakes: FakeSite) -> SqliteStore:
    return fakes.store


@pytest.fixture
def host(fakes: FakeSite) -> FakeHost:
    return fakes.host


@pytest.fixture
def clock(fakes: FakeSite) -> ManualClock:
    return fakes.clock


@pytest.fixture
def fleet(store: SqliteStore) -> str:
    """A fleet on record and nothing alive."""
    store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    return "demo"


@pytest.fixture
def controlled(fakes: FakeSite, fleet: str) -> str:
    """A fleet whose controller answers."""
    fakes.start_controller(fleet)
    return fleet
