"""`python -m fleetctl.load`: the worker process. Progress and report go to stdout, one JSON line each."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from dataclasses import fields

import msgspec
import uvloop

from fleetctl import codec
from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ConfigError, FleetctlError
from fleetctl.load.report import LoadFault, LoadLine, LoadProgress, LoadSpec
from fleetctl.load.worker import LoadRun

# LoadSpec's fields that are a single word or number: each is a flag.
_FLAGS = {
    "url": str, "trace": str, "duration_s": float, "offset_s": float, "speed": float, "rps": float,
    "batch_share": float, "model": str, "api_key": str, "lane": str, "tier": str, "bytes_per_token": float, "seed": int,
    "timeout_s": float, "in_flight_max": int, "interval_s": float, "drain_timeout_s": float, "drain_s": float, "objective": float,
}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run one load and return the exit code."""
    try:
        arguments = _parser().parse_args(argv)
        spec = _spec(arguments)
        uvloop.run(_run(spec, watch_stdin=arguments.spec))
    except FleetctlError as error:
        _say(LoadLine(fault=LoadFault(message=error.message, hint=error.hint, exit_code=error.exit_code)))
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleetctl.load", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--spec", action="store_true", help="read a LoadSpec as one JSON line; stdin's end stops the run"
    )
    parser.add_argument("--json", action="store_true", help="JSON lines (the only format there is)")
    for name, kind in _FLAGS.items():
        flag = "--" + name.removesuffix("_s").replace("_", "-")
        parser.add_argument(flag, dest=name, type=kind, default=argparse.SUPPRESS)
    return parser


def _spec(arguments: argparse.Namespace) -> LoadSpec:
    given = {f.name: getattr(arguments, f.name) for f in fields(LoadSpec) if hasattr(arguments, f.name)}
    if arguments.spec:
        try:
            return codec.decode(LoadSpec, sys.stdin.buffer.readline())
        except msgspec.DecodeError as error:
            raise ConfigError(f"the load specification on stdin is not one: {error}") from error
    if "url" not in given:
        raise ConfigError("no --url", hint="python -m fleetctl.load --url http://127.0.0.1:8080")
    return LoadSpec(**given)


async def _run(spec: LoadSpec, *, watch_stdin: bool) -> None:
    run = LoadRun(spec, clock=SYSTEM_CLOCK, on_progress=_say_progress)
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, run.stop)
    if watch_stdin:
        # The parent holds the pipe's other end: when it dies, however it dies, load must not go on.
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        parent = asyncio.ensure_future(reader.read())
        parent.add_done_callback(lambda _: run.stop())
    _say(LoadLine(report=await run.run()))


def _say_progress(progress: LoadProgress) -> None:
    _say(LoadLine(progress=progress))


def _say(line: LoadLine) -> None:
    sys.stdout.buffer.write(codec.encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
