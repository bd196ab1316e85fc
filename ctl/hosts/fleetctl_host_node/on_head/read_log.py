"""Prints a piece of a log of controller or gateway: the one command that whoever logs in to a head may give."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from fleetctl.codec import encode
from fleetctl_host_local.host import LocalHost

_SETTINGS = Path("/etc/fleetctl/head.json")
_BYTES_MAX = 1 << 20
_PROCESSES = ("controller", "gateway")


def main() -> int:
    """Read `PROCESS BYTES [AFTER]` from what the client asked sshd for."""
    process, size, *after = [*os.environ.get("SSH_ORIGINAL_COMMAND", "").split(), "", ""]
    if process not in _PROCESSES or not size.isdigit():
        sys.stderr.write("this key reads logs and opens tunnels, and does nothing else\n")
        return 1
    fleet = json.loads(_SETTINGS.read_text())["fleet"]
    begin = int(after[0]) if after and after[0].isdigit() else None
    found = LocalHost().read_log(fleet, process, after=begin, bytes_max=min(int(size), _BYTES_MAX))
    sys.stdout.write(encode(found).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
