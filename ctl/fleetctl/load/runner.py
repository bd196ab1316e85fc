"""Runs a load in a process of its own, so that neither the caller nor its event loop is the bottleneck."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import msgspec

from fleetctl import codec
from fleetctl.errors import ConfigError, FleetctlError, NotFoundError, UnavailableError
from fleetctl.load.report import LoadLine, LoadProgress, LoadReport, LoadSpec

if TYPE_CHECKING:
    from collections.abc import Callable

_START_S = 30.0  # interpreter, imports, the first answer of /v1/models
_SILENCE_S = 30.0  # beyond the interval between two lines
_GRACE_S = 0.5  # to end by itself
_END_S = 10.0
_LINE_BYTES_MAX = 16 * 1024 * 1024
_STDERR_BYTES_MAX = 8192


async def run_load(
    spec: LoadSpec, *, on_progress: Callable[[LoadProgress], None], stop: asyncio.Event | None = None
) -> LoadReport:
    """Run one load to its end, or until `stop` is set, and return its report either way.

    Cancelling this ends the worker without a report. Raises ConfigError, NotFoundError, UnavailableError as the
    worker does, and UnavailableError when it dies or falls silent.
    """
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fleetctl.load", "--json", "--spec"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES_MAX,
        # Its own session: Ctrl-C in the terminal reaches the caller alone, which then says how to end.
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    complaints = asyncio.create_task(_tail(worker.stderr))
    stopper = asyncio.create_task(_stop_when(stop, worker)) if stop else None
    try:
        _write_spec(worker, spec)
        return await _follow(worker, spec, on_progress, complaints)
    finally:
        if stopper:
            stopper.cancel()
        await _end(worker)
        complaints.cancel()


def _write_spec(worker: asyncio.subprocess.Process, spec: LoadSpec) -> None:
    if worker.stdin is None:
        raise AssertionError("the worker was started with a pipe")
    worker.stdin.write(codec.encode(spec) + b"\n")


async def _follow(
    worker: asyncio.subprocess.Process,
    spec: LoadSpec,
    on_progress: Callable[[LoadProgress], None],
    complaints: asyncio.Task[str],
) -> LoadReport:
    while True:
        line = await _next_line(worker, spec, complaints)
        if line.fault:
            raise _error(line.fault.exit_code)(line.fault.message, hint=line.fault.hint)
        if line.report:
            return line.report
        if line.progress:
            on_progress(line.progress)


async def _next_line(worker: asyncio.subprocess.Process, spec: LoadSpec, complaints: asyncio.Task[str]) -> LoadLine:
    if worker.stdout is None:
        raise AssertionError("the worker was started with a pipe")
    try:
        async with asyncio.timeout(_START_S + spec.interval_s + _SILENCE_S):
            raw = await worker.stdout.readline()
    except TimeoutError as error:
        raise UnavailableError("the load generator fell silent", hint="is this machine out of CPU?") from error
    if not raw:
        stderr = await asyncio.wait_for(complaints, _END_S)
        last = stderr.strip().rsplit("\n", 1)[-1] or "it wrote nothing"
        raise UnavailableError(f"the load generator died: {last}")
    try:
        return codec.decode(LoadLine, raw)
    except msgspec.DecodeError as error:
        raise UnavailableError(f"the load generator wrote something else than a report: {error}") from error


def _error(exit_code: int) -> type[FleetctlError]:
    kinds: tuple[type[FleetctlError], ...] = (ConfigError, NotFoundError)
    return next((kind for kind in kinds if kind.exit_code == exit_code), UnavailableError)


async def _stop_when(stop: asyncio.Event, worker: asyncio.subprocess.Process) -> None:
    await stop.wait()
    if worker.returncode is None:
        worker.terminate()


async def _end(worker: asyncio.subprocess.Process) -> None:
    """Make sure the worker is gone: it ends by itself after its report, and when its stdin closes."""
    if worker.stdin:
        worker.stdin.close()
    # Not asyncio.timeout: before Python 3.11.4 it does not work in a task that is being cancelled.
    ending = asyncio.ensure_future(worker.wait())
    await asyncio.wait({ending}, timeout=_GRACE_S)
    if not ending.done():
        worker.kill()
        await asyncio.wait({ending}, timeout=_END_S)


async def _tail(stream: asyncio.StreamReader | None) -> str:
    """Return the end of what the worker complained of."""
    kept = b""
    while stream and (chunk := await stream.read(4096)):
        kept = (kept + chunk)[-_STDERR_BYTES_MAX:]
    return kept.decode(errors="replace")
