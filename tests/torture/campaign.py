"""Runs seeds, replays one exactly, and finds the smallest schedule under which it still fails."""

from __future__ import annotations

import gc
import logging
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.paths import FleetPaths
from tests.torture.faults import schedule, watched_schedule
from tests.torture.run import HORIZON_S, run_once
from tests.torture.setting import setting_of
from tests.torture.shrink import shrunk
from tests.torture.wanted import FLEET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.torture.faults import Fault
    from tests.torture.run import RunReport

_MEMORY_DISK = Path("/dev/shm")  # noqa: S108  # a directory of our own is made in it


@contextmanager
def own_state() -> Iterator[None]:
    """Have the runs keep their files in a directory of their own, in memory where there is such a disk."""
    before = os.environ.get("XDG_STATE_HOME")
    with tempfile.TemporaryDirectory(dir=_MEMORY_DISK if _MEMORY_DISK.is_dir() else None) as directory:
        os.environ["XDG_STATE_HOME"] = directory
        logging.disable(logging.CRITICAL)
        # A run makes garbage by the hundred thousand, and no cycles worth looking for so often.
        thresholds = gc.get_threshold()
        gc.set_threshold(100_000, 50, 50)
        try:
            FleetPaths(fleet=FLEET).make()
            yield
        finally:
            gc.set_threshold(*thresholds)
            logging.disable(logging.NOTSET)
            if before is None:
                del os.environ["XDG_STATE_HOME"]
            else:
                os.environ["XDG_STATE_HOME"] = before


def faults_of(seed: int, only: tuple[int, ...] | None = None) -> tuple[Fault, ...]:
    """Return a seed's schedule, or those of its faults that are named by their place in it."""
    setting = setting_of(seed)
    is_watched = setting.is_watched
    faults = (
        watched_schedule(seed, horizon_s=HORIZON_S)
        if is_watched
        else schedule(seed, horizon_s=HORIZON_S, is_wide=setting.is_wide)
    )
    return faults if only is None else tuple(faults[index] for index in only)


def run_seed(seed: int, only: tuple[int, ...] | None = None) -> RunReport:
    """Return what a seed shows; within `own_state`."""
    return run_once(seed, faults_of(seed, only))


def smallest(report: RunReport) -> tuple[int, ...]:
    """Return the places of the fewest faults under which the seed of a failed run violates the same rule."""
    rule = report.violations[0].rule

    def fails(only: tuple[int, ...]) -> bool:
        return rule in {found.rule for found in run_seed(report.seed, only).violations}

    return shrunk(fails, range(len(faults_of(report.seed))))


def first_failure(seeds: range) -> RunReport | None:
    """Return the report of the first seed that violates a rule."""
    return next((report for seed in seeds if (report := run_seed(seed)).violations), None)
