"""python -m fleetctl.emulator: one emulated engine, until SIGTERM or SIGINT."""

from __future__ import annotations

import sys

import uvloop

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.emulator.cards import size_instance
from fleetctl.emulator.options import Options, explain, parse_options
from fleetctl.emulator.server import Server
from fleetctl.errors import FleetctlError


async def _serve(options: Options) -> int:
    return await Server(options, size_instance(options), SYSTEM_CLOCK).run()


def main() -> int:
    """Run the engine; return the exit status."""
    options = parse_options(sys.argv[1:])
    try:
        return uvloop.run(_serve(options))
    except FleetctlError as error:
        sys.stderr.write(f"{explain(error)}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
