"""`python -m fleetctl.gateway FLEET`: the data plane of one fleet."""

from __future__ import annotations

import argparse
import gc
import random
import sys
from dataclasses import replace

import uvloop

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ConfigError, FleetctlError
from fleetctl.gateway import listeners, server
from fleetctl.gateway.frontend import Frontend
from fleetctl.gateway.limits import GatewayLimits
from fleetctl.paths import FleetPaths
from fleetctl.plugins import DEFAULT_HOST, load_host
from fleetctl.printable import log_to_stderr


def main() -> int:
    """Serve one fleet until told to stop; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fleetctl.gateway", description=__doc__)
    parser.add_argument("fleet", help="name of the fleet")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind when no sockets are inherited")
    parser.add_argument("--port", type=int, default=8080, help="port to bind when no sockets are inherited")
    parser.add_argument("--on-host", default=DEFAULT_HOST, help="the fleetctl.host plugin it is run by")
    parser.add_argument("--number", type=int, default=1, help="of several gateways: which one this is, from 1 on")
    parser.add_argument(
        "--beside", action="store_true", help="others hold the limits too: have none of them until told"
    )
    parser.add_argument("--stop-timeout-s", type=float, default=30.0, help="how long in-flight requests may finish")
    arguments = parser.parse_args()
    log_to_stderr()
    try:
        _run(arguments)
    except FleetctlError as exc:
        print(f"error: {exc.message}" + (f" ({exc.hint})" if exc.hint else ""), file=sys.stderr)  # noqa: T201
        return exc.exit_code
    return 0


def _run(arguments: argparse.Namespace) -> None:
    paths = FleetPaths(fleet=arguments.fleet)
    runtime = load_host(arguments.on_host).gateway_runtime(arguments.fleet, number=arguments.number)
    runtime.claim()
    files_max = server.raise_descriptor_limit()
    sockets = runtime.listeners()
    if not sockets:
        try:
            sockets = listeners.bind(arguments.host, arguments.port)
        except OSError as exc:
            raise ConfigError(
                f"cannot listen on {arguments.host}:{arguments.port}: {exc.strerror}",
                hint="choose another gateway port, or stop what uses it",
            ) from exc
    limits = GatewayLimits(stop_timeout_s=arguments.stop_timeout_s)
    limits = replace(limits, connections_max=server.connections_max(limits, files_max))
    is_loopback = listeners.are_loopback(sockets)
    frontend = Frontend(arguments.fleet, SYSTEM_CLOCK, random.Random(), limits, is_loopback=is_loopback)
    frontend.pages.number = arguments.number
    if arguments.beside:
        frontend.dispatcher.sharing.begin_beside()
    gc.freeze()  # what was imported stays: no collection need look at it
    try:
        uvloop.run(server.serve(frontend, paths, sockets, runtime, SYSTEM_CLOCK))
    finally:
        runtime.release()


if __name__ == "__main__":
    sys.exit(main())
