from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.samples import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(EPOCH)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "state.db", clock=clock)
    yield opened
    opened.close()
