"""`top` on a real terminal, ended from outside: what the terminal was like before, it is again."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

WAIT_S = 60.0
LEAVES_SCREEN, SHOWS_CURSOR = "\x1b[?1049l", "\x1b[?25h"


class Terminal:
    """A terminal of 80 columns with `top` on it."""

    def __init__(self, home: Home) -> None:
        self.primary, secondary = pty.openpty()
        fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(secondary)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fleetctl", "top"], env=home.environment | {"TERM": "xterm-256color"},
            stdin=secondary, stdout=secondary, stderr=secondary, start_new_session=True,
        )  # fmt: skip
        self.secondary = secondary
        self.text = ""

    def read_until(self, word: str) -> None:
        """Read what is written until it holds a word, or nobody writes any more."""
        until_s = SYSTEM_CLOCK.monotonic_s() + WAIT_S
        while word not in self.text:
            assert SYSTEM_CLOCK.monotonic_s() < until_s, f"no {word!r} in {self.text[-2000:]!r}"
            if select.select([self.primary], [], [], 0.2)[0]:
                self.text += os.read(self.primary, 65536).decode(errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.primary)
        os.close(self.secondary)


@contextmanager
def top_on_terminal(home: Home) -> Iterator[Terminal]:
    terminal = Terminal(home)
    try:
        yield terminal
    finally:
        terminal.close()


def test_a_terminal_is_given_back_whatever_ends_top(home: Home) -> None:
    assert home.run("up", "quickstart", "--port", str(free_port()), "--yes").code == 0
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        with top_on_terminal(home) as terminal:
            terminal.read_until("Lanes")
            terminal.process.send_signal(number)
            terminal.read_until(LEAVES_SCREEN)
            terminal.read_until(SHOWS_CURSOR)
            assert terminal.process.wait(WAIT_S) == 128 + number
            assert termios.tcgetattr(terminal.secondary) == terminal.before
    assert home.run("down", "--yes").code == 0
