"""What llama.cpp's server can do."""

from __future__ import annotations

from pathlib import Path

from fleetctl.engine_kit import reserved
from fleetctl.model.cpu_share import CpuUse
from fleetctl.model.request_form import RequestForm
from fleetctl.ports.engine import EngineCapabilities, PriorityOrder, ShutdownBehaviour, WeightsFormat
from fleetctl_llamacpp.launch import KV_CACHE_TYPES

_RESERVED = {
    **dict.fromkeys(("--host", "--port"), reserved.LISTENS),
    **dict.fromkeys(("--api-prefix", "--ssl-key-file", "--ssl-cert-file"), reserved.TRANSPORT),
    **dict.fromkeys(
        ("--model", "-m", "--model-url", "-mu", "--hf-repo", "-hf", "-hfr", "--hf-file", "-hff"), reserved.MODEL
    ),
    **dict.fromkeys(("--alias", "-a"), reserved.SERVED_NAME),
    **dict.fromkeys(("--cpu-moe", "-cmoe", "--n-cpu-moe", "-ncmoe", "--override-tensor"), reserved.OFFLOAD),
    **dict.fromkeys(("--api-key", "--api-key-file"), reserved.KEY),
}

_PLANNED = {
    **dict.fromkeys(("--parallel", "-np"), reserved.SEQS),
    **dict.fromkeys(("--ctx-size", "-c"), reserved.LENGTH),
    **dict.fromkeys(("--batch-size", "-b"), reserved.STEP_TOKENS),
    **dict.fromkeys(("--cache-type-k", "-ctk", "--cache-type-v", "-ctv"), reserved.KV_FORMAT),
    **dict.fromkeys(("--cache-prompt", "--no-cache-prompt"), reserved.PREFIXES),
}

_OF_GPUS = {
    **dict.fromkeys(("--n-gpu-layers", "--gpu-layers", "-ngl", "--no-kv-offload", "-nkvo"), reserved.OFFLOAD),
    **dict.fromkeys(("--device", "-dev"), reserved.GPUS),
}

CAPABILITIES = EngineCapabilities(
    # A streamed answer goes on from a last message of the assistant; one that is not streamed repeats that message first.
    continues_streams=True,
    priority_order=PriorityOrder.NONE,
    reserves_output=True,  # a slot holds its context from the start
    shutdown=ShutdownBehaviour(drain_s=0.0, refuses_new=True, keeps_listening=False),
    kv_cache_precisions=frozenset(KV_CACHE_TYPES),
    load_time_precisions=frozenset(),  # a GGUF file is in its precision already
    weights_format=WeightsFormat.GGUF,
    reserves_context=True,
    checks_requests=False,  # it takes what is out of bounds for the nearest that is not
    lacks={"suffix": "looks at no text behind an answer"},
    # It knows the penalty by its own name, and passes over the one that vLLM, SGLang and TGI go by.
    request_form=RequestForm(renames={"repetition_penalty": "repeat_penalty"}),
    needs_flags=dict.fromkeys(("image_url", "input_audio"), frozenset({"--mmproj", "-mm", "--mmproj-url", "-mmu"})),
    reserved_flags=_RESERVED,
    own_parser=Path(__file__).parent / "own_parser.py",
    planned_flags=_PLANNED,
    gpu_flags=_OF_GPUS,
    # Left to itself it starts a thread for every core of the machine.
    cpu=CpuUse(process_bytes=2**28, threads_env="LLAMA_ARG_THREADS", threads_flags=frozenset({"--threads", "-t"})),
)
