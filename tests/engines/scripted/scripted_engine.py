"""The engine `scripted`: Acme's figures, and a server that ends its requests as a lane's script says."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from acme_engine.engine import AcmeEngine

from fleetctl.ports.engine import LaunchCommand

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import LaneSpec


class ScriptedEngine(AcmeEngine):
    """Runs `scripted_server.py`."""

    name = "scripted"

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `python -m scripted_server HOST PORT`; the script is in the lane's environment."""
        del plan, lane
        return LaunchCommand(
            argv=(sys.executable, "-m", "scripted_server", host, str(port)), env=dict(lane_plan.launch.env)
        )
