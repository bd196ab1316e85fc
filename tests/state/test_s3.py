"""A state in S3 as machines share it: processes that are killed, answers that are lost, a service that throttles."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING, NoReturn

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ConfigError, CredentialsError, StateDeniedError, StateError
from fleetctl.object_stores.retrying import UnreachedError, until_answered
from fleetctl.object_stores.s3 import open_s3
from fleetctl.ports.objects import OutdatedVersionError, UnconfirmedWriteError
from fleetctl.state.opening import open_objects, open_store
from fleetctl.state.shared_identity import check_conditions
from tests.state.s3_proxy import Fault, S3Proxy
from tests.state.s3_server import BUCKET, environment_to

if TYPE_CHECKING:
    from tests.state.conftest import S3Place
    from tests.state.s3_server import S3Server

COMMITS = 15  # a process, of four that live
WRITER = """
import sys
from fleetctl.model.action import EntryKind
from fleetctl.model.journal import JournalEntry
from fleetctl.model.subject import Subject
from fleetctl.state.opening import open_store
from fleetctl.testing.samples import EPOCH

name, commits = sys.argv[2], int(sys.argv[3])
store = open_store(sys.argv[1])
print("open", flush=True)
for number in range(commits):
    entry = JournalEntry(
        seq=0, at=EPOCH, fleet="demo", kind=EntryKind.DECISION, subject=Subject.lane("short"), action="x",
        reason=f"{name}/{number}",
    )
    store.append((entry,))
    print(f"{name}/{number}", flush=True)
