"""What fleetctl needs to know of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fleetctl.model.observation import EngineSignals
    from fleetctl.model.plan import LanePlan, Plan
    from fleetctl.model.profile import LaneSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCommand:
    """A process to start. Secrets are only ever in `env`, and only as references until the last moment."""

    argv: tuple[str, ...]
    env: dict[str, str]


class Engine(Protocol):
    """Is reached by the entry point group `fleetctl.engine`; constructed without arguments. Pure: text in, text out."""

    name: str
    health_path: str
    metrics_path: str
    api_key_env: str  # the variable it reads the key from that its clients must send; empty: it takes none this way

    def launch(self, *, plan: Plan, lane: LaneSpec, lane_plan: LanePlan, host: str, port: int) -> LaunchCommand:
        """Return how this lane's replicas are started, listening on host:port."""
        ...

    def signals(self, exposition: str) -> EngineSignals:
        """Read a /metrics page; NaN and absent series make the result INVALID, never a guess. `at` is left None."""
        ...

    def warm_body(self, *, served_name: str) -> tuple[str, bytes]:
        """Return the path and JSON body of a small real completion."""
        ...
