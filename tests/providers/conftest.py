from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from fleetctl_local import kernel, temporary_files
from fleetctl_local.provider import LocalProvider
from fleetctl_local.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWNER = "owner-of-these-tests"


def tagged_pids(owner: str, tags: dict[str, str] | None = None) -> list[int]:
    """Return living processes by their tags, asked of the kernel and not of the provider."""
    found = []
    for pid in kernel.pids():
        seen, carried = kernel.look(pid), kernel.environment(pid)
        if seen is None or seen.is_zombie or carried.get("FLEETCTL_OWNER") != owner:
            continue
        if all(carried.get(name) == value for name, value in (tags or {}).items()):
            found.append(pid)
    return found


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    mine = f"{OWNER}-{tmp_path.name}-{os.getpid()}"
    yield mine
    for pid in tagged_pids(mine):
        os.kill(pid, signal.SIGKILL)
    for record in Registry().all():
        temporary_files.remove(record.temporary)


@pytest.fixture
def local(owner: str) -> LocalProvider:
    return LocalProvider()
