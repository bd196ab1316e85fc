"""Prints a view once, or again and again; notices that nobody reads it any more."""

from __future__ import annotations

import select
import sys
from typing import TYPE_CHECKING

from fleetctl.cli.output import Format, emit, face_of, json_line, text_of, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.cli.output import View
    from fleetctl.clock import BlockingClock

_EVERY_S = 1.0
_HOME_AND_CLEAR = "\x1b[H\x1b[J"


def show(clock: BlockingClock, fetch: Callable[[], View], output: Format, *, watch: bool) -> None:
    """Print what `fetch` returns; with `watch`, on each change until Ctrl-C: redrawn on a terminal, else appended."""
    if not watch:
        emit(fetch(), output)
        return
    is_tty = sys.stdout.isatty()
    last = ""
    while True:
        view = fetch()
        # A stream of JSON is read line by line.
        text = json_line(view) if output is Format.JSON else text_of(view, output, face=face_of(sys.stdout))
        if text != last:
            separator = (
                _HOME_AND_CLEAR
                if is_tty and output is not Format.JSON
                else ("---\n" if last and output is Format.YAML else "")
            )
            write(separator + text)
        last = text
        clock.sleep_blocking(_EVERY_S)


def has_no_reader() -> bool:
    """Whether whoever read our output has closed it, as `head` does: what is silent would never let us notice."""
    if not hasattr(select, "poll"):
        return False
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))
