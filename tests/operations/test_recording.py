"""`record` writes what a fleet does until it is told to stop."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from fleetctl.cli.main import main
from fleetctl.errors import ConfigError, UnavailableError
from fleetctl.model.action import EntryKind
from fleetctl.model.catalogue import Market
from fleetctl.model.interruption import InterruptionRecord
from fleetctl.model.journal import JournalEntry
from fleetctl.model.node import NoticeKind
from fleetctl.model.subject import Subject
from fleetctl.operations.recording import RecordingRequest, record
from fleetctl.ports.records import Collection, StoredRecord
from fleetctl.recordings.reader import read_recording
from fleetctl.testing import samples
from tests.recordings.traces import of_kind, trace
from tests.sites import FakeSite


@pytest.fixture
def fakes():
    found = FakeSite()
    found.store.put_fleet(samples.profile(), samples.plan(), now=samples.EPOCH)
    found.store.put_replica(samples.replica("r1"))
    found.host.gateways.add("demo")
    found.host.gateway_since = samples.EPOCH
    found.host.requests = (trace(1), trace(2))
    found.start_controller("demo")
    return found


def test_arrivals_decisions_replicas_and_interruptions_are_recorded_as_they_come(fakes, tmp_path):
    path = tmp_path / "night.jsonl.gz"

    def meanwhile(seen):
        if seen.at == samples.EPOCH + timedelta(seconds=1):
            fakes.host.requests += (
                trace(3, at=fakes.clock.now()),
                trace(7, at=fakes.clock.now(), refusal="queue-full"),
            )
            fakes.store.append((_entry("drain"),))
            taken = _interruption(at=fakes.clock.now())
            fakes.store.put_record(StoredRecord.of(Collection.INTERRUPTIONS, "one", taken, at=taken.at, fleet="demo"))
            fakes.store.put_replica(replace(samples.replica("r1"), reason="another"))

    request = RecordingRequest(path=path, bytes_max=1 << 20, for_s=3.0)
    seen = record(fakes.site, "demo", request, on_progress=meanwhile)

    rows = list(read_recording(path))
    assert [each.refusal for each in of_kind("request", rows)] == ["", "queue-full"]
    assert [each.requests for each in of_kind("gap", rows)] == [3]
    assert [each.action for each in of_kind("decision", rows)] == ["drain"]
    assert [each.replica_id for each in of_kind("interruption", rows)] == ["r1"]
    assert [each.reason for each in of_kind("replica", rows)][-1] == "another"
    assert of_kind("end", rows[-1:])[0].at == samples.EPOCH + timedelta(seconds=3)
    assert (seen.requests, seen.requests_missed, seen.ended_by) == (2, 3, "its time is over (--for)")


def test_it_stops_at_its_size_and_goes_on_while_the_gateway_is_silent(fakes, tmp_path):
    seen = record(fakes.site, "demo", RecordingRequest(path=tmp_path / "small", bytes_max=1))
    assert "--max-size" in seen.ended_by

    def meanwhile(seen):
        del seen
        fakes.host.gateways.clear()

    seen = record(
        fakes.site,
        "demo",
        RecordingRequest(path=tmp_path / "silent", bytes_max=1 << 20, for_s=2.0),
        on_progress=meanwhile,
    )
    assert seen.is_gateway_silent


def test_ctrl_c_is_its_ordinary_end(fakes, tmp_path):
    def interrupt(seen):
        del seen
        raise KeyboardInterrupt

    path = tmp_path / "night.jsonl.gz"
    seen = record(fakes.site, "demo", RecordingRequest(path=path, bytes_max=1 << 20), on_progress=interrupt)
    assert seen.ended_by == "Ctrl-C"
    assert list(read_recording(path))[-1].end is not None


def test_a_file_that_is_there_is_kept_and_a_fleet_without_a_gateway_leaves_none(fakes, tmp_path):
    path = tmp_path / "night.jsonl.gz"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="exists"):
        record(fakes.site, "demo", RecordingRequest(path=path, bytes_max=1 << 20, for_s=1.0))
    assert path.read_text() == "mine"
    fakes.host.gateways.clear()
    with pytest.raises(UnavailableError):
        record(fakes.site, "demo", RecordingRequest(path=tmp_path / "none", bytes_max=1 << 20))
    assert not (tmp_path / "none").exists()


def test_the_command_says_what_it_has(fakes, tmp_path, capsys):
    path = tmp_path / "night.jsonl.gz"
    assert main(["record", "demo", "-o", str(path), "--for", "2s"], site=fakes.site) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "demo: 0 requests, 2s" in captured.err
    assert "its time is over (--for)" in captured.err


def _entry(action: str) -> JournalEntry:
    return JournalEntry(
        seq=0, at=samples.EPOCH, fleet="demo", kind=EntryKind.DECISION, subject=Subject.lane("short"), action=action, reason="x"
    )  # fmt: skip


def _interruption(at: datetime) -> InterruptionRecord:
    return InterruptionRecord(
        fleet="demo", replica_id="r1", lane="short", node_id="n", offering="o", zone="a", instance_type="t", market=Market.SPOT,
        notice=NoticeKind.INTERRUPTION, warning_s=120.0, at=at,
    )  # fmt: skip
