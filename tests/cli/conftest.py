from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from fleetctl.cli.main import main
from fleetctl.locks import FileLock
from fleetctl.model.action import EntryKind
from fleetctl.model.journal import JournalEntry
from fleetctl.model.replica import ReplicaState
from fleetctl.model.subject import Subject
from fleetctl.paths import FleetPaths, state_db
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one command line did."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's directories of their own."""
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        directory = tmp_path / variable[4:8].lower()
        directory.mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(directory))
    for variable in ("FLEETCTL_FLEET", "NO_COLOR", "FLEETCTL_VLLM"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def fleetctl(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run one command line in this process."""

    def run(*argv: str) -> Ran:
        code = main(argv)
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    opened = SqliteStore(state_db())
    yield opened
    opened.close()


@pytest.fixture
def dead_fleet(store: SqliteStore) -> Iterator[str]:
    """A fleet on record, two of its replicas too, and no controller; its gateway lives, so no command starts one."""
    store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    for age_s, (name, lane, state) in enumerate(
        (("r1", "short", ReplicaState.READY), ("r11", "long", ReplicaState.BOOTING))
    ):
        at = samples.EPOCH + timedelta(seconds=age_s)
        replica = samples.replica(name, lane=lane, state=state, reason="first start", created_at=at, changed_at=at)
        store.begin_replica(replica, samples.node_request(f"token-{name}", replica_id=name), now=samples.EPOCH)
    store.append(
        (
            JournalEntry(
                seq=0, at=samples.EPOCH, fleet="demo", kind=EntryKind.DECISION, subject=Subject.lane("short"), action="launch",
                reason="1 of 2 wanted", inputs={"pressure": 0.9312, "ready": 1.0},
            ),
            JournalEntry(
                seq=0, at=samples.EPOCH, fleet="demo", kind=EntryKind.LIFECYCLE, subject=Subject.replica("r11"), action="create",
                reason="no stock", ok=False,
            ),
        )
    )  # fmt: skip
    gateway = FileLock(FleetPaths(fleet="demo").gateway_lock, command="gateway")
    assert gateway.try_acquire()
    yield "demo"
    gateway.release()
