"""Prints the instructions a request costs in the gateway: python tests/bench/gateway_instructions.py [--beside CHECKOUT]

Counted by valgrind's cachegrind in one process, without sockets and with a clock that counts up: a whole answer, a stream
of two events, one more event of a stream, and one more that carries the engine's token count. Each is the difference of two runs of different length, so that imports and
set-up fall out. Unlike CPU time it does not change from run to run, whatever else the machine does. The garbage collector
is off: where its passes fall moves a figure by a per cent, and of a gateway under load there are none, as whatever is kept
of a request takes the place of what is forgotten.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.model.gateway import RoutingTable

SHORT_RUN, LONG_RUN = 100, 400
WARM_UP = 1100  # what is kept of the last requests is full by then
CASES = ("whole", "stream", "chunk", "counted")
# What the table says of models: nothing, as one of long ago; one; three, of which requests name one by its own name, its alias, its adapter.
MODELS = ("none", "one", "own", "alias", "adapter")


class CountingClock:
    """Implements Clock: a microsecond passes whenever anybody looks."""

    def __init__(self) -> None:
        self._looks = 0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic_s())

    def monotonic_s(self) -> float:
        self._looks += 1
        return self._looks * 1e-6

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class NullTransport(asyncio.Transport):
    """Takes whatever is written."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        del data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def is_closing(self) -> bool:
        return False


class InProcessGateway:
    """A gateway with one client connection, whose upstream connections are made here."""

    def __init__(self) -> None:
        from fleetctl.gateway.client import ClientConnection
        from fleetctl.gateway.frontend import Frontend
        from fleetctl.gateway.limits import GatewayLimits
        from tests.bench.gateway_overhead import routing_table

        self.upstreams: list[asyncio.Protocol] = []
        asyncio.get_running_loop().create_connection = self._connect  # type: ignore[method-assign,assignment]  # no sockets
        frontend = Frontend("bench", CountingClock(), random.Random(1), GatewayLimits())
        self.frontend, self.table = frontend, routing_table()
        frontend.apply(self.table)
        self.client = ClientConnection(frontend)
        self.client.connection_made(NullTransport())

    async def _connect(self, make: Callable[[], asyncio.Protocol], *_: object, **__: object) -> tuple[None, object]:
        made = make()
        made.connection_made(NullTransport())
        self.upstreams.append(made)
        return None, made

    def upstream(self) -> asyncio.Protocol:
        """Return the upstream connection that has a request."""
        return next(made for made in self.upstreams if made._receiver is not None)  # type: ignore[attr-defined]


