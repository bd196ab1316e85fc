"""`python -m fleetctl.cli.pod FLEET`: what the pod of a fleet runs whose host is the cluster, until SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any


def main(fleet: str) -> int:
    """Keep the fleet of this name, which is on record in the state."""
    from fleetctl.cli.site import UserSite
    from fleetctl.operations.kept_pod import keep_pod
    from fleetctl.printable import log_to_stderr

    log_to_stderr()
    leaving = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.set())
    command: Any = UserSite(sys.argv)
    try:
        keep_pod(command.site, fleet, environ=os.environ, waits=leaving.wait)
    finally:
        command.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
