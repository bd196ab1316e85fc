"""What a killed engine leaves in shared memory, and what of it may be removed."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing import resource_tracker, shared_memory as python_shared_memory
from pathlib import Path

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.node import NodeState
from fleetctl.testing.orders import create, listed
from fleetctl.testing.samples import node_request
from fleetctl_local import kernel, shared_memory
from fleetctl_local.provider import LocalProvider

SHM = Path("/dev/shm")  # noqa: S108  # where the system keeps it
pytestmark = pytest.mark.skipif(not SHM.is_dir(), reason="this system keeps no shared memory there")

# As an engine with a core process of its own: two segments and a semaphore, all mapped by both.
ENGINE = """
import multiprocessing, sys, time
from multiprocessing import shared_memory

def core(names, lock):
    kept = [shared_memory.SharedMemory(name) for name in names]
    with lock:
        time.sleep(600)

if __name__ == "__main__":
    made = [shared_memory.SharedMemory(create=True, size=4096) for _ in range(2)]
    lock = multiprocessing.get_context("spawn").Lock()
    child = multiprocessing.get_context("spawn").Process(target=core, args=([each.name for each in made], lock))
    child.start()
    with open(sys.argv[1] + ".new", "w") as out:
        out.write(" ".join(each.name for each in made))
    import os; os.rename(sys.argv[1] + ".new", sys.argv[1])
    child.join()
"""


def written(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def there(segments: set[str]) -> set[str]:
    return {name for name in segments if (SHM / name).exists()}


def remove(segment: str) -> None:
    (SHM / segment).unlink(missing_ok=True)


async def wait_for_names(path: Path) -> list[str]:
    for _ in range(400):
        if names := written(path):
            return names
        await SYSTEM_CLOCK.sleep(0.05)
    raise AssertionError("the engine made no segments")


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_what_a_killed_engine_held_is_removed_but_not_what_somebody_else_maps(
    local: LocalProvider, owner: str, tmp_path: Path, how: str
) -> None:
    script, names_path = tmp_path / "engine.py", tmp_path / "names"
    script.write_text(ENGINE)
    node = await create(local, node_request(owner=owner, argv=(sys.executable, str(script), str(names_path))))
    names = await wait_for_names(names_path)
    (leader,) = (
        pid for pid in kernel.pids() if (seen := kernel.look(pid)) and seen.session == pid and is_of(pid, script)
    )
    held = shared_memory.held_in_sessions(frozenset({leader}))[leader]
    segments = {segment.partition(":")[2] for segment in held}
    assert set(names) <= segments
    assert any(name.startswith("sem.mp-") for name in segments)
    mapped_elsewhere = python_shared_memory.SharedMemory(names[1])
    resource_tracker.unregister(f"/{names[1]}", "shared_memory")
    try:
        if how == "killed":
            # Another process than the one that saw it may find it dead.
            await listed(LocalProvider(), owner=owner, fleet="demo")
            os.killpg(leader, signal.SIGKILL)
        else:
            await local.stop(node.id, grace_s=0.0)
        await wait_gone(owner)
        assert there(segments) == {names[1]}
    finally:
        mapped_elsewhere.close()
        remove(names[1])


def test_nothing_is_removed_by_its_name_alone() -> None:
    kept = python_shared_memory.SharedMemory(create=True, size=16)
    other = SHM / "fleetctl-test-cache"
    other.write_bytes(b"kept on purpose")
    try:
        path = SHM / kept.name
        inode = path.stat().st_ino
        kept.close()
        shared_memory.remove_unheld(
            [f"{inode + 1}:{kept.name}", f"{other.stat().st_ino}:{other.name}", f"{inode}:../x"]
        )
        assert path.exists()
        assert other.exists()
        shared_memory.remove_unheld([f"{inode}:{kept.name}"])
        assert not path.exists()
    finally:
        resource_tracker.unregister(f"/{kept.name}", "shared_memory")
        other.unlink()


def is_of(pid: int, script: Path) -> bool:
    try:
        return str(script).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


async def wait_gone(owner: str) -> None:
    for _ in range(200):
        (node,) = await listed(LocalProvider(), owner=owner, fleet="demo")
        if node.state is NodeState.GONE:
            return
        await SYSTEM_CLOCK.sleep(0.05)
    raise AssertionError("the node has not ended")
