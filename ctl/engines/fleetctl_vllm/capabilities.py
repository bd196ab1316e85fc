"""What vLLM can do."""

from __future__ import annotations

from pathlib import Path

from fleetctl.engine_kit import reserved
from fleetctl.model.cpu_share import CpuUse
from fleetctl.model.serving import SpeculationMethod
from fleetctl.ports.engine import EngineCapabilities, PriorityOrder, ShutdownBehaviour
from fleetctl_vllm import parsers
from fleetctl_vllm.launch import KV_CACHE_DTYPES, LOAD_TIME_METHODS, REASONING_PARSERS, TOOL_CALL_PARSERS

_DATA_PARALLEL = (
    "--data-parallel-size -dp --data-parallel-size-local -dpl --data-parallel-rank -dpn --data-parallel-start-rank -dpr "
    "--data-parallel-address -dpa --data-parallel-rpc-port -dpp"
)
_RESERVED = {
    **dict.fromkeys(("--host", "--port", "--uds", "--grpc"), reserved.LISTENS),
    **dict.fromkeys(
        ("--root-path", "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-cert-reqs"), reserved.TRANSPORT
    ),
    "--model": reserved.MODEL,
    "--served-model-name": reserved.SERVED_NAME,
    "--api-key": reserved.KEY,
    **dict.fromkeys(("--tensor-parallel-size", "-tp"), reserved.TENSOR_PARALLEL),
    **dict.fromkeys(("--pipeline-parallel-size", "-pp"), reserved.PIPELINE_PARALLEL),
    **dict.fromkeys(
        ("--nnodes", "-n", "--node-rank", "-r", "--master-addr", "--master-port", "--headless"), reserved.GROUP
    ),
    **dict.fromkeys(_DATA_PARALLEL.split(), reserved.DATA_PARALLEL),
    "--disable-log-stats": reserved.METRICS,
    "--config": reserved.FILE,
    **dict.fromkeys(("--cpu-offload-gb", "--offload-backend"), reserved.OFFLOAD),
    "--distributed-executor-backend": reserved.PROCESSES,
}

_PLANNED = {
    "--max-num-seqs": reserved.SEQS,
    "--max-model-len": reserved.LENGTH,
    "--max-num-batched-tokens": reserved.STEP_TOKENS,
    "--gpu-memory-utilization": reserved.MEMORY_SHARE,
    "--kv-cache-dtype": reserved.KV_FORMAT,
    **dict.fromkeys(("--enable-prefix-caching", "--no-enable-prefix-caching"), reserved.PREFIXES),
}

_OF_GPUS = dict.fromkeys(("--num-gpu-blocks-override", "--kv-cache-memory-bytes"), reserved.KV_SPACE)

CAPABILITIES = EngineCapabilities(
    continues_streams=True,
    priority_order=PriorityOrder.LOW_FIRST,  # --scheduling-policy priority
    priority_flags=frozenset({"--scheduling-policy"}),
    reserves_output=False,
    # --shutdown-timeout: without it what runs is aborted.
    shutdown=ShutdownBehaviour(drain_s=0.0, refuses_new=True, keeps_listening=True),
    needs_flags={"tools": frozenset({"--enable-auto-tool-choice"})},  # where a model is to decide on them
    serves_adapters=True,  # --enable-lora --lora-modules NAME=PATH
    multi_node=True,  # --nnodes, by processes and without Ray
    local_stages=True,
    data_parallel=True,
    kv_cache_precisions=frozenset(KV_CACHE_DTYPES),
    load_time_precisions=frozenset(LOAD_TIME_METHODS),
    reserved_flags=_RESERVED,
    own_parser=Path(__file__).parent / "own_parser.py",
    planned_flags=_PLANNED,
    gpu_flags=_OF_GPUS,
    format_flags=frozenset({"--dtype", "--quantization", "-q"}),
    # Measured on 0.32 with a model of a few MB: API server, engine core and worker hold 1.4 GiB. Left to itself it takes
    # --gpu-memory-utilization of the whole machine's memory, whoever else runs there; it binds its threads to the CPUs it
    # may run on, which are given by affinity.
    cpu=CpuUse(
        process_bytes=3 * 2**29,
        kv_space_env="VLLM_CPU_KVCACHE_SPACE",
        kv_space_flags=frozenset({"--kv-cache-memory-bytes", "--kv-cache-memory"}),
    ),
    launch_keys=frozenset(
        {
            "tool_call_parser",
            "reasoning_parser",
            "stream_interval",
            "performance_mode",
            "long_prefill_tokens",
            "max_queued_requests",
            "expert_parallel",
            "speculation",
        }
    ),
    tool_call_parsers=TOOL_CALL_PARSERS,
    parser_names={"tool_call_parser": parsers.TOOL_CALLS, "reasoning_parser": parsers.REASONING},
    reasoning_parsers=REASONING_PARSERS,
    lacks={
        "greedy_choices": "draws several choices at a temperature over 0 alone",
        "suffix": "puts nothing behind an answer",
    },
    speculation_methods=frozenset({SpeculationMethod.NGRAM, SpeculationMethod.EAGLE, SpeculationMethod.EAGLE3}),
)
