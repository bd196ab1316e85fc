"""The kernel's count of OOM kills, wherever it keeps one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleetctl_local.oom_kills import oom_kills

if TYPE_CHECKING:
    from pathlib import Path


def files(where: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = where / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def count(where: Path) -> int | None:
    return oom_kills(own=where / "own", root=where / "cgroup", machine=where / "vmstat")


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ({"own": "0::/a/b\n", "cgroup__a__b__memory_dot_events": "oom 4\noom_kill 3\noom_group_kill 0\n", "vmstat": "oom_kill 9\n"}, 3),
        ({"own": "0::/a/b\n", "cgroup__memory_dot_events": "oom_kill 2\n", "vmstat": "oom_kill 9\n"}, 2),
        ({"own": "4:cpu,memory:/a\n0::/\n", "cgroup__memory__a__memory_dot_oom_control": "under_oom 0\noom_kill 5\n"}, 5),
        ({"own": "0::/\n", "vmstat": "nr_free_pages 7\noom_kill 9\n"}, 9),
        ({"vmstat": "oom_kill 1\n"}, 1),
        ({"own": "0::/\n", "vmstat": "nr_free_pages 7\n"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_the_nearest_count_is_taken(tmp_path: Path, texts: dict[str, str], found: int | None) -> None:
    files(tmp_path, **texts)
    assert count(tmp_path) == found
