"""What the emulator itself can do; how it behaves is up to the engine it plays."""

from __future__ import annotations

from fleetctl.engine_kit import reserved
from fleetctl.model.catalogue import Precision
from fleetctl.ports.engine import EngineCapabilities, PriorityOrder, ShutdownBehaviour

# As the emulator's --kv-cache-dtype names them.
KV_CACHE_DTYPES = {"auto": None, "fp8": Precision.FP8, "bf16": Precision.BF16, "fp16": Precision.FP16}

_RESERVED = {
    **dict.fromkeys(("--host", "--port"), reserved.LISTENS),
    **dict.fromkeys(("--model", "--model-card"), reserved.MODEL),
    "--served-model-name": reserved.SERVED_NAME,
    "--tensor-parallel": reserved.TENSOR_PARALLEL,
    "--pipeline-parallel": reserved.PIPELINE_PARALLEL,
    **dict.fromkeys(("--nnodes", "--node-rank", "--leader-host", "--leader-port"), reserved.GROUP),
}

_PLANNED = {
    "--max-num-seqs": reserved.SEQS,
    "--max-model-len": reserved.LENGTH,
    "--max-num-batched-tokens": reserved.STEP_TOKENS,
    "--gpu-memory-utilization": reserved.MEMORY_SHARE,
    "--kv-cache-dtype": reserved.KV_FORMAT,
    "--no-prefix-caching": reserved.PREFIXES,
}

CAPABILITIES = EngineCapabilities(
    continues_streams=False,
    priority_order=PriorityOrder.NONE,
    priority_flags=frozenset({"--priority-scheduling", "--schedule-low-priority-values-first"}),
    reserves_output=False,
    local_stages=True,
    multi_node=True,
    shutdown=ShutdownBehaviour(drain_s=None, refuses_new=False, keeps_listening=True),
    kv_cache_precisions=frozenset(kind for kind in KV_CACHE_DTYPES.values() if kind is not None),
    load_time_precisions=frozenset(Precision),
    reserved_flags=_RESERVED,
    planned_flags=_PLANNED,
)
