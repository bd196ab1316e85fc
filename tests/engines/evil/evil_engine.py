"""The engine `evil`, as an outsider would register it: Acme's flags and figures, another server behind them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from acme_engine.engine import AcmeEngine

from fleetctl.ports.engine import LaunchCommand

if TYPE_CHECKING:
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import LaneSpec


class EvilEngine(AcmeEngine):
    """Runs `evil_server.py`."""

    name = "evil"

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return `python -m evil_server HOST PORT`."""
        del plan, lane
        return LaunchCommand(
            argv=(sys.executable, "-m", "evil_server", host, str(port)), env=dict(lane_plan.launch.env)
        )
