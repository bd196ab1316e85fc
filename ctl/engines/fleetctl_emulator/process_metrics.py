"""The python_* and process_* series that prometheus_client puts at the beginning of a page, read from /proc."""

from __future__ import annotations

import gc
import os
import platform
import resource
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl_emulator.page import Page

_PROC = Path("/proc/self")
_GENERATIONS = ("0", "1", "2")


def add_process_metrics(page: Page, *, started_s: float) -> None:
    """Add the series. Where there is no /proc the process_* ones are missing, as they are from a real engine there."""
    _add_python(page)
    if (_PROC / "stat").is_file():
        _add_process(page, started_s)


def _add_python(page: Page) -> None:
    for name, key, text in (
        ("python_gc_objects_collected_total", "collected", "Objects collected during gc"),
        ("python_gc_objects_uncollectable_total", "uncollectable", "Uncollectable objects found during GC"),
        ("python_gc_collections_total", "collections", "Number of times this generation was collected"),
    ):
        family = page.family(name, "counter", text, is_dated=False)
        for generation in _GENERATIONS:
            family.value({"generation": generation}, read=partial(_collected, int(generation), key))
    major, minor, patch = platform.python_version_tuple()
    page.family("python_info", "gauge", "Python platform information").value(
        {
            "implementation": platform.python_implementation(),
            "major": major,
            "minor": minor,
            "patchlevel": patch,
            "version": platform.python_version(),
        },
        read=lambda: 1.0,
    )


def _add_process(page: Page, started_s: float) -> None:
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    readers = (
        ("virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", lambda: _memory_pages(0) * page_bytes),
        ("resident_memory_bytes", "gauge", "Resident memory size in bytes.", lambda: _memory_pages(1) * page_bytes),
        (
            "start_time_seconds",
            "gauge",
            "Start time of the process since unix epoch in seconds.",
            lambda: started_s,
        ),
        ("cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.", _cpu_s),
        ("open_fds", "gauge", "Number of open file descriptors.", _open_fds),
        (
            "max_fds",
            "gauge",
            "Maximum number of open file descriptors.",
            lambda: float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        ),
    )
    for name, kind, text, read in readers:
        page.family(f"process_{name}", kind, text, is_dated=False).value({}, read=read)


def _collected(generation: int, key: str) -> float:
    return float(gc.get_stats()[generation][key])


def _memory_pages(field: int) -> float:
    return float((_PROC / "statm").read_text(encoding="ascii").split()[field])


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _open_fds() -> float:
    return float(sum(1 for _ in (_PROC / "fd").iterdir()))
