"""Starts one engine anew on its instance, through Systems Manager; whoever is on the instance beside it is left alone."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING

from fleetctl_aws.slots import parse_node_id

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl_aws.run_command import RunCommand

# SIGTERM, then SIGKILL: whoever is restarted serves nobody any more, and one that hangs takes no SIGTERM.
_GRACE_S = 10
_RUNS_S = 60.0
# The container is ended, not the unit stopped: systemd starts a unit again whose engine ended. Of one that it has to stop
# it takes an exit status of 143, or a kill after the unit's TimeoutStopSec, for a failure, and that ends the machine.
# What the engine died of before is not counted against this start; of one that was given up systemd refuses any other.
_SCRIPT = """set -eu
state=$(systemctl is-active %(unit)s || true)
case $state in
activating) exit 0 ;;
active) ;;
failed)
    rm -f %(ends)s
    systemctl reset-failed %(unit)s
    exec systemctl start --no-block %(unit)s
    ;;
*) echo "its unit is $state" >&2; exit 1 ;;
esac
started=$(docker inspect -f '{{.State.StartedAt}}' %(container)s)
[ "$(date -d "$started" +%%s)" -lt %(before_s)d ] || exit 0
rm -f %(ends)s
systemctl reset-failed %(unit)s
docker stop -t %(grace_s)d %(container)s
"""


class InstanceRestarts:
    """Implements EngineRestarts."""

    def __init__(self, commands: RunCommand) -> None:
        self._commands = commands

    async def restart(self, node_id: str, *, started_before: datetime) -> None:
        """Have an engine end that was started before an instant; its instance's systemd starts it again.

        Raises CredentialsError, ProviderError, UnavailableError.
        """
        instance, slot = parse_node_id(node_id)
        script = restart_script(slot, started_before=started_before)
        await self._commands.output(instance, script, what="the restart of an engine", runs_s=_RUNS_S)


def restart_script(slot: int, *, started_before: datetime) -> str:
    """Return the script that ends a slot's engine for systemd to start it again; a younger one is left at it."""
    return _SCRIPT % {
        "unit": shlex.quote(f"fleetctl-engine@{slot}.service"),
        "container": shlex.quote(f"fleetctl-engine-{slot}"),
        "before_s": math.ceil(started_before.timestamp()),
        "grace_s": _GRACE_S,
        "ends": shlex.quote(f"/run/fleetctl-ends/{slot}"),
    }
