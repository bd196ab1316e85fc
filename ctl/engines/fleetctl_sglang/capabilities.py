"""What SGLang can do."""

from __future__ import annotations

from pathlib import Path

from fleetctl.engine_kit import reserved
from fleetctl.model.serving import SpeculationMethod
from fleetctl.ports.engine import EngineCapabilities, PriorityOrder, ShutdownBehaviour
from fleetctl_sglang import parsers
from fleetctl_sglang.launch import KV_CACHE_DTYPES, LOAD_TIME_METHODS, REASONING_PARSERS, TOOL_CALL_PARSERS

_RESERVED = {
    **dict.fromkeys(("--host", "--port"), reserved.LISTENS),
    **dict.fromkeys(("--fastapi-root-path", "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs"), reserved.TRANSPORT),
    **dict.fromkeys(("--model-path", "--model"), reserved.MODEL),
    "--served-model-name": reserved.SERVED_NAME,
    **dict.fromkeys(("--api-key", "--admin-api-key"), reserved.KEY),
    **dict.fromkeys(("--tensor-parallel-size", "--tp-size"), reserved.TENSOR_PARALLEL),
    **dict.fromkeys(("--pipeline-parallel-size", "--pp-size"), reserved.PIPELINE_PARALLEL),
    **dict.fromkeys(("--data-parallel-size", "--dp-size"), reserved.DATA_PARALLEL),
    **dict.fromkeys(("--nnodes", "--node-rank", "--dist-init-addr", "--nccl-init-addr"), reserved.GROUP),
    **dict.fromkeys(("--ep-size", "--ep", "--expert-parallel-size"), reserved.EXPERT_PARALLEL),
    **dict.fromkeys(("--base-gpu-id", "--gpu-id-step"), reserved.GPUS),
    "--config": reserved.FILE,
    **dict.fromkeys(("--cpu-offload-gb", "--offload-mode"), reserved.OFFLOAD),
    "--max-total-tokens": reserved.KV_SPACE,
}

_PLANNED = {
    "--max-running-requests": reserved.SEQS,
    "--context-length": reserved.LENGTH,
    "--chunked-prefill-size": reserved.STEP_TOKENS,
    "--mem-fraction-static": reserved.MEMORY_SHARE,
    "--kv-cache-dtype": reserved.KV_FORMAT,
    "--disable-radix-cache": reserved.PREFIXES,
}

CAPABILITIES = EngineCapabilities(
    continues_streams=True,
    priority_order=PriorityOrder.HIGH_FIRST,  # unless --schedule-low-priority-values-first
    priority_flags=frozenset({"--enable-priority-scheduling", "--schedule-low-priority-values-first"}),
    reserves_output=False,
    shutdown=ShutdownBehaviour(drain_s=None, refuses_new=False, keeps_listening=True),
    local_stages=True,
    data_parallel=True,
    kv_cache_precisions=frozenset(KV_CACHE_DTYPES),
    load_time_precisions=frozenset(LOAD_TIME_METHODS),
    checks_requests=False,  # an empty list of tools is none to it, and so is a choice of them without tools
    reserved_flags=_RESERVED,
    own_parser=Path(__file__).parent / "own_parser.py",
    planned_flags=_PLANNED,
    format_flags=frozenset({"--dtype", "--quantization"}),
    launch_keys=frozenset(
        {
            "tool_call_parser",
            "reasoning_parser",
            "stream_interval",
            "max_queued_requests",
            "expert_parallel",
            "speculation",
        }
    ),
    tool_call_parsers=TOOL_CALL_PARSERS,
    parser_names={"tool_call_parser": parsers.TOOL_CALLS, "reasoning_parser": parsers.REASONING},
    reasoning_parsers=REASONING_PARSERS,
    speculation_methods=frozenset({SpeculationMethod.NGRAM, SpeculationMethod.EAGLE, SpeculationMethod.EAGLE3}),
)
