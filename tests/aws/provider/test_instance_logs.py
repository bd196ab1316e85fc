"""The script that reads an engine's log on its instance: run by a real shell, on a journal of the test's own."""

from __future__ import annotations

import base64
import gzip
import os
import random
import subprocess
from typing import TYPE_CHECKING

import pytest

from fleetctl_aws.instance_logs import log_script

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal whose one unit is slot 2's."""
    path, program = tmp_path / "journal", tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$2" = fleetctl-engine@2.service ] && exec cat {path}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return path


def _read(*, after: int | None, bytes_max: int) -> tuple[int, bytes]:
    script = log_script(2, after=after, bytes_max=bytes_max)
    ran = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True, timeout=30)
    assert len(ran.stdout) <= 24_000, "Systems Manager gives back no more"
    start, piece = ran.stdout.split(b"\n")[:2]
    return int(start), gzip.decompress(base64.b64decode(piece))


def test_the_end_of_a_log_and_what_is_behind_a_byte(journal: Path) -> None:
    text = b"".join(b"line %d\n" % number for number in range(1000))
    journal.write_bytes(text)
    assert _read(after=None, bytes_max=100) == (len(text) - 100, text[-100:])
    assert _read(after=None, bytes_max=10**6) == (0, text)
    assert _read(after=500, bytes_max=50) == (500, text[500:550])
    assert _read(after=len(text), bytes_max=50) == (len(text), b"")


def test_a_log_that_was_rotated_is_read_from_its_beginning(journal: Path) -> None:
    journal.write_bytes(b"new\n")
    assert _read(after=5000, bytes_max=50) == (0, b"new\n")


def test_what_does_not_fit_is_cut_to_what_does_at_the_right_end(journal: Path) -> None:
    noise = random.Random(1).randbytes(200_000)
    journal.write_bytes(noise)
    start, piece = _read(after=None, bytes_max=200_000)
    assert noise.endswith(piece)
    assert (start, len(piece) > 8_000) == (len(noise) - len(piece), True)
    start, piece = _read(after=1000, bytes_max=200_000)
    assert (start, noise[1000 : 1000 + len(piece)]) == (1000, piece)


def test_a_log_of_many_megabytes_gives_much_of_its_end(journal: Path) -> None:
    journal.write_bytes(b"INFO: 10.0.0.1 - POST /v1/chat/completions HTTP/1.1 200 OK\n" * 200_000)
    start, piece = _read(after=None, bytes_max=1024 * 1024)
    assert (len(piece), start) == (1024 * 1024, 59 * 200_000 - 1024 * 1024)