def _named(request: bytes, number: int) -> bytes:
    """Return a request as the call of a workflow, of which each has eight."""
    head, rest = request.split(b"\r\n", 1)
    return b"%b\r\nx-fleetctl-workflow: order-%d\r\n%b" % (head, number // 8, rest)


def _of_models(table: RoutingTable, named: str) -> RoutingTable:
    """Return the table of a fleet of one or three models, whose first is what the requests name; or as it is."""
    if named == "none":
        return table
    from dataclasses import replace

    from fleetctl.model.gateway import RouteModel

    called = {"alias": {"name": "big", "aliases": ("m",)}, "adapter": {"name": "big", "adapters": {"m": "/lora/m"}}}
    first = RouteModel(root="org/big", **called.get(named, {"name": "m"}))  # type: ignore[arg-type]  # its fields
    if named == "one":
        return replace(table, version=table.version + 1, models=(first,))
    (lane,) = table.lanes
    others = tuple(RouteModel(name=name, root=f"org/{name}") for name in ("small", "tiny"))
    lanes = (replace(lane, model=first.name), *(replace(lane, name=each.name, model=each.name) for each in others))
    return replace(table, version=table.version + 1, models=(first, *others), lanes=lanes)


async def drive(case: str, count: int, *, joined: bool = False, models: str = "none") -> None:
    """Send one case's bytes through `count` times."""
    from tests.bench import gateway_overhead as wire

    gc.disable()
    gateway = InProcessGateway()
    client = gateway.client
    whole, stream = wire.request(wire.WHOLE), wire.request(wire.STREAM)
    if joined:
        from dataclasses import replace

        from fleetctl.model.workflows import ElapsedTarget, WorkflowKind, WorkflowsSpec

        kind = WorkflowKind(name="agent", steps=7, targets=(ElapsedTarget(percentile=0.99, limit_s=30.0),), lane="chat")
        gateway.frontend.apply(
            replace(gateway.table, version=gateway.table.version + 1, workflows=WorkflowsSpec(kinds=(kind,)))
        )
    gateway.frontend.apply(_of_models(gateway.table, models))
    for _ in range(WARM_UP):
        client.data_received(whole)
        for _ in range(3):
            await asyncio.sleep(0)  # the first one connects
        gateway.upstream().data_received(wire.WHOLE_ANSWER)
    if case == "whole":
        for number in range(count):
            client.data_received(_named(whole, number) if joined else whole)
            gateway.upstream().data_received(wire.WHOLE_ANSWER)
    elif case == "stream":
        for number in range(count):
            client.data_received(_named(stream, number) if joined else stream)
            upstream = gateway.upstream()
            upstream.data_received(wire.STREAM_BEGIN)
            upstream.data_received(wire.STREAM_END)
    else:
        client.data_received(stream)
        upstream = gateway.upstream()
        upstream.data_received(wire.STREAM_BEGIN)
        if case == "counted":  # the first of its shape is looked at closely
            upstream.data_received(wire.COUNTED_EVENT)
        for _ in range(count):
            upstream.data_received(wire.COUNTED_EVENT if case == "counted" else wire.STREAM_EVENT)


def instructions(checkout: Path, case: str, count: int, *, joined: bool, models: str) -> int:
    """Return what cachegrind counts of one run with the gateway of this checkout."""
    sources = [
        Path(__file__).resolve().parents[2],
        checkout / "ctl",
        checkout / "ctl" / "engines",
        checkout / "ctl" / "hosts",
        checkout / "providers",
    ]
    done = subprocess.run(
        [
            shutil.which("valgrind") or "valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
            sys.executable, __file__, "--drive", case, "--count", str(count), *(["--joined"] if joined else []),
            "--models", models,
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sources)), "PYTHONHASHSEED": "0"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if done.returncode or found is None:
        raise SystemExit(f"{case}: valgrind ended with {done.returncode}\n{done.stderr[-2000:]}")
    return int(found[1].replace(",", ""))


def cost(checkout: Path, case: str, *, joined: bool = False, models: str = "none") -> float:
    """Return the instructions of one more."""
    counts = (instructions(checkout, case, count, joined=joined, models=models) for count in (LONG_RUN, SHORT_RUN))
    return (next(counts) - next(counts)) / (LONG_RUN - SHORT_RUN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="another checkout of fleetctl, to compare with")
    parser.add_argument(
        "--joined",
        action="store_true",
        help="have the requests be calls of workflows, of eight each, under a profile with them",
    )
    parser.add_argument(
        "--models",
        choices=MODELS,
        default="none",
        help="what the fleet's table says of models, and by what the requests name theirs",
    )
    parser.add_argument("--case", choices=CASES, action="append", help="count these alone")
    parser.add_argument("--drive", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=SHORT_RUN, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.drive:
        asyncio.run(drive(arguments.drive, arguments.count, joined=arguments.joined, models=arguments.models))
        return
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed: apt install valgrind")
    here = Path(__file__).resolve().parents[2]
    for case in arguments.case or CASES:
        ours = cost(here, case, joined=arguments.joined, models=arguments.models)
        line = f"{case:8}{ours:12,.0f} instructions"
        if arguments.beside:
            theirs = cost(arguments.beside.resolve(), case)
            line += f"{theirs:12,.0f} beside{ours / theirs:8.3f} x"
        print(line, flush=True)


if __name__ == "__main__":
    main()
