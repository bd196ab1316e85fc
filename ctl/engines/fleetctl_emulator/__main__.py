"""python -m fleetctl_emulator: one emulated engine, until SIGTERM or SIGINT."""

from __future__ import annotations

import sys

import uvloop

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import FleetctlError
from fleetctl_emulator.group import run_member
from fleetctl_emulator.instance import size_instance
from fleetctl_emulator.options import EmulatorOptions, explain, parse_options
from fleetctl_emulator.server import Server
from fleetctl_emulator.surface import load_played


async def _serve(options: EmulatorOptions) -> int:
    if options.node_rank:
        return await run_member(options, SYSTEM_CLOCK)
    return await Server(options, size_instance(options), load_played(options.flavour), SYSTEM_CLOCK).run()


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
