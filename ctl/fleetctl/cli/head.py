"""`python -m fleetctl.cli.head SETTINGS`: what systemd runs on a head, until SIGTERM or until its fleet is long gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

_METADATA = "http://169.254.169.254/latest"
_CALL_S = 10.0


def main(path: str) -> int:
    """Keep the fleet that the settings name."""
    settings = json.loads(Path(path).read_text())
    os.environ.update(settings["environment"])
    from fleetctl.cli.site import UserSite
    from fleetctl.operations.heads import HeadIdentity, keep_head
    from fleetctl.printable import log_to_stderr

    log_to_stderr()
    leaving = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.set())
    identity = HeadIdentity(
        owner=settings["owner"], fleet=settings["fleet"], number=settings["number"],
        machine_id=_metadata("instance-id"), address=_metadata("local-ipv4"),
        host_key=" ".join(Path(settings["host_key"] + ".pub").read_text().split()[:2]),
    )  # fmt: skip
    command: Any = UserSite(sys.argv)
    try:
        keep_head(command.site, identity, waits=leaving.wait, is_over=_power_off, is_up=_stop_backstop)
    finally:
        command.close()
    return 0


def _power_off() -> None:
    """End this machine, and with it what it costs."""
    subprocess.run(["systemctl", "poweroff"], check=False, timeout=_CALL_S)  # noqa: S607  # the system's own


def _stop_backstop() -> None:
    """End the timer that would have ended a machine that never comes up."""
    subprocess.run(["systemctl", "stop", "fleetctl-backstop.timer"], check=False, timeout=_CALL_S)  # noqa: S607  # as above


def _metadata(name: str) -> str:
    request = urllib.request.Request(  # noqa: S310  # the instance's own metadata
        f"{_METADATA}/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    )
    with urllib.request.urlopen(request, timeout=_CALL_S) as answer:  # noqa: S310  # as above
        token = answer.read().decode()
    request = urllib.request.Request(  # noqa: S310  # as above
        f"{_METADATA}/meta-data/{name}", headers={"X-aws-ec2-metadata-token": token}
    )
    with urllib.request.urlopen(request, timeout=_CALL_S) as answer:  # noqa: S310  # as above
        text: str = answer.read().decode()
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
