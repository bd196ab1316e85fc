"""Kill -9 at every write of a run, before it and after it, in a process of its own: the next run ends it, once."""

from __future__ import annotations

import os
import signal
import traceback
from collections import Counter
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from fleetctl.model.runbook_run import RunStatus, StepStatus
from fleetctl.runbooks.context import Company
from fleetctl.runbooks.known_runbooks import FoundRunbook
from fleetctl.runbooks.run_log import runs_of
from fleetctl.runbooks.runner import RunRequest, run_runbook
from fleetctl.state.sqlite import SqliteStore
from fleetctl.testing import samples
from tests.runbooks.conftest import runbook
from tests.sites import FakeSite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fleetctl.model.runbook_run import RunbookRun

WRITES = {"put_record", "set_overrides", "append"}
BODY = """
notify:
  - webhook: env:RECEIVER
    on: [success]
steps:
  - name: warm
    scale: {lane: short, replicas: 3}
  - name: still
    freeze: {reason: "a launch", for: 1h}
  - name: tell
    notify: {message: warmed}
  - name: look
    check: {that: "steps.warm.result.after == '3'"}
  - name: on-again
    thaw:
"""
FAILING = """
steps:
  - name: warm
    scale: {lane: short, replicas: 3}
  - name: broken
    check: {that: "false"}
on_failure:
  - name: back
    scale: {lane: short, replicas: auto}
"""


class MortalStore:
    """A store whose process is killed right before or after its nth write."""

    def __init__(self, store: SqliteStore, *, killed_at: int) -> None:
        self._store = store
        self._left = killed_at

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._counted(found) if name in WRITES else found

    def _counted(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def written(*args: Any, **kwargs: Any) -> Any:
            self._count()
            result = write(*args, **kwargs)
            self._count()
            return result

        return written

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Receiver(BaseHTTPRequestHandler):
    """Counts what it is told."""

    received: ClassVar[Counter[str]] = Counter()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        event = next(word for word in ("message", "succeeded", "failed") if f'"{word}"' in body)
        Receiver.received[event] += 1
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    Receiver.received.clear()
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def run_in_a_process(path: Path, body: str, url: str, *, killed_at: int) -> int:
    """Run a runbook in a child process, and return how it ended: 0, an exit code, or -9."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 99
    try:
        code = _run(path, body, url, killed_at=killed_at)
    except BaseException:  # noqa: BLE001  # the child ends here, whatever it met
        traceback.print_exc()
    finally:
        os._exit(code)


def _run(path: Path, body: str, url: str, *, killed_at: int) -> int:
    fakes = FakeSite()
    fakes.store = SqliteStore(path / "state.db", clock=fakes.clock)
    fakes.site = replace(fakes.site, store=fakes.store)
    if fakes.store.fleet("demo") is None:
        fakes.store.put_fleet(samples.profile(), samples.plan(), now=fakes.clock.now())
    fakes.host.controllers["demo"] = lambda: fakes.ready_status("demo")
    store: Any = MortalStore(fakes.store, killed_at=killed_at)
    request = RunRequest(found=FoundRunbook(runbook=runbook(body), file=""), fleet="demo")
    company = Company(environ={"RECEIVER": url})
    return run_runbook(replace(fakes.site, store=store), request, company).run.exit_code


def the_run(path: Path) -> tuple[RunbookRun, SqliteStore]:
    store = SqliteStore(path / "state.db")
    (run,) = runs_of(store, "demo")
    return run, store


@pytest.mark.slow
@pytest.mark.timeout(300)  # a hundred processes, each of which waits for the disk
def test_a_run_killed_at_any_write_is_ended_by_the_next_and_nobody_is_told_twice(tmp_path: Path, receiver: str) -> None:
    for at in range(1, 200):
        home = tmp_path / str(at)
        home.mkdir()
        Receiver.received.clear()
        code = run_in_a_process(home, BODY, receiver, killed_at=at)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        assert run_in_a_process(home, BODY, receiver, killed_at=0) == 0, at
        run, store = the_run(home)
        assert run.status is RunStatus.SUCCEEDED
        uncertain = [each.name for each in run.steps if each.status is StepStatus.UNCERTAIN]
        assert uncertain in ([], ["tell"])
        assert Receiver.received["message"] == 1 or (uncertain and Receiver.received["message"] <= 1)
        assert Receiver.received["succeeded"] <= 1
        desired = store.fleet("demo")
        assert desired is not None
        assert desired.overrides.replicas == {"short": 3}
        assert desired.overrides.freezes == {}
        store.close()
    assert at > 30  # there were that many places to be killed at


@pytest.mark.slow
@pytest.mark.timeout(300)  # a hundred processes, each of which waits for the disk
def test_a_run_killed_at_any_write_of_its_rollback_ends_rolled_back(tmp_path: Path) -> None:
    for at in range(1, 200):
        home = tmp_path / str(at)
        home.mkdir()
        code = run_in_a_process(home, FAILING, "", killed_at=at)
        if code == 5:
            break
        assert code == -signal.SIGKILL
        # A run whose end was on record is not gone on with: the next is a new one, which fails in the same way.
        assert run_in_a_process(home, FAILING, "", killed_at=0) == 5
        store = SqliteStore(home / "state.db")
        runs = runs_of(store, "demo")
        assert all(run.status is RunStatus.FAILED for run in runs)
        desired = store.fleet("demo")
        assert desired is not None
        assert desired.overrides.replicas == {}
        store.close()
    assert at > 15
