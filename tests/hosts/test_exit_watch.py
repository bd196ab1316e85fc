from __future__ import annotations

import asyncio
import subprocess
import sys

from fleetctl_host_local.exit_watch import ExitWatch


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)


async def test_the_end_of_a_process_is_told_at_once():
    watch, ended = ExitWatch(), asyncio.Event()
    with sleeper() as process:
        watch.follow(process.pid, ended.set)
        watch.follow(process.pid, ended.set)
        process.kill()
        async with asyncio.timeout(20):
            await ended.wait()
        assert process.wait(timeout=20) != 0


async def test_whoever_is_no_longer_followed_is_not_told_of():
    watch, first, second = ExitWatch(), asyncio.Event(), asyncio.Event()
    with sleeper() as one, sleeper() as other:
        watch.follow(one.pid, first.set)
        watch.follow(other.pid, second.set)
        one.kill()
        other.kill()
        async with asyncio.timeout(20):
            await second.wait()
    assert not first.is_set()


async def test_a_process_that_is_gone_already_is_left_to_the_next_look():
    with sleeper() as process:
        process.kill()
    watch = ExitWatch()
    watch.follow(process.pid, lambda: None)
    watch.follow(None, lambda: None)
    watch.close()
