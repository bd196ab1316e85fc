"""What SGLang can do."""

from __future__ import annotations

from fleetctl.ports.engine import EngineCapabilities, PriorityOrder, ShutdownBehaviour
from fleetctl_sglang.launch import KV_CACHE_DTYPES, LOAD_TIME_METHODS

CAPABILITIES = EngineCapabilities(
    continues_streams=True,
    priority_order=PriorityOrder.HIGH_FIRST,  # unless --schedule-low-priority-values-first
    priority_flags=frozenset({"--enable-priority-scheduling", "--schedule-low-priority-values-first"}),
    reserves_output=False,
    shutdown=ShutdownBehaviour(drain_s=None, refuses_new=False, keeps_listening=True),
    kv_cache_precisions=frozenset(KV_CACHE_DTYPES),
    load_time_precisions=frozenset(LOAD_TIME_METHODS),
)
