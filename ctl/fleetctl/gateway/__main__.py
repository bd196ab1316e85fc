"""`python -m fleetctl.gateway FLEET`: the data plane of one fleet."""

from __future__ import annotations

import argparse
import gc
import logging
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ConfigError, FleetctlError
from fleetctl.files import raise_descriptor_limit
from fleetctl.gateway import listeners, server
from fleetctl.gateway.frontend import Frontend
from fleetctl.gateway.limits import GatewayLimits
from fleetctl.paths import FleetPaths
from fleetctl.plugins import DEFAULT_HOST, load_host
from fleetctl.printable import log_to_stderr

if TYPE_CHECKING:
    import socket


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
    parser.add_argument("--tls", action="store_true", help="serve nobody before a table has said by which certificate")
    parser.add_argument("--tls-directory", default="", help="where tls.crt and tls.key are, whatever the table says")
    parser.add_argument("--also-on", default="", help="an address to listen on too, where it is to be had")
    parser.add_argument("--control-port", type=int, default=0, help="take a controller's calls here too, over TCP")
    parser.add_argument("--control-token", type=Path, help="the file that has the token of those calls")
    parser.add_argument("--open-metrics", action="store_true", help="give figures at that port to who has no token too")
    parser.add_argument("--leave-s", type=float, default=0.0, help="serve on so long once told to stop, not ready")
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
    files_max = raise_descriptor_limit()
    sockets = runtime.listeners()
    if not sockets:
        sockets = _bound(arguments)
    limits = GatewayLimits(stop_timeout_s=arguments.stop_timeout_s, leave_s=arguments.leave_s)
    limits = replace(limits, connections_max=server.connections_max(limits, files_max))
    is_loopback = listeners.are_loopback(sockets)
    frontend = Frontend(arguments.fleet, SYSTEM_CLOCK, random.Random(), limits, is_loopback=is_loopback)
    frontend.pages.number = arguments.number
    frontend.gauges.certificate.is_awaited = arguments.tls
    frontend.gauges.certificate.directory = arguments.tls_directory
    if arguments.beside:
        frontend.dispatcher.sharing.begin_beside()
    control = None
    if arguments.control_port:
        if arguments.control_token is None:
            raise ConfigError("--control-port takes --control-token", hint="name the file that has the token")
        control = server.ControlAt(
            _addresses(arguments), arguments.control_port, arguments.control_token, arguments.open_metrics
        )
    gc.freeze()  # what was imported stays: no collection need look at it
    try:
        uvloop.run(server.serve(frontend, paths, sockets, runtime, SYSTEM_CLOCK, control_at=control))
    finally:
        runtime.release()


def _addresses(arguments: argparse.Namespace) -> tuple[str, ...]:
    return (arguments.host, *((arguments.also_on,) if arguments.also_on else ()))


def _bound(arguments: argparse.Namespace) -> list[socket.socket]:
    """Return sockets that listen at the first address, and at the other one where it is to be had. Raises ConfigError."""
    found: list[socket.socket] = []
    for address in _addresses(arguments):
        try:
            found += listeners.bind(address, arguments.port)
        except OSError as exc:
            if not found:
                raise ConfigError(
                    f"cannot listen on {address}:{arguments.port}: {exc.strerror}",
                    hint="choose another gateway port, or stop what uses it",
                ) from exc
            logging.getLogger("fleetctl.gateway").warning("nothing listens at %s: %s", address, exc.strerror)
    return found


if __name__ == "__main__":
    sys.exit(main())
