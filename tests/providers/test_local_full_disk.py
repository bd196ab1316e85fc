"""What the local provider notes about its nodes where the disk has no room."""

from __future__ import annotations

import resource
import signal
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from fleetctl.errors import CapacityError
from fleetctl.model.catalogue import Market
from fleetctl_local.registry import Record, Registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT = datetime(2026, 1, 1, tzinfo=UTC)
RECORD = Record(
    token="t1",  # noqa: S106  # an order's name
    owner="o", fleet="demo", replica_id="r1", market=Market.SPOT, host="127.0.0.1", port=1, created_at=AT
)  # fmt: skip


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file of this process grow; that fails as a full disk does."""
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_what_happens_on_a_full_disk_is_known_and_written_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    registry, ended = Registry(), replace(RECORD, ended_at=AT)
    with registry.locked():
        registry.put(RECORD)
        with full_disk():
            registry.note(ended)
        assert registry.get("t1") == registry.all()[0] == ended
        assert Registry().get("t1") == RECORD
    with registry.locked():
        assert Registry().get("t1") == ended


def test_no_node_is_begun_that_cannot_be_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    registry = Registry()
    with registry.locked(), full_disk(), pytest.raises(CapacityError, match="disk full"):
        registry.put(RECORD)
    assert registry.all() == ()