"""


def spawn(url: str, name: str, commits: int, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url, name, str(commits)],
        stdout=subprocess.PIPE, text=True, env=os.environ | environment,
    )  # fmt: skip


def test_six_processes_of_which_two_are_killed_and_whose_answers_are_lost_write_each_line_once(
    s3_place: S3Place,
) -> None:
    dice, turn = Random(7), threading.Lock()

    def fault(method: str, path: str) -> Fault:
        if method != "PUT" or not path.endswith("/head"):
            return Fault.NONE
        with turn:
            return dice.choices((Fault.NONE, Fault.CUT_AFTER, Fault.CUT_BEFORE, Fault.SLOW_DOWN), (12, 3, 1, 1))[0]

    with closing(s3_place.open()) as store, S3Proxy(s3_place.server.port, fault).running() as proxy:
        assert store.owner
        environment = environment_to(proxy.port)
        lives = [spawn(s3_place.url, f"p{n}", COMMITS, environment) for n in range(4)]
        killed = [spawn(s3_place.url, f"k{n}", 10_000, environment) for n in range(2)]
        acknowledged: list[str] = []
        for victim in killed:
            assert victim.stdout is not None
            acknowledged += [victim.stdout.readline().strip() for _ in range(dice.randint(2, 6))]
            os.kill(victim.pid, signal.SIGKILL)
            acknowledged += victim.stdout.read().split()  # what was read ahead too, unlike communicate()
            victim.wait(timeout=20)
            victim.stdout.close()
        for process in lives:
            acknowledged += process.communicate(timeout=50)[0].split()
            assert process.returncode == 0
        lines = Counter(acknowledged)
        del lines["open"]
        found = [entry.reason for entry in store.journal("demo", limit=100_000)]
        assert len(found) == len(set(found)), "no line is there twice"
        assert set(lines) <= set(found)
        assert len(set(found) - set(lines)) <= len(killed), "only a line of a killed one may lack its answer"
        assert len(found) >= 4 * COMMITS
        assert Fault.CUT_AFTER in proxy.faults


def test_a_throttled_or_cut_reading_is_made_again(s3_place: S3Place, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [Fault.SLOW_DOWN, Fault.CUT_BEFORE, Fault.CUT_AFTER]
    with S3Proxy(s3_place.server.port, lambda *_: faults.pop() if faults else Fault.NONE).running() as proxy:
        for name, value in environment_to(proxy.port).items():
            monkeypatch.setenv(name, value)
        with closing(open_store(s3_place.url)) as store:
            assert store.fleets() == ()
    assert faults == []
    assert len(proxy.faults) > 3


def test_an_s3_that_does_not_answer_is_an_error_within_the_deadline(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{silent.getsockname()[1]}")
        objects = open_s3(f"{BUCKET}/x", 0.5)
        with pytest.raises(StateError, match=r"has not answered for 0\.5 s"):
            objects.get("head")
        with pytest.raises(UnconfirmedWriteError):
            objects.put("head", b"", replaces=None)
        objects.close()


def test_s3_keeps_to_conditions_and_says_what_lacks(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_s3(f"{BUCKET}/conditions", 10.0)) as objects:
        check_conditions(objects)
        assert objects.list_keys("") == ()
        first = objects.put("a", b"1", replaces=None)
        known = objects.get("a")
        assert known is not None
        assert (known.data, known.version) == (b"1", first)
        assert objects.get("a", known=known) is known
        with pytest.raises(OutdatedVersionError):
            objects.put("absent", b"1", replaces=first)
        assert objects.get("absent") is None
        objects.delete("a")
        objects.delete("a")
    with (
        closing(open_s3("no-such-bucket/x", 5.0)) as objects,
        pytest.raises(StateError, match="there is no such bucket"),
    ):
        objects.get("head")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with closing(open_s3(f"{BUCKET}/x", 5.0)) as objects, pytest.raises(CredentialsError):
        objects.get("head")


def test_an_s3_that_takes_no_connection_is_silent_and_no_fault_of_the_settings(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        with closing(open_s3(f"{BUCKET}/x", 1.0)) as objects:
            with pytest.raises(StateError, match="is not reached"):
                objects.get("head")
            with pytest.raises(UnconfirmedWriteError):
                objects.put("head", b"1", replaces=None)


def test_an_address_that_was_never_reached_keeps_nobody_waiting_for_an_outages_deadline(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        with closing(open_s3(f"{BUCKET}/x", 300.0)) as objects:
            begun_s = SYSTEM_CLOCK.monotonic_s()
            with pytest.raises(StateError, match="is not reached") as caught:
                objects.get("head")
            assert SYSTEM_CLOCK.monotonic_s() - begun_s < 150
            assert "AWS_ENDPOINT_URL" in caught.value.hint


def test_one_that_was_reached_before_is_waited_for() -> None:
    def call() -> None:
        raise OSError("refused")

    def translate(exc: Exception) -> NoReturn:
        raise UnreachedError(str(exc)) from exc

    with pytest.raises(StateError, match=r"there has not answered for 0\.3 s: refused"):
        until_answered(call, translate=translate, deadline_s=0.3, location="there", hint="")


@pytest.mark.parametrize(
    ("fault", "advice"), [(Fault.DENIED, "s3:GetObject"), (Fault.EXPIRED, "log in again"), (Fault.SKEWED, "clock")]
)
def test_a_state_that_is_denied_is_a_fault_of_the_state_too(s3_server: S3Server, fault: Fault, advice: str) -> None:
    with (
        S3Proxy(s3_server.port, lambda *_: fault).running() as proxy,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{proxy.port}")
        with closing(open_s3(f"{BUCKET}/x", 5.0)) as objects, pytest.raises(StateDeniedError) as denied:
            objects.get("head")
    assert isinstance(denied.value, CredentialsError)
    assert denied.value.exit_code == CredentialsError.exit_code
    assert advice in (denied.value.hint or "")


@pytest.mark.parametrize("url", ["bucket", "s3://", "s3://UPPER/x", "/var/lib/state"])
def test_what_is_no_place_for_a_state_is_said(url: str) -> None:
    with pytest.raises(ConfigError, match=r"s3://BUCKET/PREFIX|is no "):
        open_objects(url)


def test_a_state_is_read_by_the_next_process(s3_place: S3Place) -> None:
    with closing(s3_place.open()) as store:
        assert store.journal("demo") == ()
        spawn(s3_place.url, "one", 1, {}).communicate(timeout=50)
        assert [entry.reason for entry in store.journal("demo")] == ["one/0"]
