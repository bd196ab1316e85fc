"""How kubelet looks at an engine and ends it: what Services and budgets see of it, and nothing that the controller decides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetctl.model.node import NodeRequest

Object = dict[str, Any]
_PERIOD_S = 2
_TIMEOUT_S = 5  # an engine in the middle of a long step answers late
# The controller gives a start up first, by the time since the order; kubelet counts from the container's start, and so
# ends what nobody looks after any more, which would hold its GPUs for ever.
_AFTER_CONTROLLER_S = 60
# Until SIGTERM, in which the gateway takes a pod that somebody deletes out of rotation: twice the interval of listings.
_BEFORE_SIGTERM_S = 2
_AFTER_DRAIN_S = 10  # an engine takes some seconds to end once it has drained
_GRACE_S = 75  # of an eviction, where it is not known how long the engine drains


def probes_of(request: NodeRequest) -> Object:
    """Return a container's probes and its hook before SIGTERM.

    No liveness probe: which engine hangs, and what becomes of it, the controller judges by what it serves.
    """
    tcp: Object = {"tcpSocket": {"port": request.port}}
    http: Object = {"httpGet": {"path": request.health_path, "port": request.port}}
    check = {**(http if request.health_path else tcp), "periodSeconds": _PERIOD_S, "timeoutSeconds": _TIMEOUT_S}
    found: Object = {
        "readinessProbe": {**check, "failureThreshold": 2},
        "lifecycle": {"preStop": {"sleep": {"seconds": _BEFORE_SIGTERM_S}}},
    }
    if request.start_timeout_s:
        tries = math.ceil((request.start_timeout_s + _AFTER_CONTROLLER_S) / _PERIOD_S)
        found["startupProbe"] = {**check, "failureThreshold": tries}
    return found


def eviction_grace_s(request: NodeRequest) -> int:
    """Return the grace of a pod that somebody else deletes or evicts: the hook, and the engine's own drain."""
    if not request.engine_drain_s:
        return _GRACE_S
    return _BEFORE_SIGTERM_S + math.ceil(request.engine_drain_s) + _AFTER_DRAIN_S
