"""A load run lives in its own process, and its caller hears of everything that happens to it."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from fleetctl import codec
from fleetctl.errors import ConfigError, NotFoundError, UnavailableError
from fleetctl.load.report import LoadLine, LoadProgress, LoadSpec
from fleetctl.load.runner import run_load
from fleetctl.model.profile import Distribution, WorkloadSpec
from tests.load.conftest import answer_well

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.load.conftest import Behaviour, Server

    Serve = Callable[[Behaviour], Awaitable[Server]]

SMALL = WorkloadSpec(peak_rps=40, prompt_tokens=Distribution(p50=20, p99=40), output_tokens=Distribution(p50=4, p99=6))


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if is_worker(child)]


def is_worker(process: psutil.Process) -> bool:
    """Whether it runs a load; one that has ended, though nobody has waited for it yet, does not."""
    try:
        return "fleetctl.load" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


async def test_a_run_in_its_own_process_reports_what_the_server_saw(serve: Serve) -> None:
    server = await serve(answer_well)
    seen: list[LoadProgress] = []
    spec = LoadSpec(url=server.url, workload=SMALL, duration_s=1.5, interval_s=0.3)
    report = await run_load(spec, on_progress=seen.append)
    assert report.total.ok == report.total.requests == len(server.bodies) > 10
    assert report.generator.lateness.count == report.generator.sent
    assert seen
    assert workers() == []


async def test_a_trace_is_replayed(serve: Serve, tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,100,3\n0.2,50,2\n0.4,25,1\n")
    server = await serve(answer_well)
    report = await run_load(LoadSpec(url=server.url, trace=str(trace), speed=2), on_progress=lambda _: None)
    assert [body["max_tokens"] for body in server.bodies] == [3, 2, 1]
    assert [len(body["messages"][0]["content"]) for body in server.bodies] == [400, 200, 100]
    assert report.source == str(trace)
    assert report.total.output_tokens == 6


async def test_stop_ends_the_run_early_with_its_report(serve: Serve) -> None:
    server = await serve(answer_well)
    stop = asyncio.Event()

    def stop_at_first_line(_: LoadProgress) -> None:
        stop.set()

    spec = LoadSpec(url=server.url, workload=SMALL, duration_s=600, interval_s=0.3)
    report = await run_load(spec, on_progress=stop_at_first_line, stop=stop)
    assert report.ended_early
    assert report.total.ok > 0
    assert report.duration_s < 60


async def test_cancelling_leaves_no_process_behind(serve: Serve) -> None:
    server = await serve(functools.partial(answer_well, first_s=30))
    running = asyncio.Event()
    spec = LoadSpec(url=server.url, workload=SMALL, duration_s=600, interval_s=0.2)
    task = asyncio.create_task(run_load(spec, on_progress=lambda _: running.set()))
    await asyncio.wait_for(running.wait(), 30)
    assert len(workers()) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert workers() == []


async def test_a_killed_worker_is_told(serve: Serve) -> None:
    server = await serve(answer_well)

    def kill(_: LoadProgress) -> None:
        for worker in workers():
            worker.kill()

    spec = LoadSpec(url=server.url, workload=SMALL, duration_s=600, interval_s=0.2)
    with pytest.raises(UnavailableError, match="the load generator died"):
        await run_load(spec, on_progress=kill)


async def test_the_workers_own_errors_come_through_with_their_kind(serve: Serve, tmp_path: Path) -> None:
    server = await serve(answer_well)

    async def run(**wanted: object) -> None:
        spec = LoadSpec(**({"url": server.url} | wanted))  # type: ignore[arg-type]  # fields by name
        await run_load(spec, on_progress=lambda _: None)

    with pytest.raises(ConfigError, match="--speed must be more than zero"):
        await run(speed=0.0)
    with pytest.raises(NotFoundError, match="no trace at"):
        await run(trace=str(tmp_path / "none.csv"))
    with pytest.raises(UnavailableError, match="does not answer"):
        await run(url="http://127.0.0.1:9")


async def test_by_hand_it_prints_json_lines_and_ctrl_c_still_reports(serve: Serve) -> None:
    server = await serve(answer_well)
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fleetctl.load", "--json", "--url", server.url, "--rps", "30", "--duration", "600"),
        *("--interval", "0.3", "--model", "tiny"),
        stdout=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
    )
    assert worker.stdout is not None
    first = codec.decode(LoadLine, await asyncio.wait_for(worker.stdout.readline(), 30))
    assert first.progress is not None
    os.kill(worker.pid, signal.SIGINT)
    rest = await asyncio.wait_for(worker.stdout.read(), 30)
    assert await worker.wait() == 0
    last = codec.decode(LoadLine, rest.splitlines()[-1])
    assert last.report is not None
    assert last.report.ended_early


async def test_load_ends_when_the_process_that_asked_for_it_is_gone(serve: Serve) -> None:
    server = await serve(answer_well)
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fleetctl.load", "--json", "--spec"),
        stdout=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.PIPE,
    )
    assert worker.stdout is not None
    assert worker.stdin is not None
    spec = LoadSpec(url=server.url, workload=SMALL, duration_s=600, interval_s=0.3)
    worker.stdin.write(codec.encode(spec) + b"\n")
    await asyncio.wait_for(worker.stdout.readline(), 30)
    worker.stdin.close()
    await asyncio.wait_for(worker.stdout.read(), 30)
    assert await asyncio.wait_for(worker.wait(), 30) == 0
