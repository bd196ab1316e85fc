"""Logs stay bounded while their writers hold them open, and lose no line of a writer that pauses."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fleetctl.files import read_log
from fleetctl.log_files import LogLimits, keep_within, open_log
from fleetctl.operations.logs import bounded

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = LogLimits(file_bytes_max=1000, copies_max=2, ended_max=3, ended_bytes_max=2500, ended_s_max=100.0)
NOW_S = 1_000_000.0


def write(path: Path, size: int, *, age_s: float = 0.0) -> None:
    path.write_bytes(b"x" * size)
    os.utime(path, (NOW_S - age_s, NOW_S - age_s))


def test_a_log_that_another_process_holds_open_is_cut_and_goes_on(tmp_path):
    path = tmp_path / "r1.log"
    script = "import sys\nfor line in sys.stdin: sys.stderr.write(line); sys.stderr.flush(); print('ok', flush=True)"
    with (
        open_log(path) as log,
        subprocess.Popen(  # this interpreter
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as writer,
    ):
        assert writer.stdin is not None
        assert writer.stdout is not None
        for number in range(100):
            writer.stdin.write(f"line {number:03d} {'.' * 40}\n")
            writer.stdin.flush()
            writer.stdout.readline()
            keep_within(tmp_path, LIMITS, living=("r1",), now_s=NOW_S)
        writer.stdin.close()
    kept = [path.with_name("r1.log.2"), path.with_name("r1.log.1"), path]
    lines = [line for file in kept for line in file.read_text().splitlines()]
    numbers = [int(line.split()[1]) for line in lines]
    assert numbers == list(range(numbers[0], 100))
    assert len(numbers) > 40
    for file in kept:
        assert file.stat().st_size <= LIMITS.file_bytes_max + 100
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not path.with_name("r1.log.3").exists()


def test_only_the_newest_of_a_flood_is_kept(tmp_path):
    (tmp_path / "r1.log").write_bytes(b"old" * 10_000 + b"newest")
    keep_within(tmp_path, LIMITS, living=("r1",), now_s=NOW_S)
    kept = (tmp_path / "r1.log.1").read_bytes()
    assert len(kept) == LIMITS.file_bytes_max
    assert kept.endswith(b"newest")
    assert (tmp_path / "r1.log").read_bytes() == b""


@pytest.mark.parametrize(
    ("sizes", "ages", "left"),
    [
        ([10] * 5, [0, 1, 2, 3, 4], {"r0.log", "r1.log", "r2.log"}),  # too many
        ([10, 10], [0, 200], {"r0.log"}),  # too old
        ([900, 900, 900], [0, 1, 2], {"r0.log", "r1.log"}),  # too much
    ],
)
def test_logs_of_ended_replicas_go_by_number_age_and_size(tmp_path, sizes, ages, left):
    for number, (size, age_s) in enumerate(zip(sizes, ages, strict=True)):
        write(tmp_path / f"r{number}.log", size, age_s=age_s)
    for lasting in ("controller.log", "gateway.log", "r9.log", "r9.log.1"):
        write(tmp_path / lasting, 10, age_s=10_000)
    write(tmp_path / "notes.txt", 10, age_s=10_000)
    keep_within(tmp_path, LIMITS, living=("r9",), now_s=NOW_S)
    stay = {"controller.log", "gateway.log", "r9.log", "r9.log.1", "notes.txt"}
    assert {path.name for path in tmp_path.iterdir()} == left | stay


def test_a_link_is_neither_written_through_nor_cut(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"x" * 5000)
    (tmp_path / "r1.log").symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic links"):
        open_log(tmp_path / "r1.log")
    keep_within(tmp_path, LIMITS, living=("r1",), now_s=NOW_S)
    assert elsewhere.stat().st_size == 5000


def test_a_log_that_was_open_to_others_is_closed_to_them(tmp_path):
    (tmp_path / "gateway.log").touch(mode=0o644)
    open_log(tmp_path / "gateway.log").close()
    assert stat.S_IMODE((tmp_path / "gateway.log").stat().st_mode) == 0o600


def test_a_log_that_was_just_cut_goes_on_into_its_copy(tmp_path):
    path = tmp_path / "r1.log"
    path.with_name("r1.log.1").write_bytes(b"x" * 500 + b"\nValueError: no room\n")
    path.write_bytes(b"")
    assert read_log(path, bytes_max=100) == ("x" * 79 + "\nValueError: no room\n", 0)
    path.write_bytes(b"again\n")
    text, end = read_log(path, bytes_max=100)
    assert (text[-26:], end) == ("ValueError: no room\nagain\n", 6)
    assert read_log(path, bytes_max=100, after=2) == ("ain\n", 6)


def test_the_middle_of_a_very_long_line_is_left_out() -> None:
    shown = bounded("a" * 3000 + "b" * 3000 + "\n")
    assert len(shown) < 4100
    assert "[... 2,001 characters left out ...]" in shown
    assert shown.endswith("b\n")
