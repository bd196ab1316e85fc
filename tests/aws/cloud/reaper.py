"""Ends what a cloud has left behind when it is gone, however it went: it waits for the end of its standard input."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys

import psutil

from tests.aws.cloud.network import remove_networks

MARK = "FLEETCTL_TESTS_INSTANCE"


def processes_of(directory: str) -> list[psutil.Process]:
    """Return the living processes of a cloud's instances, or of one, by the directory in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if f"{process.environ().get(MARK, '')}/".startswith(f"{directory}/") and process.pid != os.getpid():
                found.append(process)
    return found


def kill_all(directory: str) -> None:
    for process in processes_of(directory):
        with contextlib.suppress(psutil.Error):
            process.kill()


def main() -> None:
    """Wait, then kill and remove."""
    directory, number = sys.argv[1], int(sys.argv[2])
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # a whole group's signal is the cloud's, and its end is ours
    sys.stdin.buffer.read()
    kill_all(directory)
    remove_networks(number)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
