"""What Acme can do."""

from __future__ import annotations

from acme_engine.launch import KV_CACHE_DTYPES, LOAD_TIME_METHODS
from fleetctl.ports.engine import EngineCapabilities, PriorityOrder, ShutdownBehaviour

CAPABILITIES = EngineCapabilities(
    continues_streams=False,
    priority_order=PriorityOrder.NONE,
    reserves_output=True,
    shutdown=ShutdownBehaviour(drain_s=None, refuses_new=False, keeps_listening=False),
    kv_cache_precisions=frozenset(KV_CACHE_DTYPES),
    load_time_precisions=frozenset(LOAD_TIME_METHODS),
)
