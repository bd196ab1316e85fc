"""Runs the command line: `fleetctl`, `python -m fleetctl`."""

from __future__ import annotations

import sys

from fleetctl import os_signals

_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells say it


def main() -> int:
    """Run it and return the exit code; Ctrl-C while it is still being loaded is no traceback either."""
    try:
        with os_signals.installed():
            from fleetctl.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
