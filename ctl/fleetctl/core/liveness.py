"""How long an engine may be silent before it counts as hung: by the lane's ITL promise, and by the prompts it works on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.model.slo import Metric

if TYPE_CHECKING:
    from fleetctl.model.profile import Profile
    from fleetctl.model.slo import LaneSlo

# A pause of forty gaps is no hiccup. Below three seconds a busy machine, a preemption or a garbage collection would be
# taken for a hang; a lane that promises no gap is judged as one that promises 100 ms.
_STALL_GAPS = 40.0
_STALL_S_MIN = 3.0
_ITL_S_DEFAULT = 0.1
# A prompt may take this many times as long as prompts took so far: decodes share its steps, and lengths are estimates.
_PREFILL_SLACK = 3.0
# A replica that the controller found unhealthy keeps no request that has been silent for this long.
UNHEALTHY_SILENT_S = 1.0
# One that has left the routing table has gone, or is made to within three seconds; where a machine goes with its address, no
# connection to it is ever closed. What has been silent for this long since then is not answered there any more.
RETIRED_SILENT_S = 5.0
# Prompts shorter than this say more of the network than of the engine.
PREFILL_TOKENS_MEASURED_MIN = 64


def stall_limit_s(slo: LaneSlo, stall_timeout_s: float) -> float:
    """Return how long a working engine of this lane may send nothing; `stall_timeout_s` is the upper bound."""
    itl = slo.strictest(Metric.ITL)
    limit_s = _STALL_GAPS * (itl.limit_s if itl is not None else _ITL_S_DEFAULT)
    return min(stall_timeout_s, max(_STALL_S_MIN, limit_s))


def stall_limits_s(profile: Profile) -> dict[str, float]:
    """Return every lane's limit, by its name."""
    return {lane.name: stall_limit_s(lane.slo, profile.gateway.stall_timeout_s) for lane in profile.lanes}


def prefill_allowance_s(prefill_tokens: int, planned_tokens_per_s: float, measured_s_per_token: float) -> float:
    """Return how much longer an engine may be silent over prompts of so many tokens.

    The slower of plan and measurement counts; infinite where neither is known.
    """
    if prefill_tokens <= 0:
        return 0.0
    planned_s = 1.0 / planned_tokens_per_s if planned_tokens_per_s > 0.0 else 0.0
    s_per_token = max(planned_s, measured_s_per_token)
    return _PREFILL_SLACK * prefill_tokens * s_per_token if s_per_token > 0.0 else math.inf
