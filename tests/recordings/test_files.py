"""A recording is readable however it ended, and what is none is refused by its line."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings, strategies as st

from fleetctl.codec import encode
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.model.recording import RecordingRow
from fleetctl.recordings.reader import read_header, read_recording
from fleetctl.recordings.recorder import Recorder, recorded
from fleetctl.recordings.writer import RecordingWriter
from fleetctl.testing import samples
from tests.recordings.traces import desired, trace

RECORDER = Recorder(desired(), at=samples.EPOCH, version="0")
HEADER = RecordingRow(header=RECORDER.header)


def request(seq: int) -> RecordingRow:
    return RecordingRow(request=recorded(trace(seq)))


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """What is on the disk of a recorder that is killed while it waits for the next batch."""
    path = tmp_path_factory.mktemp("killed") / "night.jsonl.gz"
    writer = RecordingWriter(path)
    writer.write([HEADER])
    for seq in range(50):
        writer.write([request(seq)])
    raw = path.read_bytes()
    writer.close()
    return raw


def test_whatever_was_written_is_readable_after_a_kill(killed, tmp_path):
    path = tmp_path / "night.jsonl.gz"
    path.write_bytes(killed)
    assert sum(row.request is not None for row in read_recording(path)) == 50


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1))
def test_a_file_cut_anywhere_gives_a_beginning_of_what_was_written(killed, tmp_path_factory, share):
    path = tmp_path_factory.mktemp("cut") / "night.jsonl.gz"
    path.write_bytes(killed[: int(share * len(killed))])
    rows = list(read_recording(path))
    assert rows == [HEADER, *map(request, range(50))][: len(rows)]


def test_files_put_together_are_read_as_one(tmp_path):
    parts = []
    for number, rows in enumerate([[HEADER, request(1)], [request(2)]]):
        with RecordingWriter(tmp_path / str(number)) as writer:
            writer.write(rows)
        parts.append((tmp_path / str(number)).read_bytes())
    (tmp_path / "both").write_bytes(b"".join(parts))
    assert len(list(read_recording(tmp_path / "both"))) == 3


def test_it_is_the_users_alone_and_replaces_nothing_unasked(tmp_path):
    path = tmp_path / "night.jsonl.gz"
    RecordingWriter(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        RecordingWriter(path)
    RecordingWriter(path, may_replace=True).close()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([encode(request(1))], "is no recording"),
        ([b"{]"], ":1: is no row of a recording"),
        ([encode(HEADER), b'{"request": {"lane": 3}}'], ":2: is no row of a recording"),
        ([b'{"header": {"version": 99, "new": 1}}'], "of version 99, not 1"),
    ],
)
def test_what_is_none_is_refused_by_its_line(tmp_path, lines, message):
    path = tmp_path / "night.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join([*lines, b""])))
    with pytest.raises(ConfigError, match=message):
        list(read_recording(path))


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ConfigError, match="is no recording"):
        read_header(tmp_path / "text")
    with pytest.raises(NotFoundError):
        read_header(tmp_path / "none")
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigError, match="is empty"):
        read_header(tmp_path / "empty")
