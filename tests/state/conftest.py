from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4  # noqa: TID251  # a name for what no other test may have

import pytest

from fleetctl.object_stores.s3 import open_s3
from fleetctl.state.opening import open_objects
from fleetctl.state.shared import SharedStore
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing.clocks import ManualClock
from fleetctl.testing.samples import EPOCH
from tests.kube.api_server import ApiServer, running_api_server
from tests.kube.assets import api_server_assets
from tests.state.s3_server import BUCKET, S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.state.opening import OpenStore

NAMESPACE = "state"


class StatePlace(Protocol):
    """Where a test's state lies; any number of stores may be open on it."""

    def open(self, *, journal_entries_max: int = 100_000, deadline_s: float = 30.0) -> OpenStore:
        """Return another store on the same state."""
        ...

    def dump(self) -> object:
        """Return all there is, to be compared."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlace:
    """A SQLite file."""

    path: Path
    clock: ManualClock

    def open(self, *, journal_entries_max: int = 100_000, deadline_s: float = 30.0) -> OpenStore:
        """Return a store on the file."""
        return SqliteStore(
            self.path, clock=self.clock, busy_timeout_s=deadline_s, journal_entries_max=journal_entries_max
        )

    def dump(self) -> object:
        """Return the file as SQL."""
        with closing(sqlite3.connect(self.path)) as db:
            return list(db.iterdump())


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Place:
    """A prefix of a bucket."""

    server: S3Server
    clock: ManualClock
    prefix: str = field(default_factory=lambda: uuid4().hex)

    @property
    def url(self) -> str:
        """Where it lies, as FLEETCTL_STATE names it."""
        return f"s3://{BUCKET}/{self.prefix}"

    def open(self, *, journal_entries_max: int = 100_000, deadline_s: float = 30.0) -> OpenStore:
        """Return a store on the prefix."""
        objects = open_s3(f"{BUCKET}/{self.prefix}", deadline_s)
        return SharedStore(objects, clock=self.clock, deadline_s=deadline_s, journal_entries_max=journal_entries_max)

    def dump(self) -> object:
        """Return every object's bytes."""
        objects = open_s3(f"{BUCKET}/{self.prefix}", 10.0)
        try:
            return {key: objects.get(key) for key in objects.list_keys("")}
        finally:
            objects.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(EPOCH)


@pytest.fixture(scope="session")
def started_s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server.start(tmp_path_factory.mktemp("s3") / "server.log")
    yield server
    server.stop()


@pytest.fixture
def s3_server(started_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A bucket with conditional writes, to which this test's environment leads."""
    for name, value in started_s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return started_s3_server


@pytest.fixture
def s3_place(s3_server: S3Server, clock: ManualClock) -> S3Place:
    return S3Place(server=s3_server, clock=clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlace:
    """A prefix of a namespace."""

    server: ApiServer
    clock: ManualClock
    prefix: str = field(default_factory=lambda: uuid4().hex)

    @property
    def url(self) -> str:
        """Where it lies, as FLEETCTL_STATE names it."""
        return f"kubernetes:///{NAMESPACE}/{self.prefix}"

    def open(self, *, journal_entries_max: int = 100_000, deadline_s: float = 30.0) -> SharedStore:
        """Return a store on the prefix."""
        objects = open_objects(self.url, deadline_s=deadline_s)
        return SharedStore(objects, clock=self.clock, deadline_s=deadline_s, journal_entries_max=journal_entries_max)

    def dump(self) -> object:
        """Return every object's bytes."""
        objects = open_objects(self.url)
        try:
            return {key: objects.get(key) for key in objects.list_keys("")}
        finally:
            objects.close()


@pytest.fixture(scope="session")
def started_api_server() -> Iterator[ApiServer]:
    with running_api_server(api_server_assets()) as running:
        running.core.create_namespace({"metadata": {"name": NAMESPACE}})
        yield running


@pytest.fixture
def api_server(started_api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    """A real API server with a namespace, to which this test's environment leads."""
    monkeypatch.setenv("KUBECONFIG", str(started_api_server.kubeconfig))
    return started_api_server


@pytest.fixture
def cluster_place(api_server: ApiServer, clock: ManualClock) -> ClusterPlace:
    return ClusterPlace(server=api_server, clock=clock)


@pytest.fixture
def file_place(tmp_path: Path, clock: ManualClock) -> FilePlace:
    return FilePlace(path=tmp_path / "state.db", clock=clock)


@pytest.fixture(params=["file_place", "s3_place", pytest.param("cluster_place", marks=pytest.mark.e2e)])
def place(request: pytest.FixtureRequest) -> StatePlace:
    """Where the state lies: every test of the store runs on each kind."""
    found: StatePlace = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def store(place: StatePlace) -> Iterator[OpenStore]:
    with closing(place.open()) as opened:
        yield opened
