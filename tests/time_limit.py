"""What becomes of whole fleets and real engines on a machine too slow for all of them: so many are begun as there is time for.

The gate sets the variables. Those that are marked `essential` are begun first; the others from a file on that each commit chooses
anew, so that in time each has its turn. Every test that was not begun is a skip, and the gate counts them at its end.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable

END = "FLEETCTL_TESTS_END"  # seconds since 1970, after which none is begun; not set: there is no end
TURN = "FLEETCTL_TESTS_TURN"  # a number that differs from run to run
LEFT = "FLEETCTL_TESTS_LEFT"  # a file that takes the names of those that are not begun


def put_in_order(items: list[pytest.Item]) -> None:
    """Order a run's tests: files that take minutes first, as one of them begun at the end would have every other worker wait for it.

    Where there may be no time for all of them it is the essential ones first, and then the others from whose turn it is on.
    """
    turn = os.environ.get(TURN)
    if turn is None:
        items.sort(key=lambda item: item.get_closest_marker("minutes") is None)
        return
    essential = {item.path for item in items if item.get_closest_marker("essential") is not None}
    order = {path: number for number, path in enumerate(in_turn((item.path for item in items), essential, int(turn)))}
    items.sort(key=lambda item: order[item.path])


def in_turn(paths: Iterable[Path], essential: set[Path], turn: int) -> list[Path]:
    """Return these files, each once: the essential ones, then the others from the one whose turn it is on, round to the one before it."""
    each = list(dict.fromkeys(paths))
    others = [path for path in each if path not in essential]
    first = turn % len(others) if others else 0
    return [path for path in each if path in essential] + others[first:] + others[:first]


def skip_if_over(item: pytest.Item) -> None:
    """Skip a test that would be begun too late."""
    end = os.environ.get(END)
    if not end or SYSTEM_CLOCK.now().timestamp() < float(end):
        return
    left = os.environ.get(LEFT)
    if left:
        with Path(left).open("a", encoding="utf-8") as file:
            file.write(f"{item.nodeid}\n")
    pytest.skip("not begun: the time for whole fleets and real engines is over")
