"""One controller, whatever happens: commands from everywhere, locks and sockets removed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.one_controller import CAUSES, DISK_FULL, try_once
from tests.e2e.standstill import on_small_disk
from tests.e2e.watched import FLEET, Watched, Witness
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.minutes, pytest.mark.timeout(600)]

# The bar is ten, on a machine of one's own (tests/bench/one_controller.py). Here another file of whole fleets is tested
# beside this one, and a process that only computes is told by the processor it had.
BESIDE_OTHERS_S = 90.0


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    root = Path(tempfile.mkdtemp(prefix="fo-"))
    fleet = Watched(root)
    fleet.unmount = on_small_disk(root)
    try:
        fleet.up()
        yield fleet
    finally:
        left = fleet.take_down()
        if fleet.unmount is not None:
            fleet.unmount()
        shutil.rmtree(root, ignore_errors=True)
    assert left == []


@pytest.mark.parametrize("cause", CAUSES)
def test_there_is_one_writer_and_service_goes_on(watched, cause):
    if cause == DISK_FULL and watched.unmount is None:
        pytest.skip("mounting a disk to fill is not allowed here")
    rng = random.Random(cause)
    env = rng.choice(sorted(watched.environments))
    with Witness(watched) as witness:
        trial = try_once(watched, witness, cause, env, rng, BESIDE_OTHERS_S)
    assert trial.wrong == (), f"{trial}\n{watched.logs()}"
    assert witness.answered > 0


def test_every_environment_sees_the_same_fleet(watched):
    def facts(env: str) -> list[object]:
        seen = watched.status(env)
        return [seen[key] for key in ("controller_pid", "gateway_pid", "gateway_url", "generation", "phase")]

    own = facts("own")
    assert {env: facts(env) for env in watched.environments} == dict.fromkeys(watched.environments, own)
    assert len(watched.controllers()) == 1


def test_a_fenced_controller_says_so_and_ends_with_its_own_code(watched):
    def take_over(ends: ExitStack) -> subprocess.Popen[str]:
        """Start a controller that finds the lock free: as the file is gone, and its holder does not run to notice."""
        before = [*watched.controllers(), *watched.pids("gateway")]  # the gateway would start one of its own
        watched.stop_outside_a_write(before)
        (watched.place / "controller.lock").unlink()
        started = ends.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "fleetctl.controller", FLEET], env=watched.environments["unit"], cwd="/",
                stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
        ends.callback(started.kill)
        try:
            until(lambda: started.pid in watched.controllers(), within_s=30, what="another controller")
            until(lambda: watched.status()["controller_pid"] == started.pid, within_s=30, what="its answer")
        finally:
            for pid in before:
                with suppress(ProcessLookupError):  # a gateway that stands still is replaced
                    os.kill(pid, signal.SIGCONT)
        return started

    with ExitStack() as ends:
        first, second = take_over(ends), take_over(ends)
        _, log = first.communicate(timeout=30)
        assert first.returncode == 14
        assert f"is over: process {second.pid} on " in log
        watched.until_right(within_s=BESIDE_OTHERS_S)
        second.terminate()
        second.communicate(timeout=30)
    watched.until_right(within_s=BESIDE_OTHERS_S)  # the gateway has started another
