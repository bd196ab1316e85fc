"""Every key's explanation. A key of the schema without one here fails a test: say what follows from it, or that nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.core.explanation.fleet_keys import FLEET_KEYS
from fleetctl.core.explanation.lane_keys import LANE_KEYS
from fleetctl.core.explanation.model_keys import MODEL_KEYS
from fleetctl.core.explanation.tier_keys import TIER_KEYS
from fleetctl.core.explanation.workflow_keys import WORKFLOW_KEYS

if TYPE_CHECKING:
    from fleetctl.core.explanation.effect import Explanation

# By the key's pattern, * for a name that the profile gives.
EXPLANATIONS: dict[str, Explanation] = {**FLEET_KEYS, **MODEL_KEYS, **LANE_KEYS, **TIER_KEYS, **WORKFLOW_KEYS}
