"""What vLLM can do."""

from __future__ import annotations

from fleetctl.ports.engine import EngineCapabilities, PriorityOrder, ShutdownBehaviour
from fleetctl_vllm.launch import KV_CACHE_DTYPES, LOAD_TIME_METHODS

CAPABILITIES = EngineCapabilities(
    continues_streams=True,
    priority_order=PriorityOrder.LOW_FIRST,  # --scheduling-policy priority
    priority_flags=frozenset({"--scheduling-policy"}),
    reserves_output=False,
    # --shutdown-timeout: without it what runs is aborted.
    shutdown=ShutdownBehaviour(drain_s=0.0, refuses_new=True, keeps_listening=True),
    multi_node=True,  # --nnodes, by processes and without Ray
    kv_cache_precisions=frozenset(KV_CACHE_DTYPES),
    load_time_precisions=frozenset(LOAD_TIME_METHODS),
)
