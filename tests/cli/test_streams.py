"""Odd streams and odd moments: no traceback, and an exit code that says what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "fleetctl"]


def run(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = " ".join([sys.executable, "-m", "fleetctl", *arguments])
    return subprocess.run(["bash", "-c", f"{words} {redirection}"], capture_output=True, text=True, check=False)  # noqa: S607


def test_a_closed_stdout_is_no_bug():
    ran = run(">&-", "version")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_said():
    ran = run(">/dev/full", "version")
    assert (ran.returncode, "stdout cannot be written: No space left" in ran.stderr) == (1, True)
    assert "Traceback" not in ran.stderr


def test_an_ascii_stdout_takes_every_command():
    ran = subprocess.run(
        [*COMMAND, "plan", "chat"], capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert (ran.returncode, b"Traceback" in ran.stderr) == (0, False)


def test_ctrl_c_while_loading_is_no_traceback():
    code = "import signal, os; from fleetctl import __main__ as entry; import sys; sys.meta_path.insert(0, type('F', (), {'find_spec': staticmethod(lambda *a: os.kill(os.getpid(), 2))})); sys.exit(entry.main())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (128 + signal.SIGINT, "")
